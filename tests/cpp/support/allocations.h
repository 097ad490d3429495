#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

/// Counts the allocations of a program. Include in one of its files only: it replaces
/// `operator new`. Not inlined, so that compilers see matching pairs.
namespace pyvllm_pp::testing {

inline std::int64_t num_allocations = 0;

}  // namespace pyvllm_pp::testing

[[gnu::noinline]] void* operator new(std::size_t size) {
  ++pyvllm_pp::testing::num_allocations;
  if (void* memory = std::malloc(size)) {
    return memory;
  }
  throw std::bad_alloc();
}

[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
