#include "index_run.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define PYVLLM_PP_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PYVLLM_PP_CLONES
#endif

namespace pyvllm_pp {

namespace {

/// One body, compiled for several widths; the loader takes the machine's. Declared nowhere else:
/// clang makes no versions of a function that a header has already called.
PYVLLM_PP_CLONES void write_counting(std::int64_t* out, std::int64_t count, std::int64_t first) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = first + i;
  }
}

}  // namespace

void write_long_run(std::span<std::int64_t> run, std::int64_t first) {
  write_counting(run.data(), static_cast<std::int64_t>(run.size()), first);
}

}  // namespace pyvllm_pp
