#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "floats.h"

/// Loops over a row of logits, compiled once an instruction set; the best one that the processor
/// has is picked at run time. All instruction sets give the same bits: each works on eight lanes,
/// adds in the same order and never fuses a multiplication with an addition.
///
/// NaN logits lose every comparison.
namespace pyvllm_pp::kernels {

/// Where a row's draw lies in its request's random stream.
struct Noise {
  std::int64_t seed;
  std::int64_t position;
  std::uint32_t first_token;  // number of the row's first logit
};

struct Best {
  float value;
  std::int64_t index;  // the first of equal ones
};

/// Penalties of one request; `prompt_bits` has one bit a token, from the row's first on.
struct Penalties {
  float repetition;
  float frequency;
  float presence;
  const std::int32_t* output_counts;
  const std::int32_t* prompt_bits;
};

template <typename T>
struct RowOps {
  /// The greatest logit, -infinity for none.
  float (*max)(const T* row, std::int64_t size);
  /// Sum of exp(logit - offset).
  double (*sum_exp)(const T* row, std::int64_t size, float offset);
  std::int64_t (*count_at_least)(const T* row, std::int64_t size, float bound);
  std::int64_t (*count_nans)(const T* row, std::int64_t size);
  /// The greatest logit and its place; {-infinity, 0} where all are NaN.
  Best (*argmax)(const T* row, std::int64_t size);
  /// As `argmax`, of logit / temperature + Gumbel noise.
  Best (*gumbel_argmax)(const T* row, std::int64_t size, float temperature, const Noise& noise);
  void (*divide)(T* row, std::int64_t size, float divisor);
  /// Logits below `bound` become -infinity.
  void (*mask_below)(T* row, std::int64_t size, float bound);
  void (*penalize)(T* row, std::int64_t size, const Penalties& penalties);
};

/// Loops of one instruction set.
struct InstructionSet {
  std::string_view name;
  RowOps<float> float32;
  RowOps<BFloat16> bfloat16;
  RowOps<Float16> float16;
};

/// What this processor can run, the best one last.
[[nodiscard]] std::span<const InstructionSet* const> instruction_sets();

template <typename T>
[[nodiscard]] const RowOps<T>& row_ops();

}  // namespace pyvllm_pp::kernels
