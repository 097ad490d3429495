#include <algorithm>
#include <cmath>

#include "logprobs.h"

namespace pyvllm_pp::kernels {
namespace {

constexpr std::string_view kTargets = "prompt_logprobs_token_ids";
constexpr std::string_view kMask = "compact_sampling_mask";
constexpr std::string_view kTrace = "trace_replay";

}  // namespace

void prompt_target_tokens(const PromptTargets& in, std::int64_t num_reqs) {
  check_below(kTargets, "idx_mapping", in.idx_mapping, num_reqs, in.num_computed_tokens.size());
  check_range(kTargets, "query_start_loc", 0, num_reqs + 1, in.query_start_loc.size());
  for (std::int64_t row = 0; row < num_reqs; ++row) {
    const auto start = in.query_start_loc[row];
    check_range(kTargets, "prompt_logprobs_token_ids", start, in.query_start_loc[row + 1] - start,
                in.token_ids.size());
    const auto slot = std::max<std::int64_t>(in.idx_mapping[row], 0);
    check_range(kTargets, "num_computed_tokens", in.num_computed_tokens[slot], 0,
                in.all_token_ids.flat.size());
  }
  for (std::int64_t row = 0; row < num_reqs; ++row) {
    const auto start = in.query_start_loc[row];
    const auto count = in.query_start_loc[row + 1] - start;
    const auto slot = in.idx_mapping[row];
    std::int64_t known = 0;
    if (slot >= 0) {
      // The last token of a full row has none after it.
      const auto first = slot * in.all_token_ids.stride + in.num_computed_tokens[slot] + 1;
      known = std::clamp<std::int64_t>(in.all_token_ids.flat.size() - first, 0, count);
      copy(in.all_token_ids.flat, first, in.token_ids, start, known);
    }
    fill(in.token_ids, start + known, count - known, 0);
  }
}

namespace {

/// Row of logits behind an output row, or -1 where nothing was sampled.
std::int64_t source_row(const SamplingMask& in, std::int64_t row) {
  const auto request = row / in.rows_per_request;
  const auto within = row % in.rows_per_request;
  return within < in.num_sampled[request] ? in.cu_num_logits[request] + within : -1;
}

void check(const Logits& logits, const SamplingMask& in, std::int64_t num_rows) {
  if (in.rows_per_request < 1) {
    fail(kMask, "ROWS_PER_REQUEST is ", in.rows_per_request, ", expected 1 or more");
  }
  const auto num_reqs = (num_rows + in.rows_per_request - 1) / in.rows_per_request;
  check_range(kMask, "num_sampled_tokens", 0, num_reqs, in.num_sampled.size());
  check_range(kMask, "cu_num_logits", 0, num_reqs, in.cu_num_logits.size());
  check_range(kMask, "counts", 0, num_rows, in.counts.size());
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const auto source = source_row(in, row);
    if (source < 0) {
      continue;
    }
    check_range(kMask, "logits", source * logits.stride,
                (logits.vocab_size - 1) * in.column_stride + 1, logits.size);
    check_range(kMask, "token_ids", row * in.token_ids.stride, in.max_num_kept,
                in.token_ids.flat.size());
    check_range(kMask, "packed_mask", row * in.bits_stride, (logits.vocab_size + 7) / 8,
                size_of(in.bits));
  }
}

template <typename T>
void compact_row(const T* logits, std::int64_t vocab_size, const SamplingMask& in,
                 std::int64_t row) {
  const auto bits = in.bits.subspan(as_size(row * in.bits_stride), as_size((vocab_size + 7) / 8));
  std::ranges::fill(bits, std::uint8_t{0});
  std::int64_t count = 0;
  for (std::int64_t token = 0; token < vocab_size; ++token) {
    if (!std::isfinite(to_float(logits[token * in.column_stride]))) {
      continue;
    }
    if (count < in.max_num_kept) {
      in.token_ids.set(row, count, token);
    }
    ++count;
    bits[as_size(token / 8)] |= static_cast<std::uint8_t>(1U << static_cast<unsigned>(token % 8));
  }
  in.counts.set(row, count);
}

}  // namespace

void compact_sampling_mask(const Logits& logits, const SamplingMask& in, std::int64_t num_rows) {
  logits.check(kMask, 0);
  check(logits, in, num_rows);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const auto source = source_row(in, row);
    if (source < 0) {
      in.counts.set(row, 0);
    } else {
      logits.visit(source,
                   [&](const auto* data) { compact_row(data, logits.vocab_size, in, row); });
    }
  }
}

namespace {

/// The token of a request's trace that is due, or -1.
std::int64_t due_step(const TraceReplay& in, std::int64_t slot) {
  const auto step = in.total_len[slot] - in.prompt_len[slot];
  return step >= 0 && step < in.trace_len[slot] ? step : -1;
}

}  // namespace

void replay_trace(const TraceReplay& in, std::int64_t num_reqs) {
  const auto num_slots = std::min({in.trace_len.size(), in.total_len.size(), in.prompt_len.size()});
  check_below(kTrace, "idx_mapping", in.idx_mapping, num_reqs, num_slots);
  check_range(kTrace, "sampled", 0, num_reqs, in.sampled.size());
  for (std::int64_t row = 0; row < num_reqs; ++row) {
    const auto slot = in.idx_mapping[row];
    if (slot >= 0) {
      const auto step = std::max<std::int64_t>(due_step(in, slot), 0);
      check_range(kTrace, "trace_token_ids", slot * in.trace_tokens.stride + step, 1,
                  in.trace_tokens.flat.size());
    }
  }
  for (std::int64_t row = 0; row < num_reqs; ++row) {
    const auto slot = in.idx_mapping[row];
    const auto step = slot < 0 ? -1 : due_step(in, slot);
    if (step >= 0) {
      in.sampled.set(row, in.trace_tokens.at(slot, step));
    }
  }
}

}  // namespace pyvllm_pp::kernels
