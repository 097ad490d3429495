#include "balancer.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "partition.h"

namespace pyvllm_pp {
namespace {

constexpr std::int64_t kTileWork = 4096;  // a tile of 64 x 64
constexpr std::int64_t kTolerance = 50;   // a 50th is 2 %
constexpr std::size_t kNumBuckets = 256;
constexpr std::int32_t kLongest = kNumBuckets - 1;  // decodes of more tokens count as equal

__extension__ using Wide = __int128;

/// whole * part / all, where the product may not fit in 64 bits.
std::int64_t part_of(std::int64_t whole, std::int64_t part, std::int64_t all) {
  return all == 0 ? 0 : static_cast<std::int64_t>(Wide{whole} * part / all);
}

std::int64_t ceil_div(std::int64_t value, std::int64_t divisor) {
  return value / divisor + (value % divisor > 0 ? 1 : 0);
}

/// Four buckets an octave: monotonous in `work`, below `kNumBuckets`.
std::size_t work_bucket(std::int64_t work) {
  const auto bits = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(work)));
  const auto shift = bits > 3 ? bits - 3 : 0;
  return 4 * bits + ((static_cast<std::size_t>(work) >> shift) & 3U);
}

/// Attention work of `count` tokens, the first of which has `context` tokens before it.
std::int64_t work_of(std::int64_t count, std::int64_t context) {
  return count * context + count * (count + 1) / 2;
}

/// How many of `count` tokens a rank takes from the low end, the others from the high end, so that
/// its work comes nearest to `target`. Left are the tokens of contexts `low` to `high`. Every token
/// moved from the high end to the low one saves the same: the tokens that are left between them.
std::int64_t low_count(std::int64_t low, std::int64_t high, std::int64_t count,
                       std::int64_t target) {
  const auto rest = high - low - count;
  if (rest == 0) {
    return count;
  }
  const auto surplus = work_of(count, high - count) - target;
  return surplus <= 0 ? 0 : std::min(count, (surplus + rest / 2) / rest);
}

}  // namespace

Balancer::Balancer(const PlanConfig& config)
    : pcp_size_(index(config.pcp_size)), shard_decode_requests_(config.shard_decode_requests) {
  const auto max_num_reqs = index(config.limits.max_num_reqs);
  requests_.reserve(max_num_reqs);
  owners_.reserve(max_num_reqs);
  cut_start_.reserve(max_num_reqs);
  cuts_.reserve(max_num_reqs * pcp_size_);
  order_.reserve(max_num_reqs);
  sorted_.reserve(max_num_reqs);
  given_.resize(pcp_size_);
  share_.resize(pcp_size_);
  left_.resize(pcp_size_);
  parts_.resize(pcp_size_);
  ranks_.resize(pcp_size_);
}

std::span<const Cut> Balancer::cuts(std::int32_t req_idx) const {
  return std::span(cuts_).subspan(cut_start_[index(req_idx)], pcp_size_);
}

void Balancer::share_out(const ScheduledView& scheduled) {
  weigh(scheduled);
  place_decodes(scheduled);
  set_shares();
  place_prompts(scheduled);
}

std::int32_t Balancer::max_rank_tokens(const ScheduledView& scheduled) {
  weigh(scheduled);
  place_decodes(scheduled);
  set_shares();
  std::int64_t largest = 0;
  for (std::size_t rank = 0; rank < pcp_size_; ++rank) {
    largest = std::max(largest, given_[rank].tokens + share_[rank].tokens);
  }
  return static_cast<std::int32_t>(replicated_tokens_ + largest);
}

void Balancer::weigh(const ScheduledView& scheduled) {
  const auto num_reqs = scheduled.num_scheduled_tokens.size();
  requests_.resize(num_reqs);
  owners_.assign(num_reqs, kEveryRank);
  cut_start_.resize(num_reqs);
  prompts_ = {};
  total_work_ = 0;
  replicated_tokens_ = 0;
  for (std::size_t i = 0; i < num_reqs; ++i) {
    const auto num_tokens = scheduled.num_scheduled_tokens[i];
    const auto context =
        scheduled.num_computed_tokens.empty() ? 0 : scheduled.num_computed_tokens[i];
    const auto work = work_of(num_tokens, context);
    requests_[i] = {.num_tokens = num_tokens, .context = context, .work = work};
    if (scheduled.is_prefilling[i]) {
      prompts_.tokens += num_tokens;
      prompts_.work += work;
    } else if (!shard_decode_requests_) {
      replicated_tokens_ += num_tokens;
      continue;
    }
    total_work_ += work;
  }
}

/// Stable, in one pass over `order_` each for counting and placing.
template <typename Key>
void Balancer::sort_descending(Key key) {
  std::array<std::size_t, kNumBuckets> next{};
  for (const auto req : order_) {
    ++next[key(req)];
  }
  std::size_t start = 0;
  // No std::views: clang 14, which fuzzes, cannot read those of libstdc++ 12.
  std::for_each(next.rbegin(), next.rend(),
                [&start](std::size_t& bucket) { start += std::exchange(bucket, start); });
  sorted_.resize(order_.size());
  for (const auto req : order_) {
    sorted_[next[key(req)]++] = req;
  }
  order_.swap(sorted_);
}

void Balancer::place_decodes(const ScheduledView& scheduled) {
  std::ranges::fill(given_, Share{});
  if (!shard_decode_requests_) {
    return;
  }
  order_.clear();
  std::int32_t fewest = std::numeric_limits<std::int32_t>::max();
  std::int32_t most = 0;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const auto num_tokens = requests_[i].num_tokens;
    if (!scheduled.is_prefilling[i] && num_tokens > 0) {
      order_.push_back(i);
      fewest = std::min(fewest, num_tokens);
      most = std::max(most, num_tokens);
    }
  }
  // Lengths (of drafts) decide first, so that the ranks' tokens do not depend on contexts.
  sort_descending([this](std::size_t req) {
    return requests_[req].num_tokens < kLongest ? work_bucket(requests_[req].work) : 0;
  });
  if (fewest != most) {
    sort_descending(
        [this](std::size_t req) { return index(std::min(requests_[req].num_tokens, kLongest)); });
  }
  for (const auto req : order_) {
    const auto rank = std::ranges::min_element(given_, [](const Share& a, const Share& b) {
      return std::tie(a.tokens, a.work) < std::tie(b.tokens, b.work);
    });
    rank->tokens += requests_[req].num_tokens;
    rank->work += requests_[req].work;
    owners_[req] = static_cast<std::int32_t>(rank - given_.begin());
  }
}

void Balancer::set_shares() {
  fill(&Share::tokens, prompts_.tokens);
  fill(&Share::work, prompts_.work);
}

/// Pours `amount` onto what the ranks were given: the lowest rise to one level, to within one.
void Balancer::fill(std::int64_t Share::* what, std::int64_t amount) {
  std::iota(ranks_.begin(), ranks_.end(), std::size_t{0});
  std::ranges::sort(ranks_, {},
                    [&](std::size_t rank) { return std::tuple(given_[rank].*what, rank); });
  std::int64_t sum = amount;
  std::int64_t count = 0;
  for (const auto rank : ranks_) {
    if (count > 0 && given_[rank].*what >= ceil_div(sum, count)) {
      break;
    }
    sum += given_[rank].*what;
    ++count;
  }
  for (std::int64_t i = 0; const auto rank : ranks_) {
    const auto level = sum / count + (i < sum % count ? 1 : 0);
    share_[rank].*what = i < count ? level - given_[rank].*what : 0;
    ++i;
  }
}

void Balancer::place_prompts(const ScheduledView& scheduled) {
  order_.clear();
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (scheduled.is_prefilling[i] && requests_[i].num_tokens > 0) {
      order_.push_back(i);
    }
  }
  if (order_.empty()) {
    return;
  }
  sort_descending([this](std::size_t req) { return work_bucket(requests_[req].work); });

  const auto equal = total_work_ / static_cast<std::int64_t>(pcp_size_);
  const auto limit = std::max(equal + equal / kTolerance, kTileWork);
  auto least = std::numeric_limits<std::int64_t>::max();
  std::int64_t best = 0;
  std::int64_t tried = 0;
  for (const std::int64_t max_whole_work :
       {std::numeric_limits<std::int64_t>::max(), kTileWork, std::int64_t{0}}) {
    const auto largest = try_prompts(max_whole_work);
    tried = max_whole_work;
    if (largest < least) {
      least = largest;
      best = max_whole_work;
    }
    if (largest <= limit) {
      break;
    }
  }
  if (best != tried) {
    try_prompts(best);
  }
}

/// Places every prompt, whole up to `max_whole_work`; returns the largest rank's work.
std::int64_t Balancer::try_prompts(std::int64_t max_whole_work) {
  std::ranges::copy(share_, left_.begin());
  cuts_.clear();
  for (const auto req : order_) {
    const auto& request = requests_[req];
    owners_[req] = whole_owner(request, max_whole_work);
    if (owners_[req] != kSplit) {
      auto& left = left_[index(owners_[req])];
      left.tokens -= request.num_tokens;
      left.work -= request.work;
    }
  }
  for (const auto req : order_) {
    if (owners_[req] == kSplit) {
      split(req);
    }
  }
  std::int64_t largest = 0;
  for (std::size_t rank = 0; rank < pcp_size_; ++rank) {
    largest = std::max(largest, given_[rank].work + share_[rank].work - left_[rank].work);
  }
  return largest;
}

/// The rank with most tokens left, if it takes the prompt within its share and not a tile's work
/// past its share.
std::int32_t Balancer::whole_owner(const Request& request, std::int64_t max_whole_work) const {
  if (request.work > max_whole_work) {
    return kSplit;
  }
  const auto rank = std::ranges::max_element(left_, {}, &Share::tokens);
  const bool fits = request.num_tokens <= rank->tokens && request.work - rank->work <= kTileWork;
  return fits ? static_cast<std::int32_t>(rank - left_.begin()) : kSplit;
}

void Balancer::split(std::size_t req) {
  const auto& request = requests_[req];
  cut_start_[req] = cuts_.size();
  cuts_.resize(cuts_.size() + pcp_size_, Cut{});
  // Below a tile there is no work to balance: as few segments as the tokens allow.
  if (request.work <= kTileWork) {
    split_in_order(request);
  } else {
    split_evenly(request);
  }
}

void Balancer::split_in_order(const Request& request) {
  std::int32_t start = 0;
  for (std::size_t rank = 0; rank < pcp_size_; ++rank) {
    const auto count = static_cast<std::int32_t>(
        std::min<std::int64_t>(left_[rank].tokens, request.num_tokens - start));
    take(rank, request, {.low_start = start, .num_low = count, .high_start = 0, .num_high = 0});
    start += count;
  }
}

/// Each rank's part of a prompt, in proportion to what it has left to take of all prompts.
void Balancer::set_parts(const Request& request) {
  Share all;
  for (const auto& left : left_) {
    all.tokens += left.tokens;
    all.work += std::max<std::int64_t>(left.work, 0);
  }
  std::int64_t left_tokens = 0;
  std::int64_t end = 0;
  for (std::size_t rank = 0; rank < pcp_size_; ++rank) {
    // Ends of running sums, so that the parts add up.
    left_tokens += left_[rank].tokens;
    const auto start = std::exchange(end, left_tokens * request.num_tokens / all.tokens);
    parts_[rank].tokens = end - start;
    parts_[rank].work =
        part_of(request.work, std::max<std::int64_t>(left_[rank].work, 0), all.work);
  }
}

void Balancer::split_evenly(const Request& request) {
  set_parts(request);
  // Ranks whose work is furthest from that of their tokens choose first, while both ends are far.
  std::iota(ranks_.begin(), ranks_.end(), std::size_t{0});
  std::ranges::sort(ranks_, std::less{}, [&](std::size_t rank) {
    const auto usual = part_of(request.work, parts_[rank].tokens, request.num_tokens);
    return std::tuple(-std::abs(parts_[rank].work - usual), rank);
  });
  std::int64_t low = 0;
  std::int64_t high = request.num_tokens;
  std::int64_t owed = 0;  // what rounding kept from the ranks so far
  auto num_left = static_cast<std::int64_t>(pcp_size_);
  for (const auto rank : ranks_) {
    const auto count = parts_[rank].tokens;
    const auto num_low = low_count(request.context + low, request.context + high, count,
                                   parts_[rank].work + owed / num_left);
    const auto num_high = count - num_low;
    const auto before = left_[rank].work;
    take(rank, request,
         {.low_start = static_cast<std::int32_t>(low),
          .num_low = static_cast<std::int32_t>(num_low),
          .high_start = static_cast<std::int32_t>(high - num_high),
          .num_high = static_cast<std::int32_t>(num_high)});
    owed += parts_[rank].work - (before - left_[rank].work);
    low += num_low;
    high -= num_high;
    --num_left;
  }
}

void Balancer::take(std::size_t rank, const Request& request, Cut cut) {
  auto& left = left_[rank];
  left.tokens -= cut.num_low + cut.num_high;
  left.work -= work_of(cut.num_low, std::int64_t{request.context} + cut.low_start) +
               work_of(cut.num_high, std::int64_t{request.context} + cut.high_start);
  cuts_[cuts_.size() - pcp_size_ + rank] = cut;
}

}  // namespace pyvllm_pp
