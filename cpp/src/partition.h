#pragma once

#include <cstddef>
#include <cstdint>

#include "pyvllm_pp/plan.h"

/// Shared by the policies, private to the plan room.
namespace pyvllm_pp {

/// Owners of a request other than one rank.
inline constexpr std::int32_t kEveryRank = -1;
inline constexpr std::int32_t kSplit = -2;

inline std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }

/// The innermost step of every policy: here so that each can have it inlined.
inline void Planner::add_segment(std::int32_t rank, std::int32_t req_idx, std::int32_t token_start,
                                 std::int32_t num_tokens) {
  auto& local_start = plan_.rank_tokens_[index(rank)];
  plan_.rank_segments_[index(rank)].push_back({.req_idx = req_idx,
                                               .token_start = token_start,
                                               .num_tokens = num_tokens,
                                               .local_start = local_start});
  local_start += num_tokens;
}

}  // namespace pyvllm_pp
