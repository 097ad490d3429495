#pragma once

/// Compiling a part of a file for another instruction set, with any compiler that can. Headers of
/// the standard library come before that part: code that other files share must run anywhere.
#if defined(__x86_64__) && defined(__GNUC__)
#define PYVLLM_PP_X86 1
#else
#define PYVLLM_PP_X86 0
#endif

#define PYVLLM_PP_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define PYVLLM_PP_BEGIN_TARGET(features) \
  PYVLLM_PP_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define PYVLLM_PP_END_TARGET PYVLLM_PP_PRAGMA(clang attribute pop)
#else
#define PYVLLM_PP_BEGIN_TARGET(features) \
  PYVLLM_PP_PRAGMA(GCC push_options) PYVLLM_PP_PRAGMA(GCC target(features))
#define PYVLLM_PP_END_TARGET PYVLLM_PP_PRAGMA(GCC pop_options)
#endif

/// For functions that pass vectors and are shared by instruction sets, whose calls differ.
#define PYVLLM_PP_INLINE inline __attribute__((always_inline))
