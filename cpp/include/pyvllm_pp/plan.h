#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pyvllm_pp/batch.h"

/// Room 2: which PCP rank computes which tokens of one step.
///
/// Every rank makes the same plan from the same inputs. Requires nothing of the rank itself.
///
///   PCP 2, one prompt of 7 tokens, dual_chunk_swap (2 * 2 chunks of ceil(7 / 4) = 2):
///     global batch:  [A B | C D | E F | G]
///     rank 0 [A B G], rank 1 [C D E F]
namespace pyvllm_pp {

class Balancer;

enum class Partition : std::uint8_t {
  dual_chunk_swap,  ///< vLLM's own: rank r takes chunks r and 2 * pcp_size - 1 - r of a prompt
  /// Rank tokens equal to within one over the whole batch, attention work (the sum of the rows'
  /// context lengths) equal too. Decodes are whole, and so are prompts where that is cheaper: a
  /// rank costs its attention work plus that of a 64 x 64 tile for each segment, so splitting must
  /// save a tile; of the plans with all, tiny or no prompts whole the first is taken whose largest
  /// rank is within 2 % of equal or below one tile, otherwise the one with least work there.
  /// At most two segments of a request on a rank, as with dual_chunk_swap. PCP alone, not with DCP.
  balanced,
};

struct PlanConfig {
  std::int32_t pcp_size = 1;
  std::int32_t dcp_size = 1;
  /// Each decode on one rank, in turn (PCP alone); otherwise decodes are on every rank (DCP).
  bool shard_decode_requests = true;
  Partition partition = Partition::dual_chunk_swap;
  BatchLimits limits{.max_num_reqs = 1, .max_num_tokens = 1};
};

/// Throws `std::invalid_argument` for sizes below 1, for more requests than an int32 can count two
/// rows each of, and under DCP for sharded decodes and for the policy `balanced`.
void check_config(const PlanConfig& config);

/// A contiguous run of one request's tokens on one rank.
struct RankSegment {
  std::int32_t req_idx;      ///< row of the request in the global batch
  std::int32_t token_start;  ///< first token, in global batch order
  std::int32_t num_tokens;
  std::int32_t local_start;  ///< first token, in this rank's local order

  friend bool operator==(const RankSegment&, const RankSegment&) = default;
};

/// The segments of all ranks for one step. Frozen: only a `Planner` writes one.
class Plan {
 public:
  /// Decodes first, then prefills; each in request order, then in token order.
  [[nodiscard]] std::span<const RankSegment> segments(std::int32_t rank) const;
  [[nodiscard]] std::int32_t num_rank_tokens(std::int32_t rank) const;
  /// The largest rank's token count: what a graph is dispatched on.
  [[nodiscard]] std::int32_t max_rank_tokens() const { return max_rank_tokens_; }
  [[nodiscard]] std::int32_t num_tokens() const { return num_tokens_; }
  [[nodiscard]] std::int32_t num_reqs() const {
    return static_cast<std::int32_t>(num_scheduled_tokens_.size());
  }
  [[nodiscard]] std::int32_t pcp_size() const {
    return static_cast<std::int32_t>(rank_segments_.size());
  }
  /// Whether the request is whole on every rank by rule, neither split nor owned by one: its KV is
  /// written by rank 0 alone. Says nothing of a request without tokens.
  [[nodiscard]] bool is_replicated(std::int32_t req_idx) const;
  /// The same for all requests, 0 or 1 each. // [num_reqs]
  [[nodiscard]] std::span<const std::uint8_t> replicated() const { return is_replicated_; }
  [[nodiscard]] bool has_prefill() const { return has_prefill_; }
  /// Whether the plan was made from exactly these inputs. Cost: one comparison of the arrays.
  [[nodiscard]] bool is_made_from(const ScheduledView& scheduled) const;
  /// Another number, unique in the process, whenever a `Planner` writes the plan anew; 0 before.
  [[nodiscard]] std::uint64_t revision() const { return revision_; }

 private:
  friend class Planner;
  void check_rank(std::int32_t rank) const;

  std::vector<std::int32_t> num_scheduled_tokens_;       // [num_reqs]
  std::vector<std::uint8_t> is_prefilling_;              // [num_reqs]
  std::vector<std::uint8_t> is_replicated_;              // [num_reqs]
  std::vector<std::vector<RankSegment>> rank_segments_;  // [pcp_size][num_segments]
  std::vector<std::int32_t> rank_tokens_;                // [pcp_size]
  std::int32_t num_tokens_ = 0;
  std::int32_t max_rank_tokens_ = 0;
  std::uint64_t revision_ = 0;
  bool has_prefill_ = false;
};

/// Makes plans into memory it reserved once. Not thread-safe.
class Planner {
 public:
  /// Throws as `check_config`.
  explicit Planner(const PlanConfig& config);
  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;
  Planner(Planner&&) noexcept;
  Planner& operator=(Planner&&) noexcept;
  ~Planner();

  /// The plan for a batch; the same plan again, untouched, when the inputs are those of the last
  /// call. Valid until the next call. Cost: linear in the segments; no allocation.
  /// Contexts count in `balanced` alone, as 0 where none are given.
  /// Throws `std::invalid_argument`, the last plan then still stands.
  const Plan& plan(const ScheduledView& scheduled);

  /// The largest rank's tokens in the plan for a batch, whatever its contexts: what a graph is
  /// dispatched on before they are known. Throws as `plan`.
  std::int32_t max_rank_tokens(const ScheduledView& scheduled);

  [[nodiscard]] const PlanConfig& config() const { return config_; }

 private:
  void begin(const ScheduledView& scheduled, std::int32_t num_tokens);
  void partition_dual_chunk_swap(const ScheduledView& scheduled);
  void partition_balanced(const ScheduledView& scheduled);
  void add_segment(std::int32_t rank, std::int32_t req_idx, std::int32_t token_start,
                   std::int32_t num_tokens);
  void add_rows(const ScheduledView& scheduled, std::span<const std::int32_t> owners);
  void add_request(std::int32_t owner, std::int32_t req_idx, std::int32_t token_start,
                   std::int32_t num_tokens);
  void add_whole(std::int32_t owner, std::int32_t req_idx, std::int32_t token_start,
                 std::int32_t num_tokens);
  void add_chunks(std::int32_t req_idx, std::int32_t token_start, std::int32_t num_tokens);
  void add_cuts(std::int32_t req_idx, std::int32_t token_start);

  PlanConfig config_;
  Plan plan_;
  std::vector<std::int32_t> owners_;               // [num_reqs] for dual_chunk_swap
  std::vector<std::int32_t> num_computed_tokens_;  // [num_reqs] for balanced, or empty
  std::unique_ptr<Balancer> balancer_;             // for balanced
};

}  // namespace pyvllm_pp
