#pragma once

#include <cstdint>
#include <span>

#include "arrays.h"

namespace pyvllm_pp::kernels {

struct TopKTopP {
  float* logits;  // [num_rows, vocab_size], written
  std::int64_t num_rows;
  std::int64_t vocab_size;
  std::int64_t stride;
  Ints top_k;                    // [num_rows], or absent
  std::span<const float> top_p;  // [num_rows], or empty
  float mask_value;
};

/// Keeps of each row the `top_k` greatest logits, then of these the fewest whose probabilities
/// reach `top_p`, at least one; the rest becomes `mask_value`. Of equal logits the first ones stay.
/// NaN counts as -infinity, which is never kept, except that a row without any other logit, or
/// with +infinity under `top_p`, is left alone there.
/// Cost: linear in the vocabulary. Throws `std::invalid_argument` for a `top_k` below 1.
void apply_top_k_top_p(const TopKTopP& in);

}  // namespace pyvllm_pp::kernels
