#include "logprobs.h"

#include <algorithm>
#include <cmath>

#include "simd/rows.h"

namespace pyvllm_pp::kernels {
namespace {

constexpr std::string_view kSoftmax = "topk_log_softmax";
constexpr std::string_view kRanks = "ranks";
constexpr std::string_view kNans = "num_nans";
constexpr std::string_view kTokens = "fill_logprob_token_ids";

}  // namespace

void token_log_softmax(const Logits& logits, const IntRows& token_ids, std::int64_t num_tokens,
                       std::span<float> out, std::int64_t num_rows) {
  logits.check(kSoftmax, num_rows);
  check_range(kSoftmax, "output", 0, num_rows * num_tokens, size_of(out));
  for (std::int64_t row = 0; row < num_rows; ++row) {
    check_range(kSoftmax, "topk_ids", row * token_ids.stride, num_tokens, token_ids.flat.size());
    for (std::int64_t i = 0; i < num_tokens; ++i) {
      check_range(kSoftmax, "a row of logits", token_ids.at(row, i), 1, logits.vocab_size);
    }
  }
  for (std::int64_t row = 0; row < num_rows; ++row) {
    logits.visit(row, [&]<typename T>(const T* data) {
      const auto& ops = row_ops<T>();
      const float best = ops.max(data, logits.vocab_size);
      const auto log_sum = static_cast<float>(std::log(ops.sum_exp(data, logits.vocab_size, best)));
      for (std::int64_t i = 0; i < num_tokens; ++i) {
        const float logit = to_float(data[token_ids.at(row, i)]);
        out[as_size(row * num_tokens + i)] = logit - best - log_sum;
      }
    });
  }
}

void token_ranks(const Logits& logits, const Ints& token_ids, std::int64_t block_size,
                 const Ints& out, std::int64_t num_rows) {
  logits.check(kRanks, num_rows);
  if (block_size < 1) {
    fail(kRanks, "BLOCK_SIZE is ", block_size, ", expected 1 or more");
  }
  check_range(kRanks, "output", 0, num_rows, out.size());
  check_range(kRanks, "token_ids", 0, num_rows, token_ids.size());
  for (std::int64_t row = 0; row < num_rows; ++row) {
    check_range(kRanks, "a row of logits", token_ids[row], 1, logits.vocab_size);
  }
  const auto used = logits.vocab_size % block_size;
  const auto num_filled = used == 0 ? 0 : block_size - used;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    logits.visit(row, [&]<typename T>(const T* data) {
      const float own = to_float(data[token_ids[row]]);
      out.set(row, row_ops<T>().count_at_least(data, logits.vocab_size, own) +
                       (own == -kInfinity ? num_filled : 0));
    });
  }
}

void count_nan_logits(const Logits& logits, const Ints& out, std::int64_t num_rows) {
  logits.check(kNans, num_rows);
  check_range(kNans, "num_nans", 0, num_rows, out.size());
  for (std::int64_t row = 0; row < num_rows; ++row) {
    logits.visit(row, [&]<typename T>(const T* data) {
      out.set(row, row_ops<T>().count_nans(data, logits.vocab_size));
    });
  }
}

namespace {

/// Tokens of a row behind the sampled one.
struct Source {
  const IntRows& rows;
  std::int64_t row;
  std::int64_t count;
};

Source source_of(const LogprobTokens& in, std::int64_t row) {
  const auto slot = in.idx_mapping[row];
  const auto num_custom = slot < 0 ? 0 : in.num_custom[slot];
  return num_custom > 0 ? Source{in.custom, slot, std::min(num_custom, in.max_num_columns)}
                        : Source{in.best, row, std::min(in.num_best, in.max_num_columns)};
}

void check(const LogprobTokens& in, std::int64_t num_rows) {
  check_below(kTokens, "expanded_idx_mapping", in.idx_mapping, num_rows, in.num_custom.size());
  check_range(kTokens, "sampled_token_ids", 0, num_rows, in.sampled.size());
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const auto source = source_of(in, row);
    check_range(kTokens, "the tokens of a row", source.row * source.rows.stride, source.count,
                source.rows.flat.size());
    check_range(kTokens, "out_token_ids", row * in.token_ids.stride, 1 + source.count,
                in.token_ids.flat.size());
    check_range(kTokens, "out_valid_mask", row * in.valid_stride, 1 + source.count,
                size_of(in.valid));
  }
}

}  // namespace

void fill_logprob_tokens(const LogprobTokens& in, std::int64_t num_rows) {
  check(in, num_rows);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const auto source = source_of(in, row);
    in.token_ids.set(row, 0, in.sampled[row]);
    copy(source.rows.flat, source.row * source.rows.stride, in.token_ids.flat,
         row * in.token_ids.stride + 1, source.count);
    std::fill_n(in.valid.begin() + row * in.valid_stride, 1 + source.count, true);
  }
}

}  // namespace pyvllm_pp::kernels
