#include "pyvllm_pp/tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "support/batches.h"
#include "support/steps.h"

namespace pyvllm_pp {
namespace {

using testing::chunk;
using testing::copy;
using testing::decode;
using testing::index;
using testing::OwnedBatch;
using testing::pcp;
using testing::pcp_with_dcp;
using testing::prompt;
using testing::random_requests;
using testing::RankStep;

using Ints = std::vector<std::int32_t>;
using Longs = std::vector<std::int64_t>;
using Flags = std::vector<bool>;

/// Global tokens of all ranks' rows in padded gathered order; -1 on padding.
Longs gathered_tokens(const Plan& plan, std::int32_t padded_num_tokens) {
  Longs gathered;
  for (std::int32_t rank = 0; rank < plan.pcp_size(); ++rank) {
    for (const auto& segment : plan.segments(rank)) {
      for (std::int32_t i = 0; i < segment.num_tokens; ++i) {
        gathered.push_back(segment.token_start + i);
      }
    }
    gathered.resize(index(padded_num_tokens) * index(rank + 1), -1);
  }
  return gathered;
}

/// Rules of every step, on random batches and paddings, for each topology and each rank.
class TableRules : public ::testing::TestWithParam<std::tuple<std::int32_t, std::int32_t>> {
 protected:
  static PlanConfig config() {
    const auto [pcp_size, dcp_size] = GetParam();
    return dcp_size == 1 ? pcp(pcp_size) : pcp_with_dcp(pcp_size, dcp_size);
  }

  template <typename Check>
  static void for_random_steps(const Check& check) {
    std::mt19937 random(23);
    for (std::int32_t rank = 0; rank < config().pcp_size; ++rank) {
      RankStep step(config(), rank);
      for (int i = 0; i < 100; ++i) {
        const auto num_reqs = std::uniform_int_distribution(1, 20)(random);
        const OwnedBatch batch(random_requests(random, num_reqs, 120));
        const auto extra = std::uniform_int_distribution(0, 9)(random);
        const auto& plan = step.planner.plan(batch.scheduled());
        const auto num_rows = static_cast<std::int32_t>(plan.segments(rank).size());
        step.run(batch, {.num_tokens = extra == 0 ? 0 : plan.max_rank_tokens() + extra,
                         .num_reqs = extra == 0 ? 0 : std::max(num_rows, 1) + extra});
        check(step, plan, batch);
      }
    }
  }
};

TEST_P(TableRules, RestoreAndGatherAreInverse) {
  for_random_steps([](const RankStep& step, const Plan& plan, const OwnedBatch& batch) {
    const auto& device = step.device();
    const auto padded = device.padded_gather_idx.size() / index(plan.pcp_size());
    const auto gathered = gathered_tokens(plan, static_cast<std::int32_t>(padded));
    ASSERT_EQ(device.hidden_restore_idx.size(), index(batch.num_tokens()));
    for (std::size_t token = 0; token < device.hidden_restore_idx.size(); ++token) {
      ASSERT_EQ(gathered[index(device.hidden_restore_idx[token])],
                static_cast<std::int64_t>(token));
    }
    for (std::size_t row = 0; row < gathered.size(); ++row) {
      ASSERT_EQ(device.padded_gather_idx[row], std::max<std::int64_t>(gathered[row], 0));
      ASSERT_EQ(device.gathered_is_padding[row], gathered[row] < 0);
    }
  });
}

TEST_P(TableRules, EachTokensKvIsWrittenOnceWhereRestoreReadsIt) {
  for_random_steps([](const RankStep& step, const Plan&, const OwnedBatch& batch) {
    const auto& device = step.device();
    const auto written = std::ranges::count(device.gathered_kv_write_mask, true);
    ASSERT_EQ(written, batch.num_tokens());
    for (const auto row : device.hidden_restore_idx) {
      ASSERT_TRUE(device.gathered_kv_write_mask[index(row)]);
    }
  });
}

TEST_P(TableRules, ARowsContextIsAllEarlierTokensOfItsRequest) {
  for_random_steps([](const RankStep& step, const Plan& plan, const OwnedBatch& batch) {
    const auto& host = step.host();
    const auto segments = plan.segments(step.writer.rank());
    for (std::size_t row = 0; row < segments.size(); ++row) {
      const auto req = index(host.req_idx[row]);
      const auto before = segments[row].token_start - batch.query_start_loc[req];
      ASSERT_EQ(segments[row].req_idx, host.req_idx[row]);
      ASSERT_EQ(host.start_pos[row], batch.num_computed_tokens[req] + before);
      ASSERT_EQ(host.num_scheduled_tokens[row], segments[row].num_tokens);
      ASSERT_EQ(host.seq_lens_upper_bound[row], host.start_pos[row] + segments[row].num_tokens);
      ASSERT_EQ(host.idx_mapping[row], batch.idx_mapping[req]);
      ASSERT_EQ(host.prefill_len[row], batch.prefill_len[req]);
      ASSERT_EQ(host.is_prefilling[row], host.start_pos[row] < host.prefill_len[row]);
      ASSERT_EQ(host.num_computed_prefill_tokens[row],
                std::min(host.start_pos[row], host.prefill_len[row]));
    }
  });
}

TEST_P(TableRules, RowsHaveOneLogitEachUnlessTheRankIsIdle) {
  for_random_steps([](const RankStep& step, const Plan& plan, const OwnedBatch&) {
    const auto& host = step.host();
    const bool idle = plan.num_rank_tokens(step.writer.rank()) == 0;
    for (std::size_t row = 0; row < host.cu_num_logits.size(); ++row) {
      ASSERT_EQ(host.cu_num_logits[row], idle ? 0 : static_cast<std::int32_t>(row));
    }
    Ints ends(host.query_start_loc.size());
    std::partial_sum(host.num_scheduled_tokens.begin(), host.num_scheduled_tokens.end(),
                     ends.begin() + 1);
    std::fill(ends.begin() + static_cast<std::ptrdiff_t>(host.req_idx.size()) + 1, ends.end(),
              plan.num_rank_tokens(step.writer.rank()));
    ASSERT_EQ(copy(host.query_start_loc), ends);
  });
}

TEST_P(TableRules, DeviceRowsRepeatTheHostsAndPadding) {
  for_random_steps([](const RankStep& step, const Plan&, const OwnedBatch&) {
    const auto& host = step.host();
    const auto& device = step.device();
    ASSERT_EQ(copy(device.idx_mapping), copy(host.idx_mapping));
    ASSERT_EQ(copy(device.cu_num_logits), copy(host.cu_num_logits));
    for (std::size_t i = 0; i < device.query_start_loc.size(); ++i) {
      const auto last = host.query_start_loc.size() - 1;
      ASSERT_EQ(device.query_start_loc[i], host.query_start_loc[std::min(i, last)]);
    }
    for (std::size_t row = 0; row < device.logits_indices.size(); ++row) {
      ASSERT_EQ(device.logits_indices[row], host.query_start_loc[row + 1] - 1);
    }
    for (auto row = host.req_idx.size(); row < host.is_prefilling.size(); ++row) {
      ASSERT_FALSE(host.is_prefilling[row]);
      ASSERT_EQ(host.seq_lens_upper_bound[row], 0);
    }
  });
}

TEST_P(TableRules, GatheredTablesAreTheSameOnEveryRank) {
  std::mt19937 random(29);
  RankStep first(config(), 0);
  RankStep last(config(), config().pcp_size - 1);
  for (int i = 0; i < 100; ++i) {
    const OwnedBatch batch(random_requests(random, 12, 120));
    first.run(batch);
    last.run(batch);
    ASSERT_EQ(copy(first.device().hidden_restore_idx), copy(last.device().hidden_restore_idx));
    ASSERT_EQ(copy(first.device().padded_gather_idx), copy(last.device().padded_gather_idx));
    ASSERT_EQ(copy(first.device().gathered_kv_write_mask),
              copy(last.device().gathered_kv_write_mask));
  }
}

INSTANTIATE_TEST_SUITE_P(Topologies, TableRules,
                         ::testing::Values(std::tuple(1, 1), std::tuple(2, 1), std::tuple(3, 1),
                                           std::tuple(8, 1), std::tuple(2, 2), std::tuple(4, 8)),
                         [](const auto& topology) {
                           return "Pcp" + std::to_string(std::get<0>(topology.param)) + "Dcp" +
                                  std::to_string(std::get<1>(topology.param));
                         });

TEST(Tables, C1TwoTokenPromptIsRestoredInOrder) {
  for (const auto& config : {pcp(2), pcp_with_dcp(2, 2)}) {
    RankStep step(config);
    step.run(OwnedBatch({prompt(2)}));
    EXPECT_EQ(copy(step.device().hidden_restore_idx), (Longs{0, 1}));
  }
}

TEST(Tables, C2AnIdleRankHasOneRowOfNoTokensAndNoLogits) {
  RankStep step(pcp(4), 3);
  step.run(OwnedBatch({prompt(1)}));
  EXPECT_EQ(copy(step.host().num_scheduled_tokens), (Ints{0}));
  EXPECT_EQ(copy(step.host().query_start_loc), (Ints{0, 0}));
  EXPECT_EQ(copy(step.host().cu_num_logits), (Ints{0, 0}));
  EXPECT_EQ(copy(step.device().gathered_is_padding), (Flags{false, true, true, true}));
}

TEST(Tables, C3RestoreIsAPermutationOfTheCountedRows) {
  const std::vector<std::tuple<std::int32_t, std::int32_t>> shapes{
      {2, 6}, {2, 9}, {4, 10}, {8, 18}};
  for (const auto& [pcp_size, length] : shapes) {
    RankStep step(pcp(pcp_size));
    step.run(OwnedBatch({prompt(length)}));
    auto rows = copy(step.device().hidden_restore_idx);
    std::ranges::sort(rows);
    Longs counted;
    for (std::size_t row = 0; row < step.device().gathered_is_padding.size(); ++row) {
      if (!step.device().gathered_is_padding[row]) {
        counted.push_back(static_cast<std::int64_t>(row));
      }
    }
    EXPECT_EQ(rows, counted) << length << " at " << pcp_size;
  }
}

TEST(Tables, C5ThreeIdleRanksGetTablesToo) {
  for (std::int32_t rank = 1; rank < 4; ++rank) {
    RankStep step(pcp(4), rank);
    step.run(OwnedBatch({decode(9)}));
    EXPECT_EQ(copy(step.host().start_pos), (Ints{9}));
    EXPECT_EQ(step.host().req_idx.size(), 1U);
    EXPECT_EQ(copy(step.device().logits_indices), (Ints{-1}));
  }
}

TEST(Tables, C7RowsAreKeyedByGlobalRequest) {
  OwnedBatch batch({chunk(4, 8, 20), decode(), prompt(6)});
  batch.idx_mapping = {30, 10, 20};
  RankStep step(pcp(2), 0);
  step.run(batch);
  EXPECT_EQ(copy(step.host().req_idx), (Longs{1, 0, 0, 2}));
  EXPECT_EQ(copy(step.host().idx_mapping), (Longs{10, 30, 30, 20}));
}

TEST(Tables, C10OffsetsBehindAnEmptyRankAreRight) {
  RankStep step(pcp(3), 2);
  const auto& plan = step.run(OwnedBatch({decode(), prompt(1), decode()}), {.num_tokens = 4});
  EXPECT_EQ(plan.num_rank_tokens(2), 0);
  EXPECT_EQ(copy(step.device().hidden_restore_idx), (Longs{0, 1, 4}));
  EXPECT_EQ(copy(step.device().padded_gather_idx), (Longs{0, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(Tables, C11AShortStepAfterALongOneHasNoOldRows) {
  RankStep step(pcp(2));
  step.run(OwnedBatch({prompt(200), prompt(300), decode()}));
  step.run(OwnedBatch({decode()}), {.num_tokens = 4, .num_reqs = 4});
  EXPECT_EQ(copy(step.device().gathered_kv_write_mask),
            (Flags{true, false, false, false, false, false, false, false}));
  EXPECT_EQ(copy(step.device().padded_gather_idx), Longs(8, 0));
  EXPECT_EQ(copy(step.device().query_start_loc).size(), 129U);
  EXPECT_EQ(std::ranges::count(step.device().query_start_loc, 1), 128);
  EXPECT_EQ(copy(step.host().seq_lens_upper_bound), (Ints{10, 0, 0, 0}));
}

TEST(Tables, DraftTokensKeepOneLogitARow) {
  RankStep step(pcp(2));
  step.run(OwnedBatch({{3, 9, 9}, decode()}));
  EXPECT_EQ(copy(step.device().logits_indices), (Ints{2}));
}

TEST(Tables, LieBehindEachOtherInTheArenaWidestFirst) {
  RankStep step(pcp(2));
  step.run(OwnedBatch({decode(), prompt(9)}));
  const auto& device = step.device();
  const auto* arena = step.device_arena.span().data();
  const auto offset = [arena](const auto& table) {
    return index(reinterpret_cast<const std::byte*>(table.data()) - arena);
  };
  EXPECT_EQ(offset(device.hidden_restore_idx), 0U);
  EXPECT_EQ(offset(device.padded_gather_idx), device.hidden_restore_idx.size_bytes());
  EXPECT_EQ(offset(device.gathered_is_padding) + device.gathered_is_padding.size_bytes(),
            device.num_bytes);
  EXPECT_LE(device.num_bytes, device_arena_bytes(pcp(2)));
  EXPECT_LE(step.host().num_bytes, host_arena_bytes(pcp(2)));
}

TEST(Tables, ArenasHoldTheLargestStep) {
  const BatchLimits limits{.max_num_reqs = 4, .max_num_tokens = 32};
  RankStep step(pcp(2, limits));
  step.run(OwnedBatch({prompt(8), prompt(8), prompt(8), prompt(8)}),
           {.num_tokens = 32, .num_reqs = 8});
  EXPECT_EQ(step.device().num_bytes, device_arena_bytes(pcp(2, limits)));
  EXPECT_EQ(step.host().num_bytes, host_arena_bytes(pcp(2, limits)));
}

}  // namespace
}  // namespace pyvllm_pp
