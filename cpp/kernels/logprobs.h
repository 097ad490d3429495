#pragma once

#include <cstdint>
#include <span>

#include "logits.h"

/// Kernels that report on logits. All throw `std::invalid_argument`, before anything is written,
/// where an index leaves its array.
namespace pyvllm_pp::kernels {

/// Log probability of `num_tokens` tokens a row. `out`: `[num_rows, num_tokens]`, contiguous.
void token_log_softmax(const Logits& logits, const IntRows& token_ids, std::int64_t num_tokens,
                       std::span<float> out, std::int64_t num_rows);

/// How many logits are at least that of the row's token; 0 where that is NaN. As in vLLM's kernel,
/// the places that fill the last block of `block_size` count as -infinity.
void token_ranks(const Logits& logits, const Ints& token_ids, std::int64_t block_size,
                 const Ints& out, std::int64_t num_rows);

/// NaN logits of each row.
void count_nan_logits(const Logits& logits, const Ints& out, std::int64_t num_rows);

struct LogprobTokens {
  IntRows token_ids;      // [num_rows, 1 + num_columns], written
  std::span<bool> valid;  // [num_rows, 1 + num_columns], written
  std::int64_t valid_stride;
  Ints sampled;      // [num_rows]
  IntRows best;      // [num_rows, num_best]
  Ints idx_mapping;  // [num_rows]
  Ints num_custom;   // [max_num_reqs]
  IntRows custom;    // [max_num_reqs, n]
  std::int64_t num_best;
  std::int64_t max_num_columns;
};

/// The sampled token, then the tokens that a request asks for, or else the best ones.
void fill_logprob_tokens(const LogprobTokens& in, std::int64_t num_rows);

struct PromptTargets {
  Ints token_ids;            // [num_tokens], written
  Ints query_start_loc;      // [num_reqs + 1]
  Ints idx_mapping;          // [num_reqs]
  Ints num_computed_tokens;  // [max_num_reqs]
  IntRows all_token_ids;     // [max_num_reqs, max_model_len]
};

/// The token after each scheduled one; 0 where the request's memory ends before it.
void prompt_target_tokens(const PromptTargets& in, std::int64_t num_reqs);

struct SamplingMask {
  std::int64_t column_stride;    // of the logits
  Ints cu_num_logits;            // [num_reqs + 1]
  Ints num_sampled;              // [num_reqs]
  IntRows token_ids;             // [num_rows, max_num_kept], written
  std::span<std::uint8_t> bits;  // [num_rows, ceil(vocab_size / 8)], written
  std::int64_t bits_stride;
  Ints counts;  // [num_rows], written
  std::int64_t max_num_kept;
  std::int64_t rows_per_request;
};

/// Which tokens sampling could choose: their numbers, as far as there is room, their count, and a
/// bit a token. Rows without a sampled token have a count of 0 alone.
void compact_sampling_mask(const Logits& logits, const SamplingMask& in, std::int64_t num_rows);

struct TraceReplay {
  Ints sampled;          // [num_reqs], written
  Ints idx_mapping;      // [num_reqs]
  IntRows trace_tokens;  // [max_num_reqs, max_model_len]
  Ints trace_len;        // [max_num_reqs]
  Ints total_len;        // [max_num_reqs]
  Ints prompt_len;       // [max_num_reqs]
};

/// Puts the recorded token in place of the sampled one while a request's trace lasts.
void replay_trace(const TraceReplay& in, std::int64_t num_reqs);

}  // namespace pyvllm_pp::kernels
