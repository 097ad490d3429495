#include "rows_shared.h"

#define PYVLLM_PP_ISA baseline
#include "rows_body.h"
