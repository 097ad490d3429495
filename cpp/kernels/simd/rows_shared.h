#pragma once

// What rows_body.h needs that is not of one instruction set.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "../random.h"
#include "isa.h"
#include "rows.h"

namespace pyvllm_pp::kernels {

namespace baseline {
extern const InstructionSet kInstructionSet;
}
#if PYVLLM_PP_X86
namespace avx2 {
extern const InstructionSet kInstructionSet;
}
namespace avx512 {
extern const InstructionSet kInstructionSet;
}
#endif

}  // namespace pyvllm_pp::kernels
