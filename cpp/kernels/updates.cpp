#include "updates.h"

#include <algorithm>

namespace pyvllm_pp::kernels {
namespace {

constexpr std::string_view kCounts = "get_num_sampled_and_rejected";
constexpr std::string_view kUpdate = "post_update";
constexpr std::string_view kComputed = "post_update_num_computed_tokens";

std::int64_t query_len(const Ints& query_start_loc, std::int64_t row) {
  return query_start_loc[row + 1] - query_start_loc[row];
}

}  // namespace

void get_num_sampled_and_rejected(const SampledCounts& in, std::int64_t num_reqs) {
  check_below(kCounts, "idx_mapping", in.idx_mapping, num_reqs, in.prefill_len.size());
  check_range(kCounts, "cu_num_logits", 0, num_reqs + 1, in.cu_num_logits.size());
  check_range(kCounts, "seq_lens", 0, num_reqs, in.seq_lens.size());
  check_range(kCounts, "num_sampled", 0, num_reqs, in.num_sampled.size());
  check_range(kCounts, "num_rejected", 0, num_reqs, in.num_rejected.size());
  for (std::int64_t row = 0; row < num_reqs; ++row) {
    const auto slot = in.idx_mapping[row];
    const bool is_sampling = slot >= 0 && in.seq_lens[row] >= in.prefill_len[slot];
    const auto num_sampled = is_sampling ? in.num_sampled[row] : 0;
    in.num_sampled.set(row, num_sampled);
    const auto num_logits = in.cu_num_logits[row + 1] - in.cu_num_logits[row];
    in.num_rejected.set(row, is_sampling ? num_logits - num_sampled : 0);
  }
}

namespace {

void check_tokens(const StateUpdate& in, std::int64_t row, std::int64_t slot) {
  const auto count = in.num_sampled[row];
  check_range(kUpdate, "sampled_tokens", row * in.sampled_tokens.stride, count,
              in.sampled_tokens.flat.size());
  check_range(kUpdate, "all_token_ids", slot * in.all_token_ids.stride + in.total_len[slot], count,
              in.all_token_ids.flat.size());
  if (in.output_bin_counts.flat.is_absent()) {
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const auto token = in.sampled_tokens.at(row, i);
    check_range(kUpdate, "output_bin_counts", token, 1, in.output_bin_counts.stride);
  }
}

void check(const StateUpdate& in, std::int64_t num_reqs) {
  const auto num_slots =
      std::min({in.num_computed_tokens.size(), in.last_sampled_tokens.size(), in.total_len.size()});
  check_below(kUpdate, "idx_mapping", in.idx_mapping, num_reqs, num_slots);
  check_range(kUpdate, "num_sampled", 0, num_reqs, in.num_sampled.size());
  check_range(kUpdate, "num_rejected", 0, num_reqs, in.num_rejected.size());
  if (!in.query_start_loc.is_absent()) {
    check_range(kUpdate, "query_start_loc", 0, num_reqs + 1, in.query_start_loc.size());
  }
  if (!in.output_bin_counts.flat.is_absent()) {
    check_range(kUpdate, "output_bin_counts", 0, num_slots * in.output_bin_counts.stride,
                in.output_bin_counts.flat.size());
  }
  for (std::int64_t row = 0; row < num_reqs; ++row) {
    const auto slot = in.idx_mapping[row];
    if (slot >= 0 && in.num_sampled[row] > 0) {
      check_tokens(in, row, slot);
    }
  }
}

void append(const StateUpdate& in, std::int64_t row, std::int64_t slot, std::int64_t count) {
  const auto total_len = in.total_len[slot];
  for (std::int64_t i = 0; i < count; ++i) {
    const auto token = in.sampled_tokens.at(row, i);
    in.all_token_ids.set(slot, total_len + i, token);
    if (!in.output_bin_counts.flat.is_absent()) {
      in.output_bin_counts.set(slot, token, in.output_bin_counts.at(slot, token) + 1);
    }
  }
  in.last_sampled_tokens.set(slot, in.sampled_tokens.at(row, count - 1));
  in.total_len.set(slot, total_len + count);
}

}  // namespace

void post_update(const StateUpdate& in, std::int64_t num_reqs) {
  check(in, num_reqs);
  for (std::int64_t row = 0; row < num_reqs; ++row) {
    const auto slot = in.idx_mapping[row];
    if (slot < 0) {
      continue;
    }
    if (in.num_sampled[row] > 0) {
      append(in, row, slot, in.num_sampled[row]);
    }
    const auto computed = in.query_start_loc.is_absent() ? 0 : query_len(in.query_start_loc, row);
    const auto delta = computed - in.num_rejected[row];
    in.num_computed_tokens.set(slot, in.num_computed_tokens[slot] + delta);
  }
}

void post_update_num_computed_tokens(const ComputedUpdate& in, std::int64_t num_reqs) {
  check_below(kComputed, "idx_mapping", in.idx_mapping, num_reqs, in.num_computed_tokens.size());
  check_range(kComputed, "query_start_loc", 0, num_reqs + 1, in.query_start_loc.size());
  for (std::int64_t row = 0; row < num_reqs; ++row) {
    const auto slot = in.idx_mapping[row];
    if (slot >= 0) {
      in.num_computed_tokens.set(slot,
                                 in.num_computed_tokens[slot] + query_len(in.query_start_loc, row));
    }
  }
}

}  // namespace pyvllm_pp::kernels
