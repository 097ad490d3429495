#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/arrays.h"
#include "kernels/logits.h"

namespace pyvllm_pp::kernels {

using Narrow = std::vector<std::int32_t>;
using Wide = std::vector<std::int64_t>;

template <typename T>
Ints ints(std::vector<T>& values) {
  return {values.data(), static_cast<std::int64_t>(values.size())};
}

template <typename T>
IntRows rows(std::vector<T>& values, std::int64_t stride) {
  return {.flat = ints(values), .stride = stride};
}

using Floats = std::vector<float>;

/// Rows of `vocab_size` logits, one behind the other.
inline Logits logits_of(Floats& values, std::int64_t vocab_size) {
  return {.data = values.data(),
          .type = ElementType::float32,
          .size = size_of(values),
          .stride = vocab_size,
          .vocab_size = vocab_size};
}

/// Expects `call` to throw `std::invalid_argument` with `text` in its message.
template <typename Call>
void expect_refused(Call&& call, const std::string& text) {
  try {
    call();
    FAIL() << "expected a refusal with: " << text;
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

}  // namespace pyvllm_pp::kernels
