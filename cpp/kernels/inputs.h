#pragma once

#include <cstdint>

#include "arrays.h"

/// Kernels that prepare a step's inputs from the state of its requests.
///
/// `idx_mapping` maps a batch row to a request slot; a negative entry owns no request. All throw
/// `std::invalid_argument`, before anything is written, where an index leaves its array.
namespace pyvllm_pp::kernels {

struct PrefillInputs {
  Ints input_ids;       // [max_num_tokens], written
  IntRows next_tokens;  // [num_lookahead, max_num_reqs], written
  std::int64_t num_lookahead;
  Ints idx_mapping;          // [num_reqs]
  Ints query_start_loc;      // [num_reqs + 1]
  IntRows all_token_ids;     // [max_num_reqs, max_model_len]
  Ints prefill_len;          // [max_num_reqs]
  Ints num_computed_tokens;  // [max_num_reqs]
};

/// Copies the scheduled prompt tokens of prefilling requests, and the few that come after them
/// (0 past the prompt). Rows that do not prefill stay as they are.
void prepare_prefill_inputs(const PrefillInputs& in, std::int64_t num_reqs);

struct Positions {
  Ints positions;            // [max_num_tokens], written
  Ints seq_lens;             // [max_num_reqs], written; 0 after the batch's rows
  Ints idx_mapping;          // [num_reqs]
  Ints query_start_loc;      // [num_reqs + 1]
  Ints num_computed_tokens;  // [max_num_reqs]
};

/// Position of every scheduled token, and each request's length with them. A row without a request
/// starts at position 0.
void prepare_pos_seq_lens(const Positions& in, std::int64_t num_reqs, std::int64_t max_num_reqs);

struct SampledInputs {
  Ints input_ids;                       // [max_num_tokens], written
  Ints idx_mapping;                     // [num_reqs]
  Ints last_sampled_tokens;             // [max_num_reqs]
  Ints query_start_loc;                 // [num_reqs + 1]
  Ints seq_lens;                        // [num_reqs]
  Ints prefill_len;                     // [max_num_reqs]
  IntRows draft_tokens;                 // [max_num_reqs, num_speculative_steps]
  Ints cu_num_logits;                   // [num_reqs + 1]
  Ints logits_indices;                  // [num_logits], written
  std::int64_t max_num_logits;          // of one request
  std::int64_t num_new_sampled_tokens;  // 0 or 1
};

/// Puts each decoding request's last token and its drafts into the input, and tells which rows of
/// the input have logits.
void combine_sampled_and_draft_tokens(const SampledInputs& in, std::int64_t num_reqs);

struct ExpandedMapping {
  Ints idx_mapping;             // [num_reqs]
  Ints expanded;                // [num_logits], written: the request slot of each row of logits
  Ints local_pos;               // [num_logits], written: 0, 1, ... within a request
  Ints cu_num_logits;           // [num_reqs + 1]
  std::int64_t max_num_logits;  // of one request
};

void expand_idx_mapping(const ExpandedMapping& in, std::int64_t num_reqs);

}  // namespace pyvllm_pp::kernels
