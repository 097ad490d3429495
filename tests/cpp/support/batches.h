#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <span>
#include <valarray>
#include <vector>

#include "pyvllm_pp/batch.h"
#include "pyvllm_pp/plan.h"

/// Batches that own their arrays, for tests and fuzzers.
namespace pyvllm_pp::testing {

inline std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

/// Contiguous bools, which `std::vector<bool>` is not.
class Bools {
 public:
  Bools() = default;
  explicit Bools(const std::vector<int>& values) : values_(values.size()) {
    std::ranges::transform(values, std::begin(values_), [](int value) { return value != 0; });
  }
  Bools(std::initializer_list<int> values) : Bools(std::vector<int>(values)) {}

  [[nodiscard]] std::span<const bool> span() const { return {std::begin(values_), values_.size()}; }

 private:
  std::valarray<bool> values_;
};

struct Request {
  std::int32_t num_scheduled;
  std::int32_t num_computed = 0;
  std::int32_t prefill_len = 0;  // more than num_computed: the request is prefilling
};

inline Request decode(std::int32_t num_computed = 9) { return {1, num_computed, num_computed}; }
inline Request prompt(std::int32_t length) { return {length, 0, length}; }
inline Request chunk(std::int32_t length, std::int32_t num_computed, std::int32_t prefill_len) {
  return {length, num_computed, prefill_len};
}

/// A global batch; its arrays are public, so that a test can break one.
struct OwnedBatch {
  std::vector<std::int32_t> num_scheduled_tokens;
  Bools is_prefilling;
  std::vector<std::int32_t> query_start_loc{0};
  std::vector<std::int32_t> num_computed_tokens;
  std::vector<std::int32_t> prefill_len;
  std::vector<std::int64_t> idx_mapping;

  OwnedBatch() = default;
  /// Slots count down from the number of requests, so that no slot is its row.
  explicit OwnedBatch(const std::vector<Request>& requests) {
    std::vector<int> prefilling;
    for (const auto& request : requests) {
      num_scheduled_tokens.push_back(request.num_scheduled);
      query_start_loc.push_back(query_start_loc.back() + request.num_scheduled);
      num_computed_tokens.push_back(request.num_computed);
      prefill_len.push_back(request.prefill_len);
      prefilling.push_back(request.num_computed < request.prefill_len ? 1 : 0);
      idx_mapping.push_back(static_cast<std::int64_t>(requests.size() - idx_mapping.size()));
    }
    is_prefilling = Bools(prefilling);
  }

  [[nodiscard]] ScheduledView scheduled() const {
    return {.num_scheduled_tokens = num_scheduled_tokens,
            .is_prefilling = is_prefilling.span(),
            .num_computed_tokens = num_computed_tokens};
  }
  [[nodiscard]] BatchView view() const {
    return {.scheduled = scheduled(),
            .query_start_loc = query_start_loc,
            .num_computed_tokens = num_computed_tokens,
            .prefill_len = prefill_len,
            .idx_mapping = idx_mapping};
  }
  [[nodiscard]] std::int32_t num_tokens() const { return query_start_loc.back(); }
};

/// Decodes, drafts, prompts, tiny prompts, continued prompts and rows without tokens, mixed.
inline std::vector<Request> random_requests(std::mt19937& random, std::int32_t num_reqs,
                                            std::int32_t longest) {
  const auto draw = [&random](std::int32_t low, std::int32_t high) {
    return std::uniform_int_distribution<std::int32_t>(low, high)(random);
  };
  std::vector<Request> requests;
  for (std::int32_t i = 0; i < num_reqs; ++i) {
    const auto computed = draw(1, 300);
    switch (draw(0, 5)) {
      case 0:
        requests.push_back(decode(computed));
        break;
      case 1:
        requests.push_back({draw(2, 5), computed, computed});
        break;
      case 2:
        requests.push_back(prompt(draw(1, longest)));
        break;
      case 3:
        requests.push_back(prompt(draw(1, 20)));
        break;
      case 4:
        requests.push_back(chunk(draw(1, longest), computed, computed + draw(1, 2 * longest)));
        break;
      default:
        requests.push_back({0, computed, draw(0, 2 * computed)});
        break;
    }
  }
  return requests;
}

constexpr BatchLimits kLimits{.max_num_reqs = 64, .max_num_tokens = 4096};

inline PlanConfig pcp(std::int32_t pcp_size, BatchLimits limits = kLimits) {
  return {.pcp_size = pcp_size, .limits = limits};
}

inline PlanConfig pcp_with_dcp(std::int32_t pcp_size, std::int32_t dcp_size) {
  return {.pcp_size = pcp_size,
          .dcp_size = dcp_size,
          .shard_decode_requests = false,
          .limits = kLimits};
}

}  // namespace pyvllm_pp::testing
