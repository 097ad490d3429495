// Eight lanes of float32 and what logits need of them. Included by each instruction set's source
// into a namespace of its own, so that no two share code; hence no include guard.

namespace pyvllm_pp::kernels::PYVLLM_PP_ISA {

constexpr std::int64_t kLanes = 8;
// ln 2 in two parts, the first of few bits: its products with whole numbers are exact.
constexpr float kLn2High = 0x1.63p-1F;  // NOLINT(modernize-use-std-numbers)
constexpr float kLn2Low = -2.12194440e-4F;
using Floats = float __attribute__((vector_size(32)));
using Words = std::uint32_t __attribute__((vector_size(32)));
using Signed = std::int32_t __attribute__((vector_size(32)));  // also masks: 0 or -1
using Halves = std::uint16_t __attribute__((vector_size(16)));

PYVLLM_PP_INLINE Floats all(float value) { return value - Floats{}; }
PYVLLM_PP_INLINE Words all_words(std::uint32_t value) { return value - Words{}; }

PYVLLM_PP_INLINE Words bits_of(Floats value) { return reinterpret_cast<Words>(value); }
PYVLLM_PP_INLINE Floats floats_of(Words bits) { return reinterpret_cast<Floats>(bits); }
PYVLLM_PP_INLINE Floats to_floats(Signed value) { return __builtin_convertvector(value, Floats); }

PYVLLM_PP_INLINE Floats select(Signed mask, Floats yes, Floats no) { return mask ? yes : no; }
/// `yes` where it is greater, so that a NaN there loses.
PYVLLM_PP_INLINE Floats greater(Floats yes, Floats no) { return yes > no ? yes : no; }

PYVLLM_PP_INLINE bool any(Signed mask) {
  std::array<std::uint64_t, 4> parts;
  std::memcpy(parts.data(), &mask, sizeof(parts));
  return (parts[0] | parts[1] | parts[2] | parts[3]) != 0;
}

PYVLLM_PP_INLINE Floats load(const float* from) {
  Floats value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
PYVLLM_PP_INLINE Words load_halves(const void* from) {
  Halves value;
  std::memcpy(&value, from, sizeof(value));
  return __builtin_convertvector(value, Words);
}
PYVLLM_PP_INLINE Floats load(const BFloat16* from) { return floats_of(load_halves(from) << 16U); }
PYVLLM_PP_INLINE Floats load(const Float16* from) {
  const Words half = load_halves(from);
  const Words sign = (half & 0x8000U) << 16U;
  const Words magnitude = (half & 0x7fffU) << 13U;
  const Words scaled = bits_of(floats_of(magnitude) * 0x1p112F);
  const Signed is_finite = (half & 0x7c00U) != 0x7c00U;
  return floats_of(sign | (is_finite ? scaled : magnitude | 0x7f800000U));
}

PYVLLM_PP_INLINE void store(float* to, Floats value) { std::memcpy(to, &value, sizeof(value)); }
template <typename T>
PYVLLM_PP_INLINE void store(T* to, Floats value) {
  for (std::int64_t i = 0; i < kLanes; ++i) {
    to[i] = from_float<T>(value[i]);
  }
}

/// Calls `step(i, lanes)` for eight logits at a time; the last call may have fewer, the rest of its
/// lanes being `filler`.
template <typename T, typename Step>
PYVLLM_PP_INLINE void for_each(const T* row, std::int64_t size, float filler, Step&& step) {
  std::int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    step(i, load(row + i));
  }
  if (i < size) {
    Floats rest = all(filler);
    for (std::int64_t lane = 0; lane < size - i; ++lane) {
      rest[lane] = to_float(row[i + lane]);
    }
    step(i, rest);
  }
}

/// As `for_each`; stores what `step` returns.
template <typename T, typename Step>
PYVLLM_PP_INLINE void transform(T* row, std::int64_t size, Step&& step) {
  std::int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    store(row + i, step(i, load(row + i)));
  }
  if (i < size) {
    std::array<T, kLanes> rest{};
    std::memcpy(rest.data(), row + i, static_cast<std::size_t>(size - i) * sizeof(T));
    store(rest.data(), step(i, load(rest.data())));
    std::memcpy(row + i, rest.data(), static_cast<std::size_t>(size - i) * sizeof(T));
  }
}

/// Natural logarithm of positive normal numbers, within two units in the last place.
PYVLLM_PP_INLINE Floats log(Floats value) {
  constexpr std::uint32_t kSqrtHalf = 0x3f3504f3U;
  // value = fraction * 2^exponent, fraction from sqrt(1/2) to sqrt(2).
  const Words shifted = bits_of(value) - kSqrtHalf;
  const Floats exponent = to_floats(reinterpret_cast<Signed>(shifted) >> 23);
  const Floats x = floats_of((shifted & 0x007fffffU) + kSqrtHalf) - 1.0F;
  const Floats square = x * x;
  Floats series = x * 7.0376836292e-2F - 1.1514610310e-1F;
  series = series * x + 1.1676998740e-1F;
  series = series * x - 1.2420140846e-1F;
  series = series * x + 1.4249322787e-1F;
  series = series * x - 1.6668057665e-1F;
  series = series * x + 2.0000714765e-1F;
  series = series * x - 2.4999993993e-1F;
  series = series * x + 3.3333331174e-1F;
  Floats rest = series * x * square + exponent * kLn2Low;
  rest = rest - square * 0.5F;
  return x + rest + exponent * kLn2High;
}

/// exp of numbers up to 0, within two units in the last place; 0 below -87.
PYVLLM_PP_INLINE Floats exp(Floats value) {
  constexpr float kLowest = -87.0F;
  constexpr float kMagic = 0x1.8p23F;  // adding it rounds to an integer
  const Signed is_small = value < kLowest;
  const Floats clamped = is_small ? all(kLowest) : value;
  const Floats count = (clamped * std::numbers::log2e_v<float> + kMagic) - kMagic;
  const Floats x = (clamped - count * kLn2High) - count * kLn2Low;
  Floats series = x * 1.9875691500e-4F + 1.3981999507e-3F;
  series = series * x + 8.3334519073e-3F;
  series = series * x + 4.1665795894e-2F;
  series = series * x + 1.6666665459e-1F;
  series = series * x + 5.0000001201e-1F;
  series = series * (x * x) + x + 1.0F;
  const Signed power = __builtin_convertvector(count, Signed) << 23;
  const Floats result = floats_of(bits_of(series) + reinterpret_cast<Words>(power));
  const Signed is_nan = value != value;
  return is_nan ? value : (is_small ? all(0.0F) : result);
}

}  // namespace pyvllm_pp::kernels::PYVLLM_PP_ISA
