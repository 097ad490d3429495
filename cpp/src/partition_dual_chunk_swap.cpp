#include <algorithm>

#include "partition.h"
#include "pyvllm_pp/plan.h"

namespace pyvllm_pp {

void Planner::partition_dual_chunk_swap(const ScheduledView& scheduled) {
  const auto num_reqs = scheduled.num_scheduled_tokens.size();
  const std::int64_t num_chunks = 2 * static_cast<std::int64_t>(config_.pcp_size);
  owners_.resize(num_reqs);

  // In request order: decodes take turns over decodes alone, whatever lies between.
  std::int32_t next_owner = 0;
  for (std::size_t i = 0; i < num_reqs; ++i) {
    const std::int64_t num_tokens = scheduled.num_scheduled_tokens[i];
    const auto chunk = (num_tokens + num_chunks - 1) / num_chunks;
    // Under DCP every rank must hold rows of every prompt, so one too short to fill all chunks
    // stays whole.
    const bool too_short = config_.dcp_size > 1 && (num_chunks - 1) * chunk >= num_tokens;
    auto& owner = owners_[i];
    owner = scheduled.is_prefilling[i] && !too_short ? kSplit : kEveryRank;
    if (owner == kEveryRank && config_.shard_decode_requests && num_tokens > 0) {
      owner = next_owner;
      next_owner = next_owner + 1 == config_.pcp_size ? 0 : next_owner + 1;
    }
  }
  add_rows(scheduled, owners_);
}

void Planner::add_chunks(std::int32_t req_idx, std::int32_t token_start, std::int32_t num_tokens) {
  const std::int64_t num_chunks = 2 * static_cast<std::int64_t>(config_.pcp_size);
  const std::int64_t chunk = (num_tokens + num_chunks - 1) / num_chunks;
  for (std::int32_t rank = 0; rank < config_.pcp_size; ++rank) {
    for (const std::int64_t chunk_idx : {std::int64_t{rank}, num_chunks - 1 - rank}) {
      const auto offset = chunk_idx * chunk;
      const auto length = std::min<std::int64_t>(chunk, num_tokens - offset);
      if (length > 0) {
        add_segment(rank, req_idx, token_start + static_cast<std::int32_t>(offset),
                    static_cast<std::int32_t>(length));
      }
    }
  }
}

}  // namespace pyvllm_pp
