// The policy `balanced`: what it adds to the rules of every policy in plan_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "pyvllm_pp/plan.h"
#include "support/batches.h"
#include "support/errors.h"

namespace pyvllm_pp {
namespace {

using testing::chunk;
using testing::decode;
using testing::index;
using testing::invalid;
using testing::OwnedBatch;
using testing::prompt;
using testing::random_requests;
using testing::Request;

constexpr BatchLimits kLimits{.max_num_reqs = 256, .max_num_tokens = 1 << 20};
constexpr std::int64_t kTileWork = 64 * 64;

PlanConfig balanced(std::int32_t pcp_size) {
  return {.pcp_size = pcp_size, .partition = Partition::balanced, .limits = kLimits};
}

ScheduledView without_contexts(const OwnedBatch& batch) {
  auto scheduled = batch.scheduled();
  scheduled.num_computed_tokens = {};
  return scheduled;
}

std::vector<std::int32_t> rank_tokens(const Plan& plan) {
  std::vector<std::int32_t> counts;
  for (std::int32_t rank = 0; rank < plan.pcp_size(); ++rank) {
    counts.push_back(plan.num_rank_tokens(rank));
  }
  return counts;
}

/// Context lengths of all rows of each rank, summed token by token.
std::vector<std::int64_t> rank_work(const Plan& plan, const OwnedBatch& batch) {
  std::vector<std::int64_t> work;
  for (std::int32_t rank = 0; rank < plan.pcp_size(); ++rank) {
    auto& sum = work.emplace_back(0);
    for (const auto& segment : plan.segments(rank)) {
      const auto req = index(segment.req_idx);
      for (std::int64_t i = 0; i < segment.num_tokens; ++i) {
        sum += batch.num_computed_tokens[req] + segment.token_start + i + 1 -
               batch.query_start_loc[req];
      }
    }
  }
  return work;
}

double largest_over_equal(const std::vector<std::int64_t>& work) {
  const auto sum = std::accumulate(work.begin(), work.end(), std::int64_t{0});
  return static_cast<double>(std::ranges::max(work)) * static_cast<double>(work.size()) /
         static_cast<double>(sum);
}

std::vector<std::vector<RankSegment>> all_segments(const Plan& plan) {
  std::vector<std::vector<RankSegment>> ranks;
  for (std::int32_t rank = 0; rank < plan.pcp_size(); ++rank) {
    const auto segments = plan.segments(rank);
    ranks.emplace_back(segments.begin(), segments.end());
  }
  return ranks;
}

using Ranks = std::vector<std::vector<RankSegment>>;

std::int32_t draw(std::mt19937& random, std::int32_t low, std::int32_t high) {
  return std::uniform_int_distribution<std::int32_t>(low, high)(random);
}

class Balanced : public ::testing::TestWithParam<std::int32_t> {};

TEST_P(Balanced, RankTokensDifferByAtMostOneWithoutDrafts) {
  std::mt19937 random(1);
  Planner planner(balanced(GetParam()));
  for (int i = 0; i < 500; ++i) {
    auto requests = random_requests(random, draw(random, 1, 40), 400);
    for (auto& request : requests) {
      if (request.num_computed >= request.prefill_len) {
        request.num_scheduled = std::min(request.num_scheduled, 1);
      }
    }
    const OwnedBatch batch(requests);
    const auto counts = rank_tokens(planner.plan(batch.scheduled()));
    ASSERT_LE(std::ranges::max(counts) - std::ranges::min(counts), 1);
  }
}

TEST_P(Balanced, DraftsAreWholeAndPromptsFillUpBesideThem) {
  std::mt19937 random(2);
  Planner planner(balanced(GetParam()));
  for (int i = 0; i < 500; ++i) {
    const OwnedBatch batch(random_requests(random, draw(random, 1, 40), 100));
    const auto& plan = planner.plan(batch.scheduled());
    std::vector<int> num_segments(batch.num_scheduled_tokens.size());
    std::vector<std::int32_t> decode_tokens(index(GetParam()));
    for (std::int32_t rank = 0; rank < GetParam(); ++rank) {
      for (const auto& segment : plan.segments(rank)) {
        if (!batch.is_prefilling.span()[index(segment.req_idx)]) {
          ASSERT_EQ(++num_segments[index(segment.req_idx)], 1);
          decode_tokens[index(rank)] += segment.num_tokens;
        }
      }
    }
    // A rank has more than its equal part only where its decodes alone are more.
    const auto equal = (plan.num_tokens() + GetParam() - 1) / GetParam();
    for (std::int32_t rank = 0; rank < GetParam(); ++rank) {
      ASSERT_LE(plan.num_rank_tokens(rank), std::max(equal, decode_tokens[index(rank)]));
    }
  }
}

TEST_P(Balanced, AttentionWorkOfLongPromptsIsEqualToWithinTwoPercent) {
  std::mt19937 random(3);
  Planner planner(balanced(GetParam()));
  for (int i = 0; i < 300; ++i) {
    std::vector<Request> requests;
    const auto num_reqs = draw(random, 1, 12);
    for (int k = 0; k < num_reqs; ++k) {
      const auto length = draw(random, 1024, draw(random, 0, 1) == 0 ? 1100 : 6000);
      const auto context = draw(random, 0, 1) == 0 ? 0 : draw(random, 1, 30000);
      requests.push_back(chunk(length, context, context + length));
    }
    const OwnedBatch batch(requests);
    ASSERT_LE(largest_over_equal(rank_work(planner.plan(batch.scheduled()), batch)), 1.02);
  }
}

TEST_P(Balanced, APromptSharedWithDecodesMakesUpForTheirContexts) {
  std::mt19937 random(4);
  Planner planner(balanced(GetParam()));
  for (int i = 0; i < 200; ++i) {
    std::vector<Request> requests;
    for (int k = 0; k < 30; ++k) {
      requests.push_back(decode(draw(random, 1, 8000)));
    }
    requests.push_back(prompt(draw(random, 2048, 4096)));
    const OwnedBatch batch(requests);
    ASSERT_LE(largest_over_equal(rank_work(planner.plan(batch.scheduled()), batch)), 1.02);
  }
}

TEST_P(Balanced, AtMostTwoSegmentsOfARequestOnARank) {
  std::mt19937 random(5);
  Planner planner(balanced(GetParam()));
  for (int i = 0; i < 500; ++i) {
    const OwnedBatch batch(random_requests(random, draw(random, 1, 40), 2000));
    for (const auto& segments : all_segments(planner.plan(batch.scheduled()))) {
      for (std::size_t k = 0; k + 2 < segments.size(); ++k) {
        ASSERT_NE(segments[k].req_idx, segments[k + 2].req_idx);
      }
      // Two that touch would be one.
      for (std::size_t k = 0; k + 1 < segments.size(); ++k) {
        ASSERT_FALSE(segments[k].req_idx == segments[k + 1].req_idx &&
                     segments[k].token_start + segments[k].num_tokens ==
                         segments[k + 1].token_start);
      }
    }
  }
}

TEST_P(Balanced, TheCountForDispatchIsThePlansWhateverTheContexts) {
  std::mt19937 random(6);
  Planner counter(balanced(GetParam()));
  Planner planner(balanced(GetParam()));
  for (int i = 0; i < 500; ++i) {
    const OwnedBatch batch(random_requests(random, draw(random, 0, 40), 300));
    const auto count = counter.max_rank_tokens(without_contexts(batch));
    ASSERT_EQ(planner.plan(without_contexts(batch)).max_rank_tokens(), count);
    ASSERT_EQ(planner.plan(batch.scheduled()).max_rank_tokens(), count);
    ASSERT_EQ(planner.max_rank_tokens(without_contexts(batch)), count);
  }
}

TEST_P(Balanced, PlansDoNotDependOnWhatWasPlannedBefore) {
  std::mt19937 random(7);
  Planner used(balanced(GetParam()));
  for (int i = 0; i < 200; ++i) {
    const OwnedBatch batch(random_requests(random, draw(random, 0, 30), 500));
    used.max_rank_tokens(without_contexts(batch));
    Planner fresh(balanced(GetParam()));
    ASSERT_EQ(all_segments(used.plan(batch.scheduled())),
              all_segments(fresh.plan(batch.scheduled())));
  }
}

TEST_P(Balanced, DecodesNotShardedAreOnEveryRankAndPromptsStayBalanced) {
  auto config = balanced(GetParam());
  config.shard_decode_requests = false;
  Planner planner(config);
  const OwnedBatch batch({decode(), prompt(7), decode(), prompt(50), prompt(5)});
  const auto& plan = planner.plan(batch.scheduled());
  const auto counts = rank_tokens(plan);
  EXPECT_LE(std::ranges::max(counts) - std::ranges::min(counts), 1);
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0), 62 + 2 * GetParam());
  EXPECT_TRUE(plan.is_replicated(0) && plan.is_replicated(2));
  EXPECT_FALSE(plan.is_replicated(1) || plan.is_replicated(3));
  EXPECT_EQ(planner.max_rank_tokens(without_contexts(batch)), plan.max_rank_tokens());
}

INSTANTIATE_TEST_SUITE_P(Pcp, Balanced, ::testing::Values(1, 2, 3, 4, 8, 16));

TEST(BalancedCases, PromptsThatFillTheRanksAreWhole) {
  for (const std::int32_t length : {17, 100, 2048}) {
    Planner planner(balanced(4));
    const auto& plan =
        planner.plan(OwnedBatch(std::vector<Request>(64, prompt(length))).scheduled());
    for (const auto& segments : all_segments(plan)) {
      EXPECT_EQ(segments.size(), 16U);
      EXPECT_TRUE(std::ranges::all_of(
          segments, [&](const RankSegment& s) { return s.num_tokens == length; }));
    }
  }
}

TEST(BalancedCases, ALongPromptIsCutAtBothEndsAndTheLastRankTakesTheMiddle) {
  Planner planner(balanced(2));
  const auto& plan = planner.plan(OwnedBatch({prompt(1024)}).scheduled());
  EXPECT_EQ(all_segments(plan), (Ranks{{{0, 0, 256, 0}, {0, 768, 256, 256}}, {{0, 256, 512, 0}}}));
}

TEST(BalancedCases, AShortPromptThatMustBeSplitHasOneSegmentARank) {
  Planner planner(balanced(4));
  const auto& plan = planner.plan(OwnedBatch({prompt(7)}).scheduled());
  EXPECT_EQ(all_segments(plan),
            (Ranks{{{0, 0, 2, 0}}, {{0, 2, 2, 0}}, {{0, 4, 2, 0}}, {{0, 6, 1, 0}}}));
}

TEST(BalancedCases, TheLongestDecodesGoToDifferentRanks) {
  Planner planner(balanced(2));
  const OwnedBatch batch({decode(9000), decode(10), decode(8000), decode(1000)});
  const auto& plan = planner.plan(batch.scheduled());
  EXPECT_EQ(all_segments(plan),
            (Ranks{{{0, 0, 1, 0}, {1, 1, 1, 1}}, {{2, 2, 1, 0}, {3, 3, 1, 1}}}));
}

TEST(BalancedCases, WithoutContextsDecodesStillSpreadEvenly) {
  Planner planner(balanced(2));
  const OwnedBatch batch({decode(9000), decode(10), decode(8000)});
  EXPECT_EQ(rank_tokens(planner.plan(without_contexts(batch))), (std::vector<std::int32_t>{2, 1}));
}

TEST(BalancedCases, TheLastTokensOfALongContextAreSplitWhereTheirWorkIsMoreThanATile) {
  Planner planner(balanced(2));
  const OwnedBatch batch({chunk(52, 3776, 3828), prompt(57), chunk(30, 2460, 2490)});
  const auto work = rank_work(planner.plan(batch.scheduled()), batch);
  EXPECT_LE(std::ranges::max(work) - std::ranges::min(work), kTileWork);
}

TEST(BalancedCases, MoreRanksThanTokensLeaveRanksIdle) {
  Planner planner(balanced(4));
  EXPECT_EQ(rank_tokens(planner.plan(OwnedBatch({prompt(1)}).scheduled())),
            (std::vector<std::int32_t>{1, 0, 0, 0}));
  EXPECT_EQ(rank_tokens(planner.plan(OwnedBatch({decode(), {0, 5, 9}, prompt(2)}).scheduled())),
            (std::vector<std::int32_t>{1, 1, 1, 0}));
}

TEST(BalancedCases, AnEmptyBatchHasAPlanWithoutSegments) {
  Planner planner(balanced(3));
  EXPECT_EQ(planner.plan(OwnedBatch().scheduled()).max_rank_tokens(), 0);
  EXPECT_EQ(planner.max_rank_tokens(OwnedBatch().scheduled()), 0);
}

TEST(BalancedCases, OtherContextsMakeAnotherPlan) {
  Planner planner(balanced(2));
  const OwnedBatch batch({decode(5), decode(500), decode(50)});
  const auto revision = planner.plan(batch.scheduled()).revision();
  EXPECT_EQ(planner.plan(batch.scheduled()).revision(), revision);
  const OwnedBatch later({decode(6), decode(501), decode(51)});
  EXPECT_GT(planner.plan(later.scheduled()).revision(), revision);
}

TEST(BalancedCases, TheLargestLengthsDoNotOverflow) {
  constexpr auto kMost = std::numeric_limits<std::int32_t>::max();
  auto config = balanced(3);
  config.limits.max_num_tokens = kMost;
  Planner planner(config);
  const OwnedBatch long_prompts({prompt(kMost / 2), prompt(kMost / 2)});
  const auto work = largest_over_equal([&] {
    std::vector<std::int64_t> sums;
    for (const auto& segments : all_segments(planner.plan(long_prompts.scheduled()))) {
      auto& sum = sums.emplace_back(0);
      for (const auto& segment : segments) {
        const auto start = std::int64_t{segment.token_start} -
                           long_prompts.query_start_loc[index(segment.req_idx)];
        sum +=
            segment.num_tokens * start + std::int64_t{segment.num_tokens} * segment.num_tokens / 2;
      }
    }
    return sums;
  }());
  EXPECT_LE(work, 1.02);
  const OwnedBatch long_contexts({chunk(1 << 20, kMost - (1 << 20), kMost), decode(kMost - 1)});
  const auto counts = rank_tokens(planner.plan(long_contexts.scheduled()));
  EXPECT_LE(std::ranges::max(counts) - std::ranges::min(counts), 1);
}

TEST(BalancedBadInput, ContextsAreChecked) {
  Planner planner(balanced(2));
  OwnedBatch batch({decode(5), prompt(7)});
  const auto revision = planner.plan(batch.scheduled()).revision();
  auto bad = batch.num_computed_tokens;
  auto scheduled = batch.scheduled();
  bad[1] = -3;
  scheduled.num_computed_tokens = bad;
  EXPECT_EQ(invalid([&] { planner.plan(scheduled); }),
            "[batch] num_computed_tokens[1] is -3, expected 0 or more");
  scheduled.num_computed_tokens = std::span(bad).first(1);
  EXPECT_EQ(invalid([&] { planner.plan(scheduled); }),
            "[batch] num_computed_tokens has 1 entries, expected 2, one a request");
  EXPECT_EQ(planner.plan(batch.scheduled()).revision(), revision);
}

TEST(BalancedBadInput, DcpIsRefused) {
  auto config = balanced(2);
  config.dcp_size = 2;
  config.shard_decode_requests = false;
  EXPECT_EQ(invalid([&] { Planner planner(config); }),
            "[plan] partition balanced with dcp_size 2: expected dcp_size 1");
}

}  // namespace
}  // namespace pyvllm_pp
