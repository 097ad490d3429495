#pragma once

#include <cstdint>
#include <span>

namespace pyvllm_pp {

/// As `write_run`, at the width of the machine's vectors.
void write_long_run(std::span<std::int64_t> run, std::int64_t first);

/// `first`, `first + 1`, ...: what every index table consists of.
inline void write_run(std::span<std::int64_t> run, std::int64_t first) {
  if (run.size() == 1) {  // a decode
    run.front() = first;
  } else {
    write_long_run(run, first);
  }
}

}  // namespace pyvllm_pp
