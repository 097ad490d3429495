#include "pyvllm_pp/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "pyvllm_pp/error.h"
#include "support/batches.h"
#include "support/errors.h"

namespace pyvllm_pp {
namespace {

using testing::Bools;
using testing::chunk;
using testing::decode;
using testing::index;
using testing::invalid;
using testing::kLimits;
using testing::OwnedBatch;
using testing::pcp;
using testing::pcp_with_dcp;
using testing::prompt;
using testing::random_requests;
using testing::Request;

/// The ranks that hold each token of the global batch.
std::vector<std::vector<std::int32_t>> holders(const Plan& plan) {
  std::vector<std::vector<std::int32_t>> ranks(index(plan.num_tokens()));
  for (std::int32_t rank = 0; rank < plan.pcp_size(); ++rank) {
    for (const auto& segment : plan.segments(rank)) {
      for (std::int32_t i = 0; i < segment.num_tokens; ++i) {
        ranks[index(segment.token_start + i)].push_back(rank);
      }
    }
  }
  return ranks;
}

std::vector<std::int32_t> rank_tokens(const Plan& plan) {
  std::vector<std::int32_t> counts;
  for (std::int32_t rank = 0; rank < plan.pcp_size(); ++rank) {
    counts.push_back(plan.num_rank_tokens(rank));
  }
  return counts;
}

std::vector<RankSegment> copy(std::span<const RankSegment> segments) {
  return {segments.begin(), segments.end()};
}

/// The owner of each request that is on one rank alone.
std::map<std::int32_t, std::int32_t> owners(const Plan& plan) {
  std::map<std::int32_t, std::int32_t> owner;
  for (std::int32_t rank = 0; rank < plan.pcp_size(); ++rank) {
    for (const auto& segment : plan.segments(rank)) {
      owner[segment.req_idx] = rank;
    }
  }
  return owner;
}

/// Rules of every policy, on random batches, for each topology.
class PlanRules
    : public ::testing::TestWithParam<std::tuple<std::int32_t, std::int32_t, Partition>> {
 protected:
  static PlanConfig config() {
    const auto [pcp_size, dcp_size, partition] = GetParam();
    auto config = dcp_size == 1 ? pcp(pcp_size) : pcp_with_dcp(pcp_size, dcp_size);
    config.partition = partition;
    return config;
  }

  template <typename Check>
  static void for_random_batches(const Check& check) {
    std::mt19937 random(17);
    Planner planner(config());
    for (int i = 0; i < 400; ++i) {
      const auto num_reqs = std::uniform_int_distribution(0, 20)(random);
      const OwnedBatch batch(random_requests(random, num_reqs, 150));
      check(planner.plan(batch.scheduled()), batch);
    }
  }
};

TEST_P(PlanRules, EachTokenIsOnOneRankOrOnAll) {
  for_random_batches([](const Plan& plan, const OwnedBatch& batch) {
    const auto ranks = holders(plan);
    for (std::int32_t req = 0; req < plan.num_reqs(); ++req) {
      const auto expected = plan.is_replicated(req) ? index(plan.pcp_size()) : 1U;
      for (auto token = batch.query_start_loc[index(req)];
           token < batch.query_start_loc[index(req) + 1]; ++token) {
        ASSERT_EQ(ranks[index(token)].size(), expected) << "token " << token;
      }
    }
  });
}

TEST_P(PlanRules, SegmentsStayInTheirRequestAndFollowEachOther) {
  for_random_batches([](const Plan& plan, const OwnedBatch& batch) {
    for (std::int32_t rank = 0; rank < plan.pcp_size(); ++rank) {
      std::int32_t local = 0;
      for (const auto& segment : plan.segments(rank)) {
        const auto req = index(segment.req_idx);
        ASSERT_GT(segment.num_tokens, 0);
        ASSERT_GE(segment.token_start, batch.query_start_loc[req]);
        ASSERT_LE(segment.token_start + segment.num_tokens, batch.query_start_loc[req + 1]);
        ASSERT_EQ(segment.local_start, local);
        local += segment.num_tokens;
      }
      ASSERT_EQ(plan.num_rank_tokens(rank), local);
    }
  });
}

TEST_P(PlanRules, DecodesComeFirstThenRequestThenTokenOrder) {
  for_random_batches([](const Plan& plan, const OwnedBatch& batch) {
    for (std::int32_t rank = 0; rank < plan.pcp_size(); ++rank) {
      const auto segments = plan.segments(rank);
      const auto key = [&batch](const RankSegment& segment) {
        return std::tuple(batch.is_prefilling.span()[index(segment.req_idx)], segment.req_idx,
                          segment.token_start);
      };
      ASSERT_TRUE(std::ranges::is_sorted(segments, {}, key));
      ASSERT_LE(segments.size(), 2 * batch.num_scheduled_tokens.size());
    }
  });
}

TEST_P(PlanRules, CountsForDispatchAreThoseOfTheSegments) {
  for_random_batches([](const Plan& plan, const OwnedBatch& batch) {
    const auto counts = rank_tokens(plan);
    ASSERT_EQ(plan.num_tokens(), batch.num_tokens());
    ASSERT_EQ(plan.num_reqs(), static_cast<std::int32_t>(batch.num_scheduled_tokens.size()));
    ASSERT_EQ(plan.max_rank_tokens(), *std::ranges::max_element(counts));
    ASSERT_EQ(plan.has_prefill(), std::ranges::count(batch.is_prefilling.span(), true) > 0);
  });
}

TEST_P(PlanRules, TheSameInputsGiveTheSamePlanOnEveryRank) {
  Planner other(config());
  for_random_batches([&other](const Plan& plan, const OwnedBatch& batch) {
    const auto& second = other.plan(batch.scheduled());
    for (std::int32_t rank = 0; rank < plan.pcp_size(); ++rank) {
      ASSERT_TRUE(std::ranges::equal(plan.segments(rank), second.segments(rank)));
    }
  });
}

std::string name_of(const ::testing::TestParamInfo<PlanRules::ParamType>& info) {
  const auto [pcp_size, dcp_size, partition] = info.param;
  return concat("Pcp", pcp_size, "Dcp", dcp_size,
                partition == Partition::balanced ? "Balanced" : "");
}

INSTANTIATE_TEST_SUITE_P(Pcp, PlanRules,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 8), ::testing::Values(1),
                                            ::testing::Values(Partition::dual_chunk_swap,
                                                              Partition::balanced)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Dcp, PlanRules,
                         ::testing::Combine(::testing::Values(2, 4, 8), ::testing::Values(2, 4, 8),
                                            ::testing::Values(Partition::dual_chunk_swap)),
                         name_of);

TEST(DualChunkSwap, RankTakesAChunkFromEachEnd) {
  Planner planner(pcp(4));
  const auto& plan = planner.plan(OwnedBatch({prompt(80)}).scheduled());
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(copy(plan.segments(rank)),
              (std::vector<RankSegment>{{0, 10 * rank, 10, 0}, {0, 70 - 10 * rank, 10, 10}}));
  }
}

TEST(DualChunkSwap, TheShortTailFallsToLowRanks) {
  Planner planner(pcp(2));
  const auto& plan = planner.plan(OwnedBatch({prompt(607)}).scheduled());
  EXPECT_EQ(rank_tokens(plan), (std::vector<std::int32_t>{303, 304}));
}

TEST(DualChunkSwap, C1TwoTokenPrompt) {
  Planner planner(pcp(2));
  const auto& plan = planner.plan(OwnedBatch({prompt(2)}).scheduled());
  EXPECT_EQ(rank_tokens(plan), (std::vector<std::int32_t>{1, 1}));
  Planner with_dcp(pcp_with_dcp(2, 2));
  const auto& whole = with_dcp.plan(OwnedBatch({prompt(2)}).scheduled());
  EXPECT_EQ(rank_tokens(whole), (std::vector<std::int32_t>{2, 2}));
  EXPECT_TRUE(whole.is_replicated(0));
}

TEST(DualChunkSwap, C2OneTokenPromptLeavesOtherRanksIdle) {
  for (const std::int32_t pcp_size : {2, 4, 8}) {
    Planner planner(pcp(pcp_size));
    const auto& plan = planner.plan(OwnedBatch({prompt(1)}).scheduled());
    EXPECT_EQ(plan.num_rank_tokens(0), 1);
    EXPECT_EQ(plan.max_rank_tokens(), 1);
    for (std::int32_t rank = 1; rank < pcp_size; ++rank) {
      EXPECT_TRUE(plan.segments(rank).empty());
    }
  }
}

TEST(DualChunkSwap, C4DecodeOwnersAlternateOverDecodesOnly) {
  Planner planner(pcp(2));
  const OwnedBatch batch({decode(), prompt(7), {0, 5, 9}, decode(), decode()});
  const auto owner = owners(planner.plan(batch.scheduled()));
  EXPECT_EQ(owner.at(0), 0);
  EXPECT_EQ(owner.at(3), 1);
  EXPECT_EQ(owner.at(4), 0);
}

TEST(DualChunkSwap, C4ADecodeRowWithoutTokensTakesNoTurn) {
  Planner planner(pcp(2));
  const OwnedBatch batch({decode(), {0, 9, 9}, decode()});
  const auto owner = owners(planner.plan(batch.scheduled()));
  EXPECT_EQ(owner, (std::map<std::int32_t, std::int32_t>{{0, 0}, {2, 1}}));
}

TEST(DualChunkSwap, C5OneDecodeLeavesThreeRanksIdle) {
  Planner planner(pcp(4));
  const auto& plan = planner.plan(OwnedBatch({decode()}).scheduled());
  EXPECT_EQ(rank_tokens(plan), (std::vector<std::int32_t>{1, 0, 0, 0}));
  EXPECT_EQ(plan.max_rank_tokens(), 1);
}

TEST(DualChunkSwap, C8ALengthNotDivisibleByTheChunksIsWholeOverTheRanks) {
  for (const std::int32_t length : {5, 6, 7, 9, 607}) {
    Planner planner(pcp(2));
    const auto counts = rank_tokens(planner.plan(OwnedBatch({prompt(length)}).scheduled()));
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0), length);
  }
}

TEST(DualChunkSwap, C10OnlyTheLastRanksCanBeEmpty) {
  std::mt19937 random(5);
  Planner planner(pcp(3));
  for (int i = 0; i < 500; ++i) {
    const OwnedBatch batch(random_requests(random, 3, 8));
    const auto counts = rank_tokens(planner.plan(batch.scheduled()));
    const auto first_empty = std::ranges::find(counts, 0);
    ASSERT_TRUE(std::all_of(first_empty, counts.end(), [](auto count) { return count == 0; }));
  }
}

TEST(Dcp, DecodesAreOnEveryRank) {
  Planner planner(pcp_with_dcp(4, 4));
  const auto& plan = planner.plan(OwnedBatch({decode(), decode()}).scheduled());
  EXPECT_EQ(rank_tokens(plan), (std::vector<std::int32_t>{2, 2, 2, 2}));
  EXPECT_TRUE(plan.is_replicated(0) && plan.is_replicated(1));
}

TEST(Dcp, APromptIsSplitExactlyWhenItFillsAllChunks) {
  for (const std::int32_t pcp_size : {2, 3, 4, 8}) {
    Planner planner(pcp_with_dcp(pcp_size, pcp_size));
    const std::int32_t num_chunks = 2 * pcp_size;
    for (std::int32_t length = 1; length <= 4 * num_chunks; ++length) {
      const auto& plan = planner.plan(OwnedBatch({prompt(length)}).scheduled());
      std::vector<std::int32_t> lengths;
      for (std::int32_t start = 0, size = (length + num_chunks - 1) / num_chunks; start < length;
           start += size) {
        lengths.push_back(std::min(size, length - start));
      }
      const bool fills_all = lengths.size() == index(num_chunks);
      ASSERT_EQ(plan.is_replicated(0), !fills_all) << length << " at " << pcp_size;
    }
  }
}

TEST(Dcp, WithoutItAShortPromptIsSplit) {
  Planner planner(pcp(4));
  const auto& plan = planner.plan(OwnedBatch({prompt(3)}).scheduled());
  EXPECT_FALSE(plan.is_replicated(0));
  EXPECT_EQ(rank_tokens(plan), (std::vector<std::int32_t>{1, 1, 1, 0}));
}

TEST(Decodes, NotShardedAreOnEveryRank) {
  auto config = pcp(2);
  config.shard_decode_requests = false;
  Planner planner(config);
  const auto& plan = planner.plan(OwnedBatch({decode(), prompt(2)}).scheduled());
  EXPECT_TRUE(plan.is_replicated(0));
  EXPECT_FALSE(plan.is_replicated(1));
  EXPECT_EQ(rank_tokens(plan), (std::vector<std::int32_t>{2, 2}));
}

TEST(Decodes, DraftTokensStayWithTheirRequest) {
  Planner planner(pcp(2));
  const auto& plan = planner.plan(OwnedBatch({{4, 9, 9}, {3, 9, 9}}).scheduled());
  EXPECT_EQ(rank_tokens(plan), (std::vector<std::int32_t>{4, 3}));
}

TEST(EmptyBatch, HasAPlanWithoutSegments) {
  Planner planner(pcp(2));
  const auto& plan = planner.plan(OwnedBatch().scheduled());
  EXPECT_EQ(plan.num_reqs(), 0);
  EXPECT_EQ(plan.max_rank_tokens(), 0);
  EXPECT_FALSE(plan.has_prefill());
}

TEST(Reuse, TheSameInputsGiveTheSameRevision) {
  Planner planner(pcp(2));
  const auto revision = planner.plan(OwnedBatch({decode(), prompt(7)}).scheduled()).revision();
  EXPECT_GT(revision, 0U);
  EXPECT_EQ(planner.plan(OwnedBatch({decode(), prompt(7)}).scheduled()).revision(), revision);
}

TEST(Reuse, EachChangeOfInputsMakesAnotherPlan) {
  Planner planner(pcp(2));
  const std::vector<Request> base{decode(), prompt(7), decode()};
  std::vector<std::vector<Request>> changed{{decode(), prompt(8), decode()},
                                            {prompt(7), decode(), decode()},
                                            {decode(), prompt(7)},
                                            {decode(), prompt(7), decode(), decode()},
                                            {prompt(1), prompt(7), decode()}};
  for (const auto& requests : changed) {
    const auto before = planner.plan(OwnedBatch(base).scheduled()).revision();
    const auto after = planner.plan(OwnedBatch(requests).scheduled()).revision();
    EXPECT_GT(after, before);
    EXPECT_GT(planner.plan(OwnedBatch(base).scheduled()).revision(), after);
  }
}

TEST(Reuse, RevisionsAreUniqueOverPlanners) {
  Planner first(pcp(2));
  Planner second(pcp(2));
  const OwnedBatch batch({decode()});
  EXPECT_NE(first.plan(batch.scheduled()).revision(), second.plan(batch.scheduled()).revision());
}

TEST(Reuse, APlanKnowsItsInputs) {
  EXPECT_FALSE(Plan().is_made_from(OwnedBatch().scheduled()));
  Planner planner(pcp(2));
  const OwnedBatch batch({decode(), prompt(7)});
  const auto& plan = planner.plan(batch.scheduled());
  EXPECT_TRUE(plan.is_made_from(batch.scheduled()));
  EXPECT_FALSE(plan.is_made_from(OwnedBatch({decode(), prompt(6)}).scheduled()));
  EXPECT_FALSE(plan.is_made_from(OwnedBatch({decode(), chunk(7, 9, 9)}).scheduled()));
}

TEST(BadInput, LeavesTheLastPlanStanding) {
  Planner planner(pcp(2));
  const OwnedBatch batch({decode(), prompt(7)});
  const auto& plan = planner.plan(batch.scheduled());
  const auto revision = plan.revision();
  const auto segments = copy(plan.segments(1));
  OwnedBatch bad({prompt(7), prompt(9)});
  bad.num_scheduled_tokens[1] = -9;
  EXPECT_EQ(invalid([&] { planner.plan(bad.scheduled()); }),
            "[batch] num_scheduled_tokens[1] is -9, expected 0 or more");
  EXPECT_EQ(plan.revision(), revision);
  EXPECT_EQ(copy(plan.segments(1)), segments);
  EXPECT_TRUE(plan.is_made_from(batch.scheduled()));
}

TEST(BadInput, ASizeBelowOneIsNamed) {
  EXPECT_EQ(invalid([] { Planner planner(pcp(0)); }), "[plan] pcp_size is 0, expected 1 or more");
  EXPECT_EQ(invalid([] { Planner planner(pcp_with_dcp(2, -1)); }),
            "[plan] dcp_size is -1, expected 1 or more");
  EXPECT_EQ(invalid([] { Planner planner(pcp(2, {.max_num_reqs = 0, .max_num_tokens = 1})); }),
            "[plan] max_num_reqs is 0, expected 1 or more");
  EXPECT_EQ(invalid([] { Planner planner(pcp(2, {.max_num_reqs = 1, .max_num_tokens = 0})); }),
            "[plan] max_num_tokens is 0, expected 1 or more");
}

TEST(BadInput, RowsBeyondInt32AreRefusedBeforeMemoryIsAsked) {
  const BatchLimits limits{.max_num_reqs = 1 << 30, .max_num_tokens = 1};
  EXPECT_EQ(invalid([&] { Planner planner(pcp(2, limits)); }),
            "[plan] max_num_reqs is 1073741824, expected at most 1073741823");
}

TEST(BadInput, ShardedDecodesUnderDcpAreRefused) {
  auto config = pcp_with_dcp(2, 2);
  config.shard_decode_requests = true;
  EXPECT_EQ(invalid([&] { Planner planner(config); }),
            "[plan] shard_decode_requests with dcp_size 2: under DCP every rank needs every "
            "decode, expected shard_decode_requests=False");
}

TEST(BadInput, ARankOrRowOutsideThePlanIsNamed) {
  Planner planner(pcp(2));
  const auto& plan = planner.plan(OwnedBatch({decode()}).scheduled());
  EXPECT_EQ(invalid([&] { (void)plan.segments(2); }), "[plan] rank 2 is outside [0, 2)");
  EXPECT_EQ(invalid([&] { (void)plan.num_rank_tokens(-1); }), "[plan] rank -1 is outside [0, 2)");
  EXPECT_EQ(invalid([&] { (void)plan.is_replicated(1); }),
            "[plan] request row 1 is outside [0, 1)");
}

}  // namespace
}  // namespace pyvllm_pp
