#include "rows_shared.h"

#if PYVLLM_PP_X86
PYVLLM_PP_BEGIN_TARGET("avx2")
#define PYVLLM_PP_ISA avx2
#include "rows_body.h"
PYVLLM_PP_END_TARGET
#endif
