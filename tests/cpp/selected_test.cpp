#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "pyvllm_pp/tables.h"
#include "support/batches.h"

namespace pyvllm_pp::testing {
namespace {

using Counts = std::vector<std::int32_t>;
using Rows = std::vector<std::int64_t>;

/// What one rank writes for a batch, over memory that holds another step's tables.
struct RankTables {
  Rows tokens;  // the rank's rows: numbers of global tokens, in its local order
  Rows local_idx;
  Rows restore_idx;
  Counts num_rows;

  RankTables(const PlanConfig& config, const OwnedBatch& batch, std::int32_t rank) {
    Planner planner(config);
    const auto& plan = planner.plan(batch.scheduled());
    TableWriter writer(config, rank);
    std::vector<std::uint64_t> arena(device_arena_bytes(config) / 8 + 1, ~std::uint64_t{0});
    std::vector<std::uint64_t> host(host_arena_bytes(config) / 8 + 1);
    writer.write(plan, batch.view(), writer.sizes(plan, {}),
                 std::as_writable_bytes(std::span(arena)), std::as_writable_bytes(std::span(host)));
    const auto& device = writer.device();
    local_idx.assign(device.selected_local_idx.begin(), device.selected_local_idx.end());
    restore_idx.assign(device.selected_restore_idx.begin(), device.selected_restore_idx.end());
    num_rows.assign(writer.num_selected_rows().begin(), writer.num_selected_rows().end());
    for (const auto& segment : plan.segments(rank)) {
      for (std::int32_t i = 0; i < segment.num_tokens; ++i) {
        tokens.push_back(segment.token_start + i);
      }
    }
  }
};

/// The token whose row each request has after pack, gather and restore.
Rows sampled(const PlanConfig& config, const OwnedBatch& batch) {
  Rows packed;
  Rows rows;
  for (std::int32_t rank = 0; rank < config.pcp_size; ++rank) {
    const RankTables tables(config, batch, rank);
    for (std::int32_t i = 0; i < tables.num_rows[index(rank)]; ++i) {
      packed.push_back(tables.tokens[index(tables.local_idx[index(i)])]);
    }
    rows = tables.restore_idx;
  }
  for (auto& row : rows) {
    row = packed[index(row)];
  }
  return rows;
}

Counts num_rows(const PlanConfig& config, const OwnedBatch& batch) {
  return RankTables(config, batch, 0).num_rows;
}

TEST(Selected, LastTokensOfLongPromptsAreAllOnRankZero) {
  const OwnedBatch batch({prompt(512), prompt(512), prompt(512), prompt(512)});
  EXPECT_EQ(num_rows(pcp(2), batch), (Counts{4, 0}));
  EXPECT_EQ(sampled(pcp(2), batch), (Rows{511, 1023, 1535, 2047}));
}

TEST(Selected, DecodesAreWhereTheirTokenIs) {
  const OwnedBatch batch({decode(), decode(), decode()});
  EXPECT_EQ(num_rows(pcp(2), batch), (Counts{2, 1}));
  EXPECT_EQ(sampled(pcp(2), batch), (Rows{0, 1, 2}));
}

TEST(Selected, RowsComeInRequestOrder) {
  const OwnedBatch batch({decode(), prompt(7), decode(), prompt(30), chunk(2, 5, 9)});
  EXPECT_EQ(sampled(pcp(4), batch), (Rows{0, 7, 8, 38, 40}));
}

TEST(Selected, APromptShorterThanItsChunksHasItsRow) {
  for (const std::int32_t size : {1, 2, 3, 8}) {
    for (const std::int32_t length : {1, 2, 3, 6, 9, 18}) {
      const OwnedBatch batch({prompt(length)});
      EXPECT_EQ(sampled(pcp(size), batch), Rows{length - 1}) << "PCP " << size;
    }
  }
}

TEST(Selected, RowsOfReplicatedRequestsAreRankZeros) {
  const OwnedBatch batch({decode(), prompt(400), decode(), prompt(3)});
  EXPECT_EQ(num_rows(pcp_with_dcp(2, 2), batch), (Counts{4, 0}));
  EXPECT_EQ(sampled(pcp_with_dcp(2, 2), batch), (Rows{0, 400, 401, 404}));
}

TEST(Selected, RequestsWithoutTokensReadTheRowBefore) {
  const OwnedBatch batch({{0}, {0}, prompt(5), {0}, decode(), {0}});
  // Index -1, as the last token of an empty request at the start, is the last row.
  EXPECT_EQ(sampled(pcp(2), batch), (Rows{5, 5, 4, 4, 5, 5}));
}

TEST(Selected, ABatchWithoutTokensSelectsNothing) {
  const RankTables tables(pcp(2), OwnedBatch({{0}, {0}}), 0);
  EXPECT_EQ(tables.num_rows, (Counts{0, 0}));
  EXPECT_EQ(tables.restore_idx, (Rows{0, 0}));
}

TEST(Selected, LocalRowsBeyondTheirNumberAreZero) {
  const RankTables tables(pcp(2), OwnedBatch({decode(), decode(), decode()}), 1);
  EXPECT_EQ(tables.num_rows, (Counts{2, 1}));
  EXPECT_EQ(tables.local_idx, (Rows{0, 0, 0}));
}

TEST(Selected, RandomBatchesReadEachLastTokenOnceAndNoRankMoreThanItHas) {
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    const auto config = i % 3 == 0 ? pcp_with_dcp(2 + i % 4, 2 + i % 4) : pcp(1 + i % 8);
    OwnedBatch batch(random_requests(random, 1 + i % 20, 90));
    if (batch.num_tokens() == 0) {
      continue;
    }
    Rows expected;
    for (const auto end : std::span(batch.query_start_loc).subspan(1)) {
      expected.push_back(end == 0 ? batch.num_tokens() - 1 : end - 1);
    }
    EXPECT_EQ(sampled(config, batch), expected);
    for (std::int32_t rank = 0; rank < config.pcp_size; ++rank) {
      const RankTables tables(config, batch, rank);
      EXPECT_LE(index(tables.num_rows[index(rank)]), tables.tokens.size());
    }
  }
}

}  // namespace
}  // namespace pyvllm_pp::testing
