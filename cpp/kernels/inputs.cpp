#include "inputs.h"

#include <algorithm>

namespace pyvllm_pp::kernels {
namespace {

constexpr std::string_view kPrefill = "prepare_prefill_inputs";
constexpr std::string_view kPositions = "prepare_pos_seq_lens";
constexpr std::string_view kCombine = "combine_sampled_and_draft_tokens";
constexpr std::string_view kExpand = "expand_idx_mapping";

/// Rows `[start, end)` of a request, from an array of cumulative counts.
struct Span {
  std::int64_t start;
  std::int64_t count;
};

Span span_of(const Ints& cumulative, std::int64_t row) {
  return {cumulative[row], cumulative[row + 1] - cumulative[row]};
}

void check_spans(std::string_view kernel, std::string_view name, const Ints& cumulative,
                 std::int64_t num_reqs, std::int64_t size) {
  check_range(kernel, name, 0, num_reqs + 1, cumulative.size());
  for (std::int64_t row = 0; row < num_reqs; ++row) {
    const auto [start, count] = span_of(cumulative, row);
    check_range(kernel, name, start, count, size);
  }
}

bool is_prefilling(const PrefillInputs& in, std::int64_t slot) {
  return slot >= 0 && in.num_computed_tokens[slot] < in.prefill_len[slot];
}

void check(const PrefillInputs& in, std::int64_t num_reqs) {
  const auto num_slots = std::min(in.prefill_len.size(), in.num_computed_tokens.size());
  check_below(kPrefill, "idx_mapping", in.idx_mapping, num_reqs, num_slots);
  check_spans(kPrefill, "query_start_loc", in.query_start_loc, num_reqs, in.input_ids.size());
  for (std::int64_t row = 0; row < num_reqs; ++row) {
    const auto slot = in.idx_mapping[row];
    if (!is_prefilling(in, slot)) {
      continue;
    }
    const auto first = slot * in.all_token_ids.stride + in.num_computed_tokens[slot];
    const auto count = span_of(in.query_start_loc, row).count;
    check_range(kPrefill, "all_token_ids", first, count, in.all_token_ids.flat.size());
    if (in.num_lookahead > 0) {
      check_range(kPrefill, "next_prefill_tokens", (in.num_lookahead - 1) * in.next_tokens.stride,
                  slot + 1, in.next_tokens.flat.size());
    }
  }
}

}  // namespace

void prepare_prefill_inputs(const PrefillInputs& in, std::int64_t num_reqs) {
  check(in, num_reqs);
  for (std::int64_t row = 0; row < num_reqs; ++row) {
    const auto slot = in.idx_mapping[row];
    if (!is_prefilling(in, slot)) {
      continue;
    }
    const auto [start, count] = span_of(in.query_start_loc, row);
    const auto num_computed = in.num_computed_tokens[slot];
    copy(in.all_token_ids.flat, slot * in.all_token_ids.stride + num_computed, in.input_ids, start,
         count);
    for (std::int64_t i = 0; i < in.num_lookahead; ++i) {
      const auto position = num_computed + count + i;
      const bool is_known = position < in.prefill_len[slot];
      in.next_tokens.set(i, slot, is_known ? in.all_token_ids.at(slot, position) : 0);
    }
  }
}

void prepare_pos_seq_lens(const Positions& in, std::int64_t num_reqs, std::int64_t max_num_reqs) {
  check_below(kPositions, "idx_mapping", in.idx_mapping, num_reqs, in.num_computed_tokens.size());
  check_spans(kPositions, "query_start_loc", in.query_start_loc, num_reqs, in.positions.size());
  check_range(kPositions, "seq_lens", 0, std::max(num_reqs, max_num_reqs), in.seq_lens.size());
  for (std::int64_t row = 0; row < num_reqs; ++row) {
    const auto slot = in.idx_mapping[row];
    const auto num_computed = slot < 0 ? 0 : in.num_computed_tokens[slot];
    const auto [start, count] = span_of(in.query_start_loc, row);
    in.seq_lens.set(row, num_computed + count);
    fill_ascending(in.positions, start, count, num_computed);
  }
  if (max_num_reqs > num_reqs) {
    fill(in.seq_lens, num_reqs, max_num_reqs - num_reqs, 0);
  }
}

namespace {

/// A request's logits are its last scheduled tokens.
void check(const SampledInputs& in, std::int64_t num_reqs) {
  const auto num_slots = std::min(in.prefill_len.size(), in.last_sampled_tokens.size());
  check_below(kCombine, "idx_mapping", in.idx_mapping, num_reqs, num_slots);
  check_spans(kCombine, "cu_num_logits", in.cu_num_logits, num_reqs, in.logits_indices.size());
  check_range(kCombine, "query_start_loc", 0, num_reqs + 1, in.query_start_loc.size());
  check_range(kCombine, "seq_lens", 0, num_reqs, in.seq_lens.size());
  for (std::int64_t row = 0; row < num_reqs; ++row) {
    const auto num_logits = span_of(in.cu_num_logits, row).count;
    const auto query_end = in.query_start_loc[row + 1];
    check_range(kCombine, "input_ids", query_end - num_logits, num_logits, in.input_ids.size());
    const auto slot = std::max<std::int64_t>(in.idx_mapping[row], 0);
    const auto num_drafts = num_logits - in.num_new_sampled_tokens;
    if (num_drafts > 0) {
      check_range(kCombine, "draft_tokens", slot * in.draft_tokens.stride, num_drafts,
                  in.draft_tokens.flat.size());
    }
  }
}

}  // namespace

void combine_sampled_and_draft_tokens(const SampledInputs& in, std::int64_t num_reqs) {
  check(in, num_reqs);
  for (std::int64_t row = 0; row < num_reqs; ++row) {
    const auto [first, num_logits] = span_of(in.cu_num_logits, row);
    const auto query_end = in.query_start_loc[row + 1];
    const auto logits_start = query_end - num_logits;
    fill_ascending(in.logits_indices, first, std::min(num_logits, in.max_num_logits), logits_start);

    const auto slot = in.idx_mapping[row];
    if (slot < 0 || in.seq_lens[row] <= in.prefill_len[slot]) {
      continue;
    }
    // Tokens of the prompt's tail stay; only generated ones are written.
    const bool starts_generated = in.seq_lens[row] - num_logits >= in.prefill_len[slot];
    if (in.num_new_sampled_tokens > 0 && starts_generated && num_logits > 0) {
      in.input_ids.set(logits_start, in.last_sampled_tokens[slot]);
    }
    const auto num_drafts = num_logits - in.num_new_sampled_tokens;
    if (num_drafts > 0) {
      copy(in.draft_tokens.flat, slot * in.draft_tokens.stride, in.input_ids,
           query_end - num_drafts, std::min(num_drafts, in.max_num_logits));
    }
  }
}

void expand_idx_mapping(const ExpandedMapping& in, std::int64_t num_reqs) {
  check_range(kExpand, "idx_mapping", 0, num_reqs, in.idx_mapping.size());
  const auto num_logits = std::min(in.expanded.size(), in.local_pos.size());
  check_spans(kExpand, "cu_num_logits", in.cu_num_logits, num_reqs, num_logits);
  for (std::int64_t row = 0; row < num_reqs; ++row) {
    const auto [first, count] = span_of(in.cu_num_logits, row);
    const auto written = std::min(count, in.max_num_logits);
    fill(in.expanded, first, written, in.idx_mapping[row]);
    fill_ascending(in.local_pos, first, written, 0);
  }
}

}  // namespace pyvllm_pp::kernels
