#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pyvllm_pp/plan.h"

/// The decisions of the policy `balanced`; private to the plan room.
namespace pyvllm_pp {

/// What a rank takes of a split prompt: a run from either end of what the ranks before it left,
/// one of them or both empty. Offsets in the request.
struct Cut {
  std::int32_t low_start;
  std::int32_t num_low;
  std::int32_t high_start;
  std::int32_t num_high;
};

/// Shares one batch out over the ranks, in memory it reserved once. Not thread-safe.
///
///   1. decodes, whole, most work first, each to a rank with fewest tokens, least work among those
///   2. what each rank then has left to take of all prompts, in tokens and in work
///   3. prompts, most work first: whole to the rank with most tokens left, or split so that each
///      rank takes its part of the tokens, low ones or high ones as its part of the work demands
///
/// Integers only: equal on every machine. Cost: linear in requests times ranks.
class Balancer {
 public:
  explicit Balancer(const PlanConfig& config);

  /// Decides on every request. Requires a checked batch.
  void share_out(const ScheduledView& scheduled);

  /// As `Planner::max_rank_tokens`. Forgets the last decisions.
  std::int32_t max_rank_tokens(const ScheduledView& scheduled);

  /// A rank, `kEveryRank` or `kSplit`.  // [num_reqs]
  [[nodiscard]] std::span<const std::int32_t> owners() const { return owners_; }
  /// Of a split request.  // [pcp_size]
  [[nodiscard]] std::span<const Cut> cuts(std::int32_t req_idx) const;

 private:
  /// An amount of both things that are balanced.
  struct Share {
    std::int64_t tokens = 0;
    std::int64_t work = 0;
  };
  struct Request {
    std::int32_t num_tokens;
    std::int32_t context;
    std::int64_t work;
  };

  void weigh(const ScheduledView& scheduled);
  void place_decodes(const ScheduledView& scheduled);
  void set_shares();
  void fill(std::int64_t Share::* what, std::int64_t amount);
  void place_prompts(const ScheduledView& scheduled);
  std::int64_t try_prompts(std::int64_t max_whole_work);
  [[nodiscard]] std::int32_t whole_owner(const Request& request, std::int64_t max_whole_work) const;
  void split(std::size_t req);
  void split_in_order(const Request& request);
  void split_evenly(const Request& request);
  void set_parts(const Request& request);
  void take(std::size_t rank, const Request& request, Cut cut);
  template <typename Key>
  void sort_descending(Key key);

  std::size_t pcp_size_;
  bool shard_decode_requests_;
  std::int64_t total_work_ = 0;         // of what is shared out, as all below
  Share prompts_;                       // all prompts together
  std::int64_t replicated_tokens_ = 0;  // decodes on every rank
  std::vector<Request> requests_;       // [num_reqs]
  std::vector<std::int32_t> owners_;    // [num_reqs]
  std::vector<std::size_t> cut_start_;  // [num_reqs] of a split request, in `cuts_`
  std::vector<Cut> cuts_;               // [num_split][pcp_size]
  std::vector<std::size_t> order_;      // [num_reqs] decodes or prompts, most work first
  std::vector<std::size_t> sorted_;     // [num_reqs] scratch of the sort
  std::vector<Share> given_;            // [pcp_size] decodes
  std::vector<Share> share_;            // [pcp_size] of the prompts
  std::vector<Share> left_;             // [pcp_size] of its share
  std::vector<Share> parts_;            // [pcp_size] of one prompt
  std::vector<std::size_t> ranks_;      // [pcp_size] in an order of need
};

}  // namespace pyvllm_pp
