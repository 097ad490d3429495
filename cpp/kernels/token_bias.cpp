#include <algorithm>
#include <cmath>
#include <vector>

#include "logits.h"
#include "simd/rows.h"

namespace pyvllm_pp::kernels {
namespace {

constexpr std::string_view kBias = "bias";

/// A request's list of tokens, without those that the vocabulary does not have.
class TokenList {
 public:
  TokenList(const IntRows& lists, const Ints& counts, std::int64_t slot, std::int64_t vocab_size)
      : lists_(lists), slot_(slot), count_(counts[slot]), vocab_size_(vocab_size) {}

  [[nodiscard]] bool is_empty() const { return count_ <= 0; }

  template <typename Step>
  void for_each(Step&& step) const {
    for (std::int64_t i = 0; i < count_; ++i) {
      const auto token = lists_.at(slot_, i);
      if (token >= 0 && token < vocab_size_) {
        step(i, token);
      }
    }
  }

 private:
  const IntRows& lists_;
  std::int64_t slot_;
  std::int64_t count_;
  std::int64_t vocab_size_;
};

template <typename T>
struct Saved {
  std::int64_t token;
  T logit;
};

template <typename T>
class BiasedRow {
 public:
  BiasedRow(T* row, std::int64_t vocab_size, const TokenBias& in, std::int64_t slot)
      : row_(row), vocab_size_(vocab_size), in_(in), slot_(slot) {}

  void keep_allowed(std::vector<Saved<T>>& saved) {
    const TokenList allowed(in_.allowed, in_.num_allowed, slot_, vocab_size_);
    if (allowed.is_empty()) {
      return;
    }
    save(allowed, saved);
    std::fill_n(row_, vocab_size_, masked_);
    restore(saved);
  }

  void add_bias(std::vector<Saved<T>>& saved) {
    saved.clear();
    const TokenList biased(in_.biased, in_.num_biased, slot_, vocab_size_);
    // A token that is named twice counts once, as its last bias says.
    biased.for_each([&](std::int64_t i, std::int64_t token) {
      const float bias = in_.bias[as_size(slot_ * in_.bias_stride + i)];
      saved.push_back({token, from_float<T>(to_float(row_[token]) + bias)});
    });
    restore(saved);
  }

  void mask_stop_tokens(std::int64_t position, std::vector<Saved<T>>& saved) {
    const TokenList stop(in_.stop, in_.num_stop, slot_, vocab_size_);
    if (stop.is_empty() || position + 1 >= in_.min_lens[slot_]) {
      return;
    }
    save(stop, saved);
    stop.for_each([&](std::int64_t, std::int64_t token) { row_[token] = masked_; });
    const bool may_restore = in_.check_all_masked && in_.restore_when_all_masked[slot_] != 0;
    if (may_restore && row_ops<T>().max(row_, vocab_size_) == -kInfinity) {
      std::erase_if(saved, [](const Saved<T>& s) { return !std::isfinite(to_float(s.logit)); });
      restore(saved);
    }
  }

 private:
  const T masked_ = from_float<T>(-kInfinity);

  void save(const TokenList& tokens, std::vector<Saved<T>>& saved) const {
    saved.clear();
    tokens.for_each(
        [&](std::int64_t, std::int64_t token) { saved.push_back({token, row_[token]}); });
  }
  void restore(const std::vector<Saved<T>>& saved) {
    for (const auto& [token, logit] : saved) {
      row_[token] = logit;
    }
  }

  T* row_;
  std::int64_t vocab_size_;
  const TokenBias& in_;
  std::int64_t slot_;
};

void check_list(std::string_view name, const Ints& counts, std::int64_t slot, std::int64_t stride,
                std::int64_t size) {
  if (counts[slot] > 0) {
    check_range(kBias, name, slot * stride, counts[slot], size);
  }
}

void check(const Logits& logits, const TokenBias& in, std::int64_t num_rows) {
  logits.check(kBias, num_rows);
  const auto num_slots = std::min({in.num_allowed.size(), in.num_biased.size(), in.num_stop.size(),
                                   in.min_lens.size(), in.restore_when_all_masked.size()});
  check_below(kBias, "idx_mapping", in.idx_mapping, num_rows, num_slots);
  check_range(kBias, "pos", 0, num_rows, in.positions.size());
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const auto slot = in.idx_mapping[row];
    if (slot >= 0) {
      check_list("allowed_token_ids", in.num_allowed, slot, in.allowed.stride,
                 in.allowed.flat.size());
      check_list("bias_token_ids", in.num_biased, slot, in.biased.stride, in.biased.flat.size());
      check_list("bias", in.num_biased, slot, in.bias_stride, size_of(in.bias));
      check_list("stop_token_ids", in.num_stop, slot, in.stop.stride, in.stop.flat.size());
    }
  }
}

template <typename T>
void bias_row(T* row, std::int64_t vocab_size, const TokenBias& in, std::int64_t slot,
              std::int64_t position) {
  static thread_local std::vector<Saved<T>> saved;
  BiasedRow<T> biased(row, vocab_size, in, slot);
  biased.keep_allowed(saved);
  biased.add_bias(saved);
  biased.mask_stop_tokens(position, saved);
}

}  // namespace

void apply_token_bias(const Logits& logits, const TokenBias& in, std::int64_t num_rows) {
  check(logits, in, num_rows);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const auto slot = in.idx_mapping[row];
    if (slot >= 0) {
      logits.visit(
          row, [&](auto* data) { bias_row(data, logits.vocab_size, in, slot, in.positions[row]); });
    }
  }
}

}  // namespace pyvllm_pp::kernels
