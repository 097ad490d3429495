#include "pyvllm_pp/plan.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "balancer.h"
#include "partition.h"
#include "pyvllm_pp/error.h"

namespace pyvllm_pp {
namespace {

constexpr std::string_view kRoom = "plan";

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
  // Flags as bytes, so that both comparisons are of memory.
  const auto flags = std::as_bytes(scheduled.is_prefilling);
  return revision_ != 0 &&
         std::ranges::equal(scheduled.num_scheduled_tokens, num_scheduled_tokens_) &&
         flags.size() == is_prefilling_.size() &&
         (flags.empty() || std::memcmp(flags.data(), is_prefilling_.data(), flags.size()) == 0);
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
  if (config.dcp_size > 1 && config.partition == Partition::balanced) {
    fail(kRoom, "partition balanced with dcp_size ", config.dcp_size, ": expected dcp_size 1");
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
  if (config.partition == Partition::balanced) {
    num_computed_tokens_.reserve(max_num_reqs);
    balancer_ = std::make_unique<Balancer>(config);
  }
}

Planner::Planner(Planner&&) noexcept = default;
Planner& Planner::operator=(Planner&&) noexcept = default;
Planner::~Planner() = default;

const Plan& Planner::plan(const ScheduledView& given) {
  auto scheduled = given;
  if (balancer_ == nullptr) {
    scheduled.num_computed_tokens = {};
  }
  if (plan_.is_made_from(scheduled) &&
      std::ranges::equal(scheduled.num_computed_tokens, num_computed_tokens_)) {
    return plan_;
  }
  begin(scheduled, check_scheduled(scheduled, config_.limits));
  switch (config_.partition) {
    case Partition::dual_chunk_swap:
      partition_dual_chunk_swap(scheduled);
      break;
    case Partition::balanced:
      partition_balanced(scheduled);
      break;
  }
  plan_.max_rank_tokens_ = std::ranges::max(plan_.rank_tokens_);
  plan_.revision_ = next_revision();
  return plan_;
}

std::int32_t Planner::max_rank_tokens(const ScheduledView& scheduled) {
  if (plan_.is_made_from(scheduled)) {
    return plan_.max_rank_tokens();
  }
  if (balancer_ == nullptr) {
    return plan(scheduled).max_rank_tokens();
  }
  check_scheduled(scheduled, config_.limits);
  return balancer_->max_rank_tokens(scheduled);
}

void Planner::begin(const ScheduledView& scheduled, std::int32_t num_tokens) {
  plan_.num_scheduled_tokens_.assign(scheduled.num_scheduled_tokens.begin(),
                                     scheduled.num_scheduled_tokens.end());
  plan_.is_prefilling_.assign(scheduled.is_prefilling.begin(), scheduled.is_prefilling.end());
  plan_.has_prefill_ =
      std::ranges::find(scheduled.is_prefilling, true) != scheduled.is_prefilling.end();
  plan_.num_tokens_ = num_tokens;
  num_computed_tokens_.assign(scheduled.num_computed_tokens.begin(),
                              scheduled.num_computed_tokens.end());
  std::ranges::fill(plan_.rank_tokens_, 0);
  for (auto& segments : plan_.rank_segments_) {
    segments.clear();
  }
}

void Planner::add_rows(const ScheduledView& scheduled, std::span<const std::int32_t> owners) {
  plan_.is_replicated_.resize(owners.size());
  std::ranges::transform(owners, plan_.is_replicated_.begin(), [](std::int32_t owner) {
    return static_cast<std::uint8_t>(owner == kEveryRank);
  });
  // Decodes before prefills: vLLM's attention metadata needs that order.
  for (const bool prefills : {false, true}) {
    if (prefills && !plan_.has_prefill_) {
      break;
    }
    std::int32_t token_start = 0;
    for (std::size_t i = 0; i < owners.size(); ++i) {
      const auto num_tokens = scheduled.num_scheduled_tokens[i];
      if (scheduled.is_prefilling[i] == prefills && num_tokens > 0) {
        add_request(owners[i], static_cast<std::int32_t>(i), token_start, num_tokens);
      }
      token_start += num_tokens;
    }
  }
}

void Planner::add_request(std::int32_t owner, std::int32_t req_idx, std::int32_t token_start,
                          std::int32_t num_tokens) {
  if (owner != kSplit) {
    add_whole(owner, req_idx, token_start, num_tokens);
  } else if (balancer_ == nullptr) {
    add_chunks(req_idx, token_start, num_tokens);
  } else {
    add_cuts(req_idx, token_start);
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

}  // namespace pyvllm_pp
