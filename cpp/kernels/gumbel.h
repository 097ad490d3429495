#pragma once

#include <cstdint>
#include <span>

#include "logits.h"

/// Sampling by Gumbel noise: the same random stream as vLLM's kernel, so the same tokens.
namespace pyvllm_pp::kernels {

/// Where raw logits go beside the draw: `[max_num_reqs, num_columns, vocab_size]`.
struct LogitsCache {
  void* data = nullptr;  // absent: nothing is kept
  std::int64_t size = 0;
  std::int64_t request_stride = 0;
  std::int64_t column_stride = 0;
  Ints column;  // [num_rows] or one for all
  bool has_column_per_row = false;
  Logits source;  // of the cache's type
};

struct GumbelDraw {
  Ints idx_mapping;   // [num_rows]
  Ints seeds;         // [max_num_reqs]
  Ints positions;     // [num_rows]
  Reals temperature;  // [max_num_reqs]; 0: the best token, no noise
  std::int64_t block_size;
  bool is_drafting;        // draws from the drafts' stream
  bool apply_temperature;  // else the logits are divided already
  LogitsCache cache;
};

/// Result by row and block of the vocabulary.
template <typename Value>
struct BlockBest {
  Ints token;  // [num_rows, num_blocks], written
  std::int64_t token_stride;
  std::span<Value> value;  // [num_rows, num_blocks], written
  std::int64_t value_stride;
};

/// Best token of each block and its noised logit. A row without a request gets the best logit. In
/// float64 both the noise and the comparison are more precise.
void gumbel_sample(const Logits& logits, const GumbelDraw& in, const BlockBest<float>& out,
                   std::int64_t num_rows, std::int64_t num_blocks);
void gumbel_sample(const Logits& logits, const GumbelDraw& in, const BlockBest<double>& out,
                   std::int64_t num_rows, std::int64_t num_blocks);

}  // namespace pyvllm_pp::kernels
