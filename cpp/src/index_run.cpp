#include "index_run.h"

/// One body, compiled for several widths; the loader takes the machine's.
#if defined(__x86_64__) && defined(__GNUC__)
#define PYVLLM_PP_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PYVLLM_PP_CLONES
#endif

namespace pyvllm_pp {

PYVLLM_PP_CLONES void write_long_run(std::span<std::int64_t> run, std::int64_t first) {
  auto* const out = run.data();
  const auto count = static_cast<std::int64_t>(run.size());
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = first + i;
  }
}

}  // namespace pyvllm_pp
