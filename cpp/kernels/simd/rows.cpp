#include "rows.h"

#include <vector>

#include "rows_shared.h"

namespace pyvllm_pp::kernels {
namespace {

std::vector<const InstructionSet*> supported() {
  std::vector<const InstructionSet*> sets{&baseline::loops};
#if PYVLLM_PP_X86
  if (__builtin_cpu_supports("avx2")) {
    sets.push_back(&avx2::loops);
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    sets.push_back(&avx512::loops);
  }
#endif
  return sets;
}

}  // namespace

std::span<const InstructionSet* const> instruction_sets() {
  static const auto sets = supported();
  return sets;
}

template <>
const RowOps<float>& row_ops<float>() {
  return instruction_sets().back()->float32;
}
template <>
const RowOps<BFloat16>& row_ops<BFloat16>() {
  return instruction_sets().back()->bfloat16;
}
template <>
const RowOps<Float16>& row_ops<Float16>() {
  return instruction_sets().back()->float16;
}

}  // namespace pyvllm_pp::kernels
