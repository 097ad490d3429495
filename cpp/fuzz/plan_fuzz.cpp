#include <stdexcept>

#include "pyvllm_pp/plan.h"
#include "steps.h"

/// Rules 1 and 2 of the plan, its order and its counts, on any batch.
namespace pyvllm_pp::fuzz {
namespace {

using testing::index;
using testing::OwnedBatch;

void check_rows(const Plan& plan, const OwnedBatch& batch, std::int32_t rank,
                std::vector<std::int32_t>& num_holders) {
  std::int32_t local = 0;
  std::int32_t last_token = -1;
  bool last_prefill = false;
  for (const auto& segment : plan.segments(rank)) {
    const auto req = index(segment.req_idx);
    const bool prefill = batch.is_prefilling.span()[req];
    require(segment.num_tokens > 0, "a segment has tokens");
    require(segment.local_start == local, "segments follow each other");
    require(segment.token_start >= batch.query_start_loc[req] &&
                segment.token_start + segment.num_tokens <= batch.query_start_loc[req + 1],
            "a segment stays in its request");
    require(last_prefill == prefill ? segment.token_start > last_token : prefill,
            "decodes come first, then token order");
    last_prefill = prefill;
    last_token = segment.token_start + segment.num_tokens - 1;
    local += segment.num_tokens;
    for (std::int32_t i = 0; i < segment.num_tokens; ++i) {
      ++num_holders[index(segment.token_start + i)];
    }
  }
  require(local == plan.num_rank_tokens(rank), "a rank's count is that of its segments");
  require(local <= plan.max_rank_tokens(), "the dispatch count is the largest rank's");
}

/// Decodes are whole, so those of several tokens may leave the ranks further apart.
bool has_long_decode(const OwnedBatch& batch) {
  for (std::size_t i = 0; i < batch.num_scheduled_tokens.size(); ++i) {
    if (!batch.is_prefilling.span()[i] && batch.num_scheduled_tokens[i] > 1) {
      return true;
    }
  }
  return false;
}

void check_plan(const Plan& plan, const OwnedBatch& batch, const PlanConfig& config) {
  std::vector<std::int32_t> num_holders(index(plan.num_tokens()));
  for (std::int32_t rank = 0; rank < plan.pcp_size(); ++rank) {
    check_rows(plan, batch, rank, num_holders);
    require(config.partition != Partition::balanced || has_long_decode(batch) ||
                plan.num_rank_tokens(rank) + 1 >= plan.max_rank_tokens(),
            "balanced ranks differ by at most one token");
  }
  for (std::int32_t req = 0; req < plan.num_reqs(); ++req) {
    const auto expected = plan.is_replicated(req) ? plan.pcp_size() : 1;
    for (auto token = batch.query_start_loc[index(req)];
         token < batch.query_start_loc[index(req) + 1]; ++token) {
      require(num_holders[index(token)] == expected, "a token is on one rank or on all");
    }
  }
}

std::vector<std::int32_t> starts(const std::vector<std::int32_t>& counts) {
  std::vector<std::int32_t> sums{0};
  for (const auto count : counts) {
    sums.push_back(sums.back() + count);
  }
  return sums;
}

void run(Input input) {
  const auto config = config_from(input);
  Planner planner(config);
  Planner other(config);
  while (!input.is_empty()) {
    auto batch = batch_from(input);
    // A plan does not see it; the checks below read it.
    batch.query_start_loc = starts(batch.num_scheduled_tokens);
    auto scheduled = batch.scheduled();
    if (input.in(0, 1) == 1) {
      scheduled.num_computed_tokens = batch.num_computed_tokens;
    }
    try {
      const auto count = planner.max_rank_tokens(scheduled);
      const auto& plan = planner.plan(scheduled);
      require(count == plan.max_rank_tokens(), "the dispatch count is known before the plan");
      check_plan(plan, batch, config);
      for (std::int32_t rank = 0; rank < config.pcp_size; ++rank) {
        require(std::ranges::equal(plan.segments(rank), other.plan(scheduled).segments(rank)),
                "every rank makes the same plan");
      }
      require(planner.plan(scheduled).revision() == plan.revision(), "the same plan stands");
    } catch (const std::invalid_argument&) {
      // Bad input has its error.
    }
  }
}

}  // namespace
}  // namespace pyvllm_pp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  pyvllm_pp::fuzz::run({data, size});
  return 0;
}
