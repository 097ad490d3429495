#include "pyvllm_pp/plan.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "pyvllm_pp/error.h"

namespace pyvllm_pp {
namespace {

constexpr std::string_view kRoom = "plan";
constexpr std::int32_t kEveryRank = -1;
constexpr std::int32_t kSplit = -2;

std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }

std::uint64_t next_revision() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

void check_at_least_one(std::string_view name, std::int32_t value) {
  if (value < 1) {
    fail(kRoom, name, " is ", value, ", expected 1 or more");
  }
}

}  // namespace

void Plan::check_rank(std::int32_t rank) const {
  if (rank < 0 || rank >= pcp_size()) {
    fail(kRoom, "rank ", rank, " is outside [0, ", pcp_size(), ")");
  }
}

std::span<const RankSegment> Plan::segments(std::int32_t rank) const {
  check_rank(rank);
  return rank_segments_[index(rank)];
}

std::int32_t Plan::num_rank_tokens(std::int32_t rank) const {
  check_rank(rank);
  return rank_tokens_[index(rank)];
}

bool Plan::is_replicated(std::int32_t req_idx) const {
  if (req_idx < 0 || req_idx >= num_reqs()) {
    fail(kRoom, "request row ", req_idx, " is outside [0, ", num_reqs(), ")");
  }
  return is_replicated_[index(req_idx)] != 0;
}

bool Plan::is_made_from(const ScheduledView& scheduled) const {
  return revision_ != 0 &&
         std::ranges::equal(scheduled.num_scheduled_tokens, num_scheduled_tokens_) &&
         std::ranges::equal(scheduled.is_prefilling, is_prefilling_);
}

void check_config(const PlanConfig& config) {
  check_at_least_one("pcp_size", config.pcp_size);
  check_at_least_one("dcp_size", config.dcp_size);
  check_at_least_one("max_num_reqs", config.limits.max_num_reqs);
  check_at_least_one("max_num_tokens", config.limits.max_num_tokens);
  if (config.dcp_size > 1 && config.shard_decode_requests) {
    fail(kRoom, "shard_decode_requests with dcp_size ", config.dcp_size,
         ": under DCP every rank needs every decode, expected shard_decode_requests=False");
  }
  constexpr auto kMostReqs = std::numeric_limits<std::int32_t>::max() / 2;
  if (config.limits.max_num_reqs > kMostReqs) {
    fail(kRoom, "max_num_reqs is ", config.limits.max_num_reqs, ", expected at most ", kMostReqs);
  }
}

Planner::Planner(const PlanConfig& config) : config_(config) {
  check_config(config);
  const auto max_num_reqs = index(config.limits.max_num_reqs);
  plan_.num_scheduled_tokens_.reserve(max_num_reqs);
  plan_.is_prefilling_.reserve(max_num_reqs);
  plan_.is_replicated_.reserve(max_num_reqs);
  plan_.rank_segments_.resize(index(config.pcp_size));
  for (auto& segments : plan_.rank_segments_) {
    segments.reserve(2 * max_num_reqs);
  }
  plan_.rank_tokens_.resize(index(config.pcp_size));
  owners_.reserve(max_num_reqs);
}

const Plan& Planner::plan(const ScheduledView& scheduled) {
  if (plan_.is_made_from(scheduled)) {
    return plan_;
  }
  const auto num_tokens = check_scheduled(scheduled, config_.limits);

  plan_.num_scheduled_tokens_.assign(scheduled.num_scheduled_tokens.begin(),
                                     scheduled.num_scheduled_tokens.end());
  plan_.is_prefilling_.assign(scheduled.is_prefilling.begin(), scheduled.is_prefilling.end());
  plan_.has_prefill_ =
      std::ranges::find(scheduled.is_prefilling, true) != scheduled.is_prefilling.end();
  plan_.num_tokens_ = num_tokens;
  std::ranges::fill(plan_.rank_tokens_, 0);
  for (auto& segments : plan_.rank_segments_) {
    segments.clear();
  }
  switch (config_.partition) {
    case Partition::dual_chunk_swap:
      partition_dual_chunk_swap(scheduled);
      break;
  }
  plan_.max_rank_tokens_ = std::ranges::max(plan_.rank_tokens_);
  plan_.revision_ = next_revision();
  return plan_;
}

void Planner::partition_dual_chunk_swap(const ScheduledView& scheduled) {
  const auto num_reqs = scheduled.num_scheduled_tokens.size();
  const std::int64_t num_chunks = 2 * static_cast<std::int64_t>(config_.pcp_size);
  owners_.resize(num_reqs);
  plan_.is_replicated_.resize(num_reqs);

  // Owners first, in request order: decodes take turns over decodes alone, whatever lies between.
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
    plan_.is_replicated_[i] = owner == kEveryRank ? 1 : 0;
  }

  // Then rows, decodes before prefills: vLLM's attention metadata needs that order.
  for (const bool prefills : {false, true}) {
    if (prefills && !plan_.has_prefill_) {
      break;
    }
    std::int32_t token_start = 0;
    for (std::size_t i = 0; i < num_reqs; ++i) {
      const auto num_tokens = scheduled.num_scheduled_tokens[i];
      if (scheduled.is_prefilling[i] == prefills && num_tokens > 0) {
        const auto req_idx = static_cast<std::int32_t>(i);
        if (owners_[i] == kSplit) {
          add_chunks(req_idx, token_start, num_tokens);
        } else {
          add_whole(owners_[i], req_idx, token_start, num_tokens);
        }
      }
      token_start += num_tokens;
    }
  }
}

void Planner::add_whole(std::int32_t owner, std::int32_t req_idx, std::int32_t token_start,
                        std::int32_t num_tokens) {
  if (owner != kEveryRank) {
    add_segment(owner, req_idx, token_start, num_tokens);
    return;
  }
  for (std::int32_t rank = 0; rank < config_.pcp_size; ++rank) {
    add_segment(rank, req_idx, token_start, num_tokens);
  }
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

void Planner::add_segment(std::int32_t rank, std::int32_t req_idx, std::int32_t token_start,
                          std::int32_t num_tokens) {
  auto& local_start = plan_.rank_tokens_[index(rank)];
  plan_.rank_segments_[index(rank)].push_back({.req_idx = req_idx,
                                               .token_start = token_start,
                                               .num_tokens = num_tokens,
                                               .local_start = local_start});
  local_start += num_tokens;
}

}  // namespace pyvllm_pp
