#include "logits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "simd/rows.h"

namespace pyvllm_pp::kernels {
namespace {

constexpr std::string_view kTemperature = "temperature";
constexpr std::string_view kMinP = "min_p";
constexpr std::string_view kGrammar = "apply_grammar_bitmask";

float at(Reals values, std::int64_t i) { return values[as_size(i)]; }

}  // namespace

void Logits::check(std::string_view kernel, std::int64_t num_rows) const {
  const bool is_float =
      type == ElementType::float32 || type == ElementType::bfloat16 || type == ElementType::float16;
  if (!is_float) {
    fail(kernel, "logits are ", name_of(type), ", expected float32, bfloat16 or float16");
  }
  if (num_rows > 0) {
    check_range(kernel, "logits", (num_rows - 1) * stride, vocab_size, size);
  }
}

void apply_temperature(const Logits& logits, const Ints& idx_mapping, Reals temperature,
                       std::int64_t num_rows) {
  logits.check(kTemperature, num_rows);
  check_below(kTemperature, "idx_mapping", idx_mapping, num_rows, size_of(temperature));
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const auto slot = idx_mapping[row];
    const float divisor = slot < 0 ? 1.0F : at(temperature, slot);
    if (divisor != 0.0F && divisor != 1.0F) {
      logits.visit(
          row, [&]<typename T>(T* data) { row_ops<T>().divide(data, logits.vocab_size, divisor); });
    }
  }
}

void apply_min_p(const Logits& logits, const Ints& idx_mapping, Reals min_p,
                 std::int64_t num_rows) {
  logits.check(kMinP, num_rows);
  check_below(kMinP, "idx_mapping", idx_mapping, num_rows, size_of(min_p));
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const auto slot = idx_mapping[row];
    const float share = slot < 0 ? 0.0F : at(min_p, slot);
    if (share != 0.0F) {
      logits.visit(row, [&]<typename T>(T* data) {
        const auto& ops = row_ops<T>();
        const float best = ops.max(data, logits.vocab_size);
        ops.mask_below(data, logits.vocab_size, best + std::log(share));
      });
    }
  }
}

namespace {

template <typename T>
void mask_zero_bits(T* row, std::int64_t vocab_size, std::span<const std::int32_t> words) {
  const auto masked = from_float<T>(-kInfinity);
  const auto num_words = std::min((vocab_size + 31) / 32, size_of(words));
  for (std::int64_t i = 0; i < num_words; ++i) {
    auto zeros = ~static_cast<std::uint32_t>(words[as_size(i)]);
    for (; zeros != 0; zeros &= zeros - 1) {
      const auto token = i * 32 + std::countr_zero(zeros);
      if (token < vocab_size) {
        row[token] = masked;
      }
    }
  }
}

/// Row of logits of a mask, or -1 where that position has none.
std::int64_t logits_row(const GrammarMask& in, std::int64_t mask) {
  const auto request = in.rows[mask] / in.positions_per_request;
  const auto position = in.rows[mask] % in.positions_per_request;
  const auto first = in.cu_num_logits[request];
  return position < in.cu_num_logits[request + 1] - first ? first + position : -1;
}

}  // namespace

void apply_grammar_bitmask(const Logits& logits, const GrammarMask& in, std::int64_t num_masks) {
  if (in.positions_per_request < 1) {
    fail(kGrammar, "MASK_STRIDE is ", in.positions_per_request, ", expected 1 or more");
  }
  check_below(kGrammar, "logits_indices", in.rows, num_masks,
              (in.cu_num_logits.size() - 1) * in.positions_per_request);
  check_range(kGrammar, "bitmask", 0, num_masks * in.bits_stride, size_of(in.bits));
  for (std::int64_t mask = 0; mask < num_masks; ++mask) {
    check_range(kGrammar, "logits_indices", in.rows[mask], 0,
                in.cu_num_logits.size() * in.positions_per_request);
    const auto row = logits_row(in, mask);
    logits.check(kGrammar, row + 1);
  }
  for (std::int64_t mask = 0; mask < num_masks; ++mask) {
    const auto row = logits_row(in, mask);
    if (row >= 0) {
      const auto words = in.bits.subspan(as_size(mask * in.bits_stride), as_size(in.bits_stride));
      logits.visit(row, [&](auto* data) { mask_zero_bits(data, logits.vocab_size, words); });
    }
  }
}

}  // namespace pyvllm_pp::kernels
