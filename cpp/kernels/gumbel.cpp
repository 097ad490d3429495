#include "gumbel.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "random.h"
#include "simd/rows.h"

namespace pyvllm_pp::kernels {
namespace {

constexpr std::string_view kGumbel = "gumbel_sample";
// Keeps a draft's noise apart from that of its verification.
constexpr std::int64_t kDraftSalt = 0x4000'0000;

template <typename Value>
struct Pick {
  std::int64_t index;
  Value value;
};

/// One row's place in its request's stream.
struct Draw {
  std::int64_t seed = 0;
  std::int64_t position = 0;
  float temperature = 0.0F;
  bool is_scaled = true;

  [[nodiscard]] float divisor() const {
    return is_scaled || temperature == 0.0F ? 1.0F : temperature;
  }
};

Draw draw_of(const GumbelDraw& in, std::int64_t row) {
  const auto slot = in.idx_mapping[row];
  if (slot < 0) {
    return {};
  }
  return {.seed = in.seeds[slot],
          .position = in.positions[row] + (in.is_drafting ? kDraftSalt : 0),
          .temperature = in.temperature[as_size(slot)],
          .is_scaled = !in.apply_temperature};
}

template <typename T>
Pick<float> pick(const T* block, std::int64_t size, std::int64_t first, const Draw& draw, float) {
  const auto& ops = row_ops<T>();
  const auto best = draw.temperature == 0.0F
                        ? ops.argmax(block, size)
                        : ops.gumbel_argmax(block, size, draw.divisor(),
                                            {.seed = draw.seed,
                                             .position = draw.position,
                                             .first_token = static_cast<std::uint32_t>(first)});
  return {best.index, best.value};
}

/// A uniform number in (0, 1) from 53 bits.
double uniform64(const Draw& draw, std::uint32_t token) {
  constexpr std::uint32_t kHighDomain = 0x9e3779b9U;
  constexpr double kUnit = 0x1p-53;
  const auto low = murmur_finish(murmur_prefix(draw.seed, draw.position), token);
  const auto high = murmur_finish(murmur_prefix(draw.seed, draw.position, kHighDomain), token);
  const auto bits = (static_cast<std::uint64_t>(high) << 32U | low) >> 11U;
  const double uniform = (static_cast<double>(bits) + 0.5) * kUnit;
  return uniform == 1.0 ? uniform - kUnit : uniform;
}

template <typename T>
Pick<double> pick(const T* block, std::int64_t size, std::int64_t first, const Draw& draw, double) {
  Pick<double> best{-1, -HUGE_VAL};
  for (std::int64_t i = 0; i < size; ++i) {
    auto value = static_cast<double>(to_float(block[i]) / draw.divisor());
    if (draw.temperature != 0.0F) {
      value -= std::log(-std::log(uniform64(draw, static_cast<std::uint32_t>(first + i))));
    }
    // The first one wins among equal ones, -infinity included.
    if (value > best.value || (best.index < 0 && value == best.value)) {
      best = {i, value};
    }
  }
  return {std::max<std::int64_t>(best.index, 0), best.value};
}

void check_cache(const GumbelDraw& in, std::int64_t num_rows) {
  const auto& cache = in.cache;
  cache.source.check(kGumbel, num_rows);
  check_range(kGumbel, "logits_cache_col", 0, cache.has_column_per_row ? num_rows : 1,
              cache.column.size());
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const auto slot = in.idx_mapping[row];
    const auto column = cache.column[cache.has_column_per_row ? row : 0];
    if (slot >= 0) {
      check_range(kGumbel, "logits_cache",
                  slot * cache.request_stride + column * cache.column_stride,
                  cache.source.vocab_size, cache.size);
    }
  }
}

template <typename Value>
void check(const Logits& logits, const GumbelDraw& in, const BlockBest<Value>& out,
           std::int64_t num_rows, std::int64_t num_blocks) {
  logits.check(kGumbel, num_rows);
  if (in.block_size < 1 || num_blocks * in.block_size < logits.vocab_size) {
    fail(kGumbel, num_blocks, " blocks of ", in.block_size, " for a vocabulary of ",
         logits.vocab_size);
  }
  check_below(kGumbel, "expanded_idx_mapping", in.idx_mapping, num_rows,
              std::min(in.seeds.size(), size_of(in.temperature)));
  check_range(kGumbel, "pos", 0, num_rows, in.positions.size());
  if (num_rows > 0) {
    check_range(kGumbel, "local_argmax", (num_rows - 1) * out.token_stride, num_blocks,
                out.token.size());
    check_range(kGumbel, "local_max", (num_rows - 1) * out.value_stride, num_blocks,
                size_of(out.value));
  }
  if (in.cache.data != nullptr) {
    check_cache(in, num_rows);
  }
}

void keep_raw(const LogitsCache& cache, std::int64_t slot, std::int64_t row) {
  const auto column = cache.column[cache.has_column_per_row ? row : 0];
  const auto first = slot * cache.request_stride + column * cache.column_stride;
  cache.source.visit(row, [&]<typename T>(const T* raw) {
    std::memcpy(static_cast<T*>(cache.data) + first, raw,
                as_size(cache.source.vocab_size) * sizeof(T));
  });
}

template <typename Value>
void sample(const Logits& logits, const GumbelDraw& in, const BlockBest<Value>& out,
            std::int64_t num_rows, std::int64_t num_blocks) {
  check(logits, in, out, num_rows, num_blocks);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const auto draw = draw_of(in, row);
    for (std::int64_t block = 0; block < num_blocks; ++block) {
      const auto first = block * in.block_size;
      const auto size = std::min(in.block_size, logits.vocab_size - first);
      const auto best = logits.visit(
          row, [&](const auto* data) { return pick(data + first, size, first, draw, Value{}); });
      out.token.set(row * out.token_stride + block, first + best.index);
      out.value[as_size(row * out.value_stride + block)] = best.value;
    }
    if (in.cache.data != nullptr && in.idx_mapping[row] >= 0) {
      keep_raw(in.cache, in.idx_mapping[row], row);
    }
  }
}

}  // namespace

void gumbel_sample(const Logits& logits, const GumbelDraw& in, const BlockBest<float>& out,
                   std::int64_t num_rows, std::int64_t num_blocks) {
  sample(logits, in, out, num_rows, num_blocks);
}

void gumbel_sample(const Logits& logits, const GumbelDraw& in, const BlockBest<double>& out,
                   std::int64_t num_rows, std::int64_t num_blocks) {
  sample(logits, in, out, num_rows, num_blocks);
}

}  // namespace pyvllm_pp::kernels
