#pragma once

#include "arrays.h"

/// Kernels that write a step's results back to the state of its requests. A negative entry of
/// `idx_mapping` owns no request. All throw `std::invalid_argument`, before anything is written,
/// where an index leaves its array.
namespace pyvllm_pp::kernels {

struct SampledCounts {
  Ints num_sampled;    // [num_reqs], read and written
  Ints num_rejected;   // [num_reqs], written
  Ints seq_lens;       // [num_reqs]
  Ints cu_num_logits;  // [num_reqs + 1]
  Ints idx_mapping;    // [num_reqs]
  Ints prefill_len;    // [max_num_reqs]
};

/// A request within its prefill samples and rejects nothing.
void get_num_sampled_and_rejected(const SampledCounts& in, std::int64_t num_reqs);

struct StateUpdate {
  Ints idx_mapping;           // [num_reqs]
  Ints num_computed_tokens;   // [max_num_reqs], written
  Ints last_sampled_tokens;   // [max_num_reqs], written
  IntRows output_bin_counts;  // [max_num_reqs, vocab_size], written; absent without penalties
  IntRows sampled_tokens;     // [num_reqs, num_speculative_steps + 1]
  Ints num_sampled;           // [num_reqs]
  Ints num_rejected;          // [num_reqs]
  Ints query_start_loc;       // [num_reqs + 1]; absent: no token was computed
  IntRows all_token_ids;      // [max_num_reqs, max_model_len], written
  Ints total_len;             // [max_num_reqs], written
};

/// Appends the sampled tokens to their requests and counts what was computed.
void post_update(const StateUpdate& in, std::int64_t num_reqs);

struct ComputedUpdate {
  Ints idx_mapping;          // [num_reqs]
  Ints num_computed_tokens;  // [max_num_reqs], written
  Ints query_start_loc;      // [num_reqs + 1]
};

void post_update_num_computed_tokens(const ComputedUpdate& in, std::int64_t num_reqs);

}  // namespace pyvllm_pp::kernels
