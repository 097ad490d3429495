#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "arrays.h"
#include "simd/floats.h"

/// Logits and what kernels change in them. A negative entry of a mapping owns no request: its row
/// stays as it is. Token numbers outside the vocabulary are passed over. All throw
/// `std::invalid_argument`, before anything is written, where another index leaves its array.
namespace pyvllm_pp::kernels {

/// `[num_rows, vocab_size]` logits of float32, bfloat16 or float16.
struct Logits {
  void* data = nullptr;
  ElementType type = ElementType::float32;
  std::int64_t size = 0;    // elements from the first to the last
  std::int64_t stride = 0;  // elements from row to row
  std::int64_t vocab_size = 0;

  /// Throws `std::invalid_argument` unless there are `num_rows` rows.
  void check(std::string_view kernel, std::int64_t num_rows) const;

  /// Calls `visitor` with the typed pointer to a row.
  template <typename Visitor>
  decltype(auto) visit(std::int64_t row, Visitor&& visitor) const {
    if (type == ElementType::bfloat16) {
      return visitor(static_cast<BFloat16*>(data) + row * stride);
    }
    if (type == ElementType::float16) {
      return visitor(static_cast<Float16*>(data) + row * stride);
    }
    return visitor(static_cast<float*>(data) + row * stride);
  }
};

using Reals = std::span<const float>;

/// Divides each row by its request's temperature, unless that is 0 or 1.
void apply_temperature(const Logits& logits, const Ints& idx_mapping, Reals temperature,
                       std::int64_t num_rows);

/// Masks what is less likely than `min_p` times the best token.
void apply_min_p(const Logits& logits, const Ints& idx_mapping, Reals min_p, std::int64_t num_rows);

struct PenaltyState {
  Ints idx_mapping;                           // [num_rows]
  Ints token_ids;                             // [num_rows], drafts from a request's second row on
  Ints local_pos;                             // [num_rows], row within its request
  Reals repetition;                           // [max_num_reqs]
  Reals frequency;                            // [max_num_reqs]
  Reals presence;                             // [max_num_reqs]
  std::span<const std::int32_t> prompt_bits;  // [max_num_reqs, ceil(vocab_size / 32)]
  std::int64_t prompt_bits_stride;
  std::span<const std::int32_t> output_counts;  // [max_num_reqs, vocab_size]
  std::int64_t output_counts_stride;
};

/// Presence, frequency and repetition penalties of each row's request.
void apply_penalties(const Logits& logits, const PenaltyState& in, std::int64_t num_rows);

struct TokenCounts {
  Ints idx_mapping;                     // [num_reqs]
  IntRows all_token_ids;                // [max_num_reqs, max_model_len]
  Ints prompt_len;                      // [max_num_reqs]
  Ints prefill_len;                     // [max_num_reqs]
  std::span<std::int32_t> prompt_bits;  // written
  std::int64_t prompt_bits_stride;
  std::span<std::int32_t> output_counts;  // written
  std::int64_t output_counts_stride;
  std::int64_t block_size;  // tokens are counted in whole blocks...
  std::int64_t num_blocks;  // ... of which there are so many
};

/// Adds the tokens of new requests to the statistics of penalties.
void count_tokens(const TokenCounts& in, std::int64_t num_reqs);

struct TokenBias {
  Ints idx_mapping;  // [num_rows]
  Ints num_allowed;  // [max_num_reqs]; 0: all are allowed
  IntRows allowed;   // [max_num_reqs, n]
  Ints num_biased;   // [max_num_reqs]
  IntRows biased;    // [max_num_reqs, n]
  Reals bias;        // [max_num_reqs, n]
  std::int64_t bias_stride;
  Ints positions;                // [num_rows]
  Ints min_lens;                 // [max_num_reqs]
  Ints num_stop;                 // [max_num_reqs]
  Ints restore_when_all_masked;  // [max_num_reqs]
  IntRows stop;                  // [max_num_reqs, n]
  bool check_all_masked;
};

/// Allowed tokens, bias, and no stop token before the minimum length; in this order.
void apply_token_bias(const Logits& logits, const TokenBias& in, std::int64_t num_rows);

struct BadWords {
  Ints idx_mapping;       // [num_rows]
  IntRows tokens;         // [max_num_reqs, n], one word after the other
  IntRows offsets;        // [max_num_reqs, max_num_words + 1]
  Ints num_words;         // [max_num_reqs]
  IntRows all_token_ids;  // [max_num_reqs, max_model_len]
  Ints prompt_len;        // [max_num_reqs]
  Ints total_len;         // [max_num_reqs]
  Ints input_ids;         // [num_rows], drafts from a request's second row on
  Ints local_pos;         // [num_rows]
  std::int64_t max_num_words;
};

/// Masks the last token of each bad word whose other tokens were just generated.
void apply_bad_words(const Logits& logits, const BadWords& in, std::int64_t num_rows);

struct GrammarMask {
  Ints rows;                           // [num_masks]: request * stride + position
  Ints cu_num_logits;                  // [num_reqs + 1]
  std::span<const std::int32_t> bits;  // [num_masks, n], one bit a token
  std::int64_t bits_stride;
  std::int64_t positions_per_request;
};

/// Masks tokens whose bit is 0.
void apply_grammar_bitmask(const Logits& logits, const GrammarMask& in, std::int64_t num_masks);

}  // namespace pyvllm_pp::kernels
