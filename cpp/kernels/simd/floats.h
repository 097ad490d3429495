#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

/// Float types of logits: kernels compute in float32 and round to nearest even when they store.
namespace pyvllm_pp::kernels {

struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline float to_float(float value) { return value; }
inline float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}
inline float to_float(Float16 value) {
  const auto sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16U;
  const auto magnitude = static_cast<std::uint32_t>(value.bits & 0x7fffU) << 13U;
  // The exponent's bias grows from 15 to 127; subnormal numbers become normal ones.
  const auto scaled = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
  const bool is_finite = (value.bits & 0x7c00U) != 0x7c00U;
  return std::bit_cast<float>(sign | (is_finite ? scaled : magnitude | 0x7f800000U));
}

template <typename T>
T from_float(float value);
template <>
inline float from_float<float>(float value) {
  return value;
}
template <>
inline BFloat16 from_float<BFloat16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) {
    return {static_cast<std::uint16_t>(bits >> 16U | 0x40U)};
  }
  return {static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U)};
}
template <>
inline Float16 from_float<Float16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16U & 0x8000U);
  const auto magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {
    return {static_cast<std::uint16_t>(sign | 0x7e00U)};
  }
  if (magnitude >= 0x477ff000U) {  // rounds to 65,520 or more
    return {static_cast<std::uint16_t>(sign | 0x7c00U)};
  }
  if (magnitude < 0x38800000U) {  // subnormal: the addition rounds to its last place
    const auto shifted = std::bit_cast<float>(magnitude) + 0.5F;
    const auto fraction =
        std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5F);
    return {static_cast<std::uint16_t>(sign | fraction)};
  }
  const auto rebased = magnitude - (112U << 23U);
  return {static_cast<std::uint16_t>(sign | (rebased + 0xfffU + (rebased >> 13U & 1U)) >> 13U)};
}

}  // namespace pyvllm_pp::kernels
