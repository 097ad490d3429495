#pragma once

#include <cstdint>

#include "logits.h"

/// Budgets of thinking tokens: once a request has thought for long enough, the marker that ends
/// its thinking is forced. A negative budget is none.
namespace pyvllm_pp::kernels {

struct ThinkingState {
  Ints budget;            // [max_num_reqs]
  IntRows all_token_ids;  // [max_num_reqs, max_model_len]
  Ints total_len;         // [max_num_reqs]
  Ints last_start;        // [max_num_reqs], where thinking last began, or -1
  Ints last_end;          // [max_num_reqs]
  Ints start_marker;      // tokens that begin thinking
  Ints end_marker;        // tokens that end it by themselves
};

/// Looks for markers in what was generated since the last look. `idx_mapping`: `[num_reqs]`;
/// `scan_positions`: `[max_num_reqs]`, where to look next. All three are written.
void find_markers(const ThinkingState& state, const Ints& idx_mapping, const Ints& scan_positions,
                  std::int64_t num_reqs);

struct ForcedEnd {
  Ints idx_mapping;    // [num_rows]
  Ints input_ids;      // [num_rows], drafts from a request's second row on
  Ints local_pos;      // [num_rows]
  Ints forced_marker;  // tokens that end thinking by force
};

/// Raises the logit of the next token of the forced marker where the budget is used up.
void force_end_of_thinking(const Logits& logits, const ThinkingState& state, const ForcedEnd& in,
                           std::int64_t num_rows);

}  // namespace pyvllm_pp::kernels
