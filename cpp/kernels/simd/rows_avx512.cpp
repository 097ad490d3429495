#include "rows_shared.h"

#if PYVLLM_PP_X86
PYVLLM_PP_BEGIN_TARGET("avx512f,avx512bw,avx512dq,avx512vl")
#define PYVLLM_PP_ISA avx512
#include "rows_body.h"
PYVLLM_PP_END_TARGET
#endif
