#pragma once

#include "input.h"
#include "support/batches.h"

/// Configurations and batches from a fuzzer's bytes, valid ones and broken ones.
namespace pyvllm_pp::fuzz {

constexpr BatchLimits kLimits{.max_num_reqs = 12, .max_num_tokens = 1024};

inline PlanConfig config_from(Input& input) {
  const auto pcp_size = input.in(1, 8);
  switch (input.in(0, 3)) {
    case 0:
      return {.pcp_size = pcp_size,
              .dcp_size = 2 * pcp_size,
              .shard_decode_requests = false,
              .limits = kLimits};
    case 1:
      return {.pcp_size = pcp_size, .partition = Partition::balanced, .limits = kLimits};
    case 2:
      return {.pcp_size = pcp_size, .shard_decode_requests = false, .limits = kLimits};
    default:
      return {.pcp_size = pcp_size, .limits = kLimits};
  }
}

/// Any values at all; one batch in four has an array of another length.
inline testing::OwnedBatch batch_from(Input& input) {
  std::vector<testing::Request> requests;
  const auto num_reqs = input.in(0, kLimits.max_num_reqs + 1);
  for (std::int32_t i = 0; i < num_reqs; ++i) {
    requests.push_back(
        {input.in(0, 3) == 0 ? input.any() : input.in(0, 40), input.any(), input.any()});
  }
  for (auto& request : requests) {
    // The running sum is made here; sums past int32 belong to check_scheduled, in gtest.
    request.num_scheduled = std::min(request.num_scheduled, 1 << 20);
    request.num_scheduled = std::max(request.num_scheduled, -(1 << 20));
  }
  testing::OwnedBatch batch(requests);
  switch (input.in(0, 15)) {
    case 0:
      batch.num_computed_tokens.push_back(1);
      break;
    case 1:
      batch.idx_mapping.resize(batch.idx_mapping.size() / 2);
      break;
    case 2:
      batch.query_start_loc.back() += 1;
      break;
    case 3:
      batch.prefill_len.clear();
      break;
    default:
      break;
  }
  return batch;
}

}  // namespace pyvllm_pp::fuzz
