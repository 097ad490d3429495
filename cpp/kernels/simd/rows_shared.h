#pragma once

// What rows_body.h needs that is not of one instruction set.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numbers>

#include "../random.h"
#include "isa.h"
#include "rows.h"

namespace pyvllm_pp::kernels {

namespace baseline {
extern const InstructionSet loops;
}
#if PYVLLM_PP_X86
namespace avx2 {
extern const InstructionSet loops;
}
namespace avx512 {
extern const InstructionSet loops;
}
#endif

}  // namespace pyvllm_pp::kernels
