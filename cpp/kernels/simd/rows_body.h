// The loops of rows.h for one instruction set: PYVLLM_PP_ISA names it and its namespace.

#include "vector.h"

namespace pyvllm_pp::kernels::PYVLLM_PP_ISA {

inline float max_lane(Floats value) {
  float best = value[0];
  for (std::int64_t lane = 1; lane < kLanes; ++lane) {
    best = std::max(best, value[lane]);
  }
  return best;
}

template <typename T>
float max(const T* row, std::int64_t size) {
  Floats best = all(-kInfinity);
  for_each(row, size, -kInfinity, [&](std::int64_t, Floats x) { best = greater(x, best); });
  return max_lane(best);
}

template <typename T>
double sum_exp(const T* row, std::int64_t size, float offset) {
  // Short runs in float32, their sums in float64.
  constexpr std::int64_t kRun = 512;
  double total = 0;
  for (std::int64_t start = 0; start < size; start += kRun) {
    Floats sum = all(0.0F);
    for_each(row + start, std::min(kRun, size - start), -kInfinity,
             [&](std::int64_t, Floats x) { sum += exp(x - offset); });
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      total += static_cast<double>(sum[lane]);
    }
  }
  return total;
}

inline std::int64_t count(Signed negated) {
  std::int64_t total = 0;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    total -= negated[lane];
  }
  return total;
}

template <typename T>
std::int64_t count_at_least(const T* row, std::int64_t size, float bound) {
  Signed negated{};
  // The filler counts for no bound but -infinity.
  for_each(row, size, -kInfinity, [&](std::int64_t, Floats x) { negated += x >= bound; });
  const auto filled = bound == -kInfinity ? (kLanes - size % kLanes) % kLanes : 0;
  return count(negated) - filled;
}

template <typename T>
std::int64_t count_nans(const T* row, std::int64_t size) {
  Signed negated{};
  for_each(row, size, 0.0F, [&](std::int64_t, Floats x) { negated += x != x; });
  return count(negated);
}

template <typename T>
std::int64_t find(const T* row, std::int64_t size, float value) {
  for (std::int64_t i = 0; i < size; ++i) {
    if (to_float(row[i]) == value) {
      return i;
    }
  }
  return 0;
}

template <typename T>
Best argmax(const T* row, std::int64_t size) {
  const float value = max(row, size);
  return {value, find(row, size, value)};
}

/// Gumbel noise of eight uniform numbers, as vLLM's kernel computes it.
inline Floats gumbel(Floats uniform) {
  Floats series = all(1.0F / 8.0F);
  for (const float term :
       {1.0F / 7.0F, 1.0F / 6.0F, 1.0F / 5.0F, 1.0F / 4.0F, 1.0F / 3.0F, 1.0F / 2.0F, 1.0F}) {
    series = term + uniform * series;
  }
  const Floats rest = 1.0F - uniform;
  const Floats lowest = all(5.960464477539063e-08F);
  const Floats direct = log(greater(rest, lowest));
  const Floats log_rest = select(uniform < 0.25F, -uniform * series, direct);
  return -log(-log_rest);
}

/// At least the noise: -log(u) and one more binary order, from the exponent of u alone.
inline Floats gumbel_bound(Floats uniform) {
  const Words exponent = bits_of(uniform) >> 23U;
  return (128.0F - to_floats(reinterpret_cast<Signed>(exponent))) * std::numbers::ln2_v<float>;
}

template <typename T>
Best gumbel_argmax(const T* row, std::int64_t size, float temperature, const Noise& noise) {
  const auto prefix = all_words(murmur_prefix(noise.seed, noise.position));
  const Words lanes = {0, 1, 2, 3, 4, 5, 6, 7};
  Best best{-kInfinity, -1};
  for_each(row, size, -kInfinity, [&](std::int64_t i, Floats x) {
    const auto tokens = lanes + (noise.first_token + static_cast<std::uint32_t>(i));
    const auto word = murmur_finish(prefix, tokens);
    const auto high = to_floats(reinterpret_cast<Signed>(word >> 16U));
    const auto low = to_floats(reinterpret_cast<Signed>(word & 0xffffU));
    const Floats uniform = high * 0x1p-16F + (low + 0.5F) * 0x1p-32F;
    const Floats scaled = x / temperature;
    // Most logits cannot win whatever their noise.
    if (!any(scaled + gumbel_bound(uniform) > best.value)) {
      return;
    }
    const Floats noised = scaled + gumbel(uniform);
    for (std::int64_t lane = 0; lane < std::min(kLanes, size - i); ++lane) {
      if (noised[lane] > best.value) {
        best = {noised[lane], i + lane};
      }
    }
  });
  return best.index >= 0 ? best : Best{-kInfinity, find(row, size, -kInfinity)};
}

template <typename T>
void divide(T* row, std::int64_t size, float divisor) {
  transform(row, size, [&](std::int64_t, Floats x) { return x / divisor; });
}

template <typename T>
void mask_below(T* row, std::int64_t size, float bound) {
  transform(row, size,
            [&](std::int64_t, Floats x) { return select(x < bound, all(-kInfinity), x); });
}

inline Signed load_counts(const std::int32_t* from, std::int64_t size) {
  Signed counts{};
  std::memcpy(&counts, from, static_cast<std::size_t>(std::min(kLanes, size)) * sizeof(*from));
  return counts;
}

template <typename T>
void penalize(T* row, std::int64_t size, const Penalties& penalties) {
  const Words lanes = {0, 1, 2, 3, 4, 5, 6, 7};
  const Floats one = all(1.0F);
  transform(row, size, [&](std::int64_t i, Floats x) {
    const Signed counts = load_counts(penalties.output_counts + i, size - i);
    const Signed is_output = counts > 0;
    // Eight tokens share a word of bits: their first is a multiple of eight.
    const auto word = std::bit_cast<std::uint32_t>(penalties.prompt_bits[i / 32]);
    const Words bits = (all_words(word >> static_cast<std::uint32_t>(i % 32)) >> lanes) & 1U;
    const Signed is_known = is_output | -reinterpret_cast<Signed>(bits);
    const Floats scale = select(is_known, all(penalties.repetition), one);
    Floats y = x * select(x > 0.0F, one / scale, scale);
    y = y - penalties.frequency * to_floats(counts);
    return y - penalties.presence * to_floats(-is_output);
  });
}

template <typename T>
constexpr RowOps<T> kOps{.max = &max<T>,
                         .sum_exp = &sum_exp<T>,
                         .count_at_least = &count_at_least<T>,
                         .count_nans = &count_nans<T>,
                         .argmax = &argmax<T>,
                         .gumbel_argmax = &gumbel_argmax<T>,
                         .divide = &divide<T>,
                         .mask_below = &mask_below<T>,
                         .penalize = &penalize<T>};

#define PYVLLM_PP_STRING(name) #name
#define PYVLLM_PP_NAME(name) PYVLLM_PP_STRING(name)
// One namespace an inclusion.
// NOLINTNEXTLINE(misc-definitions-in-headers)
const InstructionSet loops{.name = PYVLLM_PP_NAME(PYVLLM_PP_ISA),
                           .float32 = kOps<float>,
                           .bfloat16 = kOps<BFloat16>,
                           .float16 = kOps<Float16>};

}  // namespace pyvllm_pp::kernels::PYVLLM_PP_ISA
