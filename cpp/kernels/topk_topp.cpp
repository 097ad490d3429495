#include "topk_topp.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "simd/rows.h"

namespace pyvllm_pp::kernels {
namespace {

constexpr std::string_view kRoom = "topk_topp";

/// A token in the order in which tokens are kept: greater logit first, then lower number.
struct Candidate {
  float logit;
  std::int32_t token;

  [[nodiscard]] bool operator<(const Candidate& other) const {
    return logit != other.logit ? logit > other.logit : token < other.token;
  }
};
using Candidates = std::vector<Candidate>;

/// The row's logits from `bound` on, but not -infinity and NaN.
void collect(std::span<const float> row, float bound, Candidates& out) {
  out.resize(row.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    // Written always, kept sometimes: no branch to mispredict.
    out[count] = {row[i], static_cast<std::int32_t>(i)};
    count += static_cast<std::size_t>(row[i] >= bound && row[i] > -kInfinity);
  }
  out.resize(count);
}

/// A logit that at least `k` tokens reach, near the k-th greatest where `k` is small.
float bound_of_top_k(std::span<const float> row, std::int64_t k, std::vector<float>& maxima) {
  constexpr std::size_t kChunk = 64;
  const auto num_chunks = (row.size() + kChunk - 1) / kChunk;
  if (as_size(k) > num_chunks) {
    return -kInfinity;
  }
  maxima.clear();
  for (std::size_t start = 0; start < row.size(); start += kChunk) {
    const auto size = std::min(kChunk, row.size() - start);
    maxima.push_back(row_ops<float>().max(row.data() + start, static_cast<std::int64_t>(size)));
  }
  const auto kth = maxima.begin() + k - 1;
  std::nth_element(maxima.begin(), kth, maxima.end(), std::greater<>());
  return *kth;
}

void keep_first(Candidates& candidates, std::int64_t count) {
  if (count < size_of(candidates)) {
    std::nth_element(candidates.begin(), candidates.begin() + count, candidates.end());
    candidates.resize(as_size(count));
  }
}

/// Keeps the fewest first candidates whose weights reach `needed`, in linear time: of each half
/// that may hold the end only one is looked at further.
void keep_mass(Candidates& candidates, double needed, float offset) {
  const auto mass = [offset](const Candidate* from, const Candidate* to) {
    double sum = 0;
    for (; from != to; ++from) {
      sum += std::exp(static_cast<double>(from->logit - offset));
    }
    return sum;
  };
  auto* low = candidates.data();
  auto* high = low + candidates.size();
  while (high - low > 1) {
    auto* middle = low + (high - low) / 2;
    std::nth_element(low, middle, high);
    const double upper = mass(low, middle);
    if (upper >= needed) {
      high = middle;
    } else {
      needed -= upper;
      low = middle;
    }
  }
  candidates.resize(static_cast<std::size_t>(low + 1 - candidates.data()));
}

/// Sum of the row's weights, in which NaN logits have none.
double mass_of(std::span<const float> row, float best) {
  const auto size = size_of(row);
  double total = row_ops<float>().sum_exp(row.data(), size, best);
  if (std::isnan(total)) {
    total = 0;
    for (const float logit : row) {
      total += std::isnan(logit) ? 0.0 : std::exp(static_cast<double>(logit - best));
    }
  }
  return total;
}

/// One row's work; memory is kept from row to row.
class Row {
 public:
  void apply(std::span<float> row, std::int64_t top_k, float top_p, float mask_value) {
    const auto vocab_size = size_of(row);
    const bool limits_count = top_k < vocab_size;
    const bool limits_mass = top_p < 1.0F;
    if (!limits_count && !limits_mass) {
      return;
    }
    const float best = row_ops<float>().max(row.data(), vocab_size);
    if (best == -kInfinity) {
      return;
    }
    if (limits_count) {
      collect(row, bound_of_top_k(row, top_k, maxima_), candidates_);
      keep_first(candidates_, top_k);
    } else {
      collect(row, bound_of_mass(row, top_p, best), candidates_);
    }
    if (limits_mass && best < kInfinity) {
      keep_mass(candidates_, needed_mass(row, limits_count, top_p, best), best);
    } else if (!limits_count) {
      return;
    }
    std::ranges::fill(row, mask_value);
    for (const auto& [logit, token] : candidates_) {
      row[as_size(token)] = logit;
    }
  }

 private:
  /// Tokens below it have together less than 1 - top_p.
  static float bound_of_mass(std::span<const float> row, float top_p, float best) {
    const double share =
        (1.0 - static_cast<double>(top_p)) * mass_of(row, best) / static_cast<double>(row.size());
    // A little lower: the sum is rounded.
    const double bound = static_cast<double>(best) + std::log(share) - 1e-3;
    return std::isfinite(bound) ? static_cast<float>(bound) : -kInfinity;
  }

  [[nodiscard]] double needed_mass(std::span<const float> row, bool limits_count, float top_p,
                                   float best) const {
    double total = 0;
    if (limits_count) {
      for (const auto& candidate : candidates_) {
        total += std::exp(static_cast<double>(candidate.logit - best));
      }
    } else {
      total = mass_of(row, best);
    }
    return static_cast<double>(top_p) * total;
  }

  Candidates candidates_;
  std::vector<float> maxima_;
};

}  // namespace

void apply_top_k_top_p(const TopKTopP& in) {
  for (std::int64_t row = 0; row < in.num_rows; ++row) {
    if (!in.top_k.is_absent() && in.top_k[row] < 1) {
      fail(kRoom, "k[", row, "] is ", in.top_k[row], ", expected 1 or more");
    }
  }
  static thread_local Row work;
  for (std::int64_t row = 0; row < in.num_rows; ++row) {
    const auto top_k = in.top_k.is_absent() ? in.vocab_size : in.top_k[row];
    const auto top_p = in.top_p.empty() ? 1.0F : in.top_p[as_size(row)];
    work.apply({in.logits + row * in.stride, as_size(in.vocab_size)}, top_k, top_p, in.mask_value);
  }
}

}  // namespace pyvllm_pp::kernels
