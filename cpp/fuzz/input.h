#pragma once

#include <cstdint>
#include <iostream>
#include <span>
#include <string_view>

/// What the fuzz targets share: values from bytes, and a loud end for a broken invariant.
namespace pyvllm_pp::fuzz {

/// Reads small values off the fuzzer's bytes; zeros once they are used up.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : bytes_(data, size) {}

  [[nodiscard]] bool is_empty() const { return bytes_.empty(); }

  std::uint8_t byte() {
    if (bytes_.empty()) {
      return 0;
    }
    const auto value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value;
  }

  /// A value in [low, high].
  std::int32_t in(std::int32_t low, std::int32_t high) {
    const auto wide = static_cast<std::uint32_t>(byte() << 8U) | byte();
    return low + static_cast<std::int32_t>(wide % static_cast<std::uint32_t>(high - low + 1));
  }

  /// Mostly a small value, now and then any that fits.
  std::int32_t any() {
    if (byte() != 0xff) {
      return in(-2, 300);
    }
    std::uint32_t word = 0;
    for (int i = 0; i < 4; ++i) {
      word = word << 8U | byte();
    }
    return static_cast<std::int32_t>(word);
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

/// A broken invariant is a finding, as a crash is.
inline void require(bool holds, std::string_view rule) {
  if (!holds) {
    std::cerr << "BROKEN RULE: " << rule << '\n';
    __builtin_trap();
  }
}

}  // namespace pyvllm_pp::fuzz
