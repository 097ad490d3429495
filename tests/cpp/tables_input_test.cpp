#include <gtest/gtest.h>

#include "pyvllm_pp/error.h"
#include "support/batches.h"
#include "support/errors.h"
#include "support/steps.h"

/// Reuse of the device tables, and bad input of the table writer.
namespace pyvllm_pp {
namespace {

using testing::chunk;
using testing::copy;
using testing::decode;
using testing::invalid;
using testing::Memory;
using testing::OwnedBatch;
using testing::pcp;
using testing::pcp_with_dcp;
using testing::prompt;
using testing::RankStep;
using testing::Request;

const std::vector<Request> kBase{decode(9), prompt(7), decode(30)};

bool is_current(RankStep& step, const OwnedBatch& batch, const Padding& padding = {}) {
  const auto& plan = step.planner.plan(batch.scheduled());
  return step.writer.is_current(plan, batch.view(), step.writer.sizes(plan, padding));
}

TEST(Reuse, NothingIsCurrentBeforeTheFirstWrite) {
  RankStep step(pcp(2));
  EXPECT_FALSE(is_current(step, OwnedBatch(kBase)));
}

TEST(Reuse, TheSameStepIsCurrentWhateverItsPositions) {
  RankStep step(pcp(2));
  step.run(OwnedBatch(kBase));
  EXPECT_TRUE(is_current(step, OwnedBatch(kBase)));
  EXPECT_TRUE(is_current(step, OwnedBatch({decode(10), chunk(7, 8, 20), decode(31)})));
}

TEST(Reuse, EachChangeMakesTheTablesStale) {
  OwnedBatch other_slots(kBase);
  std::swap(other_slots.idx_mapping[0], other_slots.idx_mapping[2]);
  const std::vector<OwnedBatch> changed{
      OwnedBatch({decode(9), prompt(8), decode(30)}),  // a length
      OwnedBatch({decode(9), decode(30), prompt(7)}),  // the order
      OwnedBatch({prompt(1), prompt(7), decode(30)}),  // a flag
      OwnedBatch({decode(9), prompt(7)}),              // a request less
      other_slots,
  };
  for (const auto& batch : changed) {
    RankStep step(pcp(2));
    step.run(OwnedBatch(kBase));
    EXPECT_FALSE(is_current(step, batch));
  }
  RankStep step(pcp(2));
  step.run(OwnedBatch(kBase));
  EXPECT_FALSE(is_current(step, OwnedBatch(kBase), {.num_tokens = 9}));
  EXPECT_FALSE(is_current(step, OwnedBatch(kBase), {.num_reqs = 9}));
}

TEST(Reuse, TheWayBackToAnEarlierStepIsStale) {
  RankStep step(pcp(2));
  step.run(OwnedBatch(kBase));
  step.planner.plan(OwnedBatch({decode()}).scheduled());
  EXPECT_FALSE(is_current(step, OwnedBatch(kBase)));
}

TEST(Reuse, ABatchThatIsNotThePlansIsNeverCurrent) {
  RankStep step(pcp(2));
  const auto& plan = step.run(OwnedBatch(kBase));
  const auto sizes = step.writer.sizes(plan, {});
  OwnedBatch short_mapping(kBase);
  short_mapping.idx_mapping.resize(1);
  EXPECT_FALSE(step.writer.is_current(plan, short_mapping.view(), sizes));
  EXPECT_FALSE(step.writer.is_current(plan, OwnedBatch({decode()}).view(), sizes));
}

TEST(Reuse, RandomStepsAreCurrentExactlyWhenTheirTablesWouldBeEqual) {
  std::mt19937 random(31);
  RankStep kept(pcp(2));
  std::vector<OwnedBatch> batches;
  for (int i = 0; i < 6; ++i) {
    batches.emplace_back(testing::random_requests(random, 4, 9));
  }
  kept.run(batches[0]);
  for (int i = 0; i < 300; ++i) {
    const auto& batch = batches[std::uniform_int_distribution<std::size_t>(0, 5)(random)];
    RankStep fresh(pcp(2));
    fresh.run(batch);
    if (is_current(kept, batch)) {
      ASSERT_EQ(copy(kept.device().hidden_restore_idx), copy(fresh.device().hidden_restore_idx));
      ASSERT_EQ(copy(kept.device().padded_gather_idx), copy(fresh.device().padded_gather_idx));
      ASSERT_EQ(copy(kept.device().idx_mapping), copy(fresh.device().idx_mapping));
      ASSERT_EQ(copy(kept.device().query_start_loc), copy(fresh.device().query_start_loc));
    } else {
      kept.run(batch);
    }
    ASSERT_TRUE(is_current(kept, batch));
  }
}

TEST(Reuse, HostTablesThatMoveAreNewWhereDeviceTablesStand) {
  RankStep step(pcp(2));
  step.run(OwnedBatch(kBase));
  const OwnedBatch later({decode(10), chunk(7, 7, 14), decode(31)});
  const auto& plan = step.planner.plan(later.scheduled());
  Memory host(host_arena_bytes(pcp(2)));
  const auto* const standing = step.host().req_idx.data();
  step.writer.write_host(plan, later.view(), step.writer.sizes(plan, {}), host.span());
  EXPECT_EQ(copy(step.host().start_pos), (std::vector<std::int32_t>{10, 7, 13}));
  const auto* const moving = reinterpret_cast<const std::byte*>(step.host().start_pos.data());
  EXPECT_TRUE(moving >= host.span().data() && moving < host.span().data() + host.span().size());
  EXPECT_EQ(step.host().req_idx.data(), standing);
}

TEST(Reuse, HostTablesStandWhereTheSameMemoryIsGivenAgain) {
  RankStep kept(pcp(2));
  kept.run(OwnedBatch(kBase));
  const auto num_bytes = kept.host().num_bytes;
  const OwnedBatch later({decode(10), chunk(7, 7, 14), decode(31)});
  const auto& plan = kept.planner.plan(later.scheduled());
  kept.writer.write_host(plan, later.view(), kept.writer.sizes(plan, {}), kept.host_memory.span());
  RankStep fresh(pcp(2));
  fresh.run(later);
  EXPECT_EQ(copy(kept.host().req_idx), copy(fresh.host().req_idx));
  EXPECT_EQ(copy(kept.host().idx_mapping), copy(fresh.host().idx_mapping));
  EXPECT_EQ(copy(kept.host().num_scheduled_tokens), copy(fresh.host().num_scheduled_tokens));
  EXPECT_EQ(copy(kept.host().query_start_loc), copy(fresh.host().query_start_loc));
  EXPECT_EQ(copy(kept.host().cu_num_logits), copy(fresh.host().cu_num_logits));
  EXPECT_EQ(copy(kept.host().start_pos), copy(fresh.host().start_pos));
  EXPECT_EQ(kept.host().num_bytes, num_bytes);
}

TEST(Reuse, WriteHostRefusesStaleDeviceTables) {
  RankStep step(pcp(2));
  const OwnedBatch batch(kBase);
  const auto& plan = step.planner.plan(batch.scheduled());
  Memory host(host_arena_bytes(pcp(2)));
  const auto error = invalid([&] {
    step.writer.write_host(plan, batch.view(), step.writer.sizes(plan, {}), host.span());
  });
  EXPECT_EQ(error, concat("[tables] the device tables are of another step, expected those of this "
                          "plan (revision ",
                          plan.revision(), ", written 0)"));
  EXPECT_TRUE(host.is_untouched());
}

/// A write that must fail, with its text; and that nothing was written.
class Refusal : public ::testing::Test {
 protected:
  std::string write(const Plan& plan, const OwnedBatch& given, const TableSizes& sizes) {
    const auto error = invalid([&] {
      step.writer.write(plan, given.view(), sizes, step.device_arena.span(),
                        step.host_memory.span());
    });
    EXPECT_TRUE(step.device_arena.is_untouched());
    EXPECT_TRUE(step.host_memory.is_untouched());
    EXPECT_TRUE(step.device().hidden_restore_idx.empty());
    EXPECT_TRUE(step.host().req_idx.empty());
    return error;
  }
  std::string padding_error(const Padding& padding) {
    const auto& plan = step.planner.plan(batch.scheduled());
    return invalid([&] { (void)step.writer.sizes(plan, padding); });
  }

  RankStep step{pcp(2)};
  OwnedBatch batch{kBase};
};

TEST_F(Refusal, OfAnotherBatchThanThePlans) {
  const auto& plan = step.planner.plan(batch.scheduled());
  EXPECT_EQ(write(plan, OwnedBatch({decode()}), step.writer.sizes(plan, {})),
            "[tables] the plan (3 requests, 9 tokens) was made from another batch than the one "
            "given (1 requests)");
}

TEST_F(Refusal, OfAPlanThatWasNeverMade) {
  EXPECT_EQ(invalid([&] { (void)step.writer.sizes(Plan(), {}); }),
            "[tables] the plan is one of 0 ranks, expected 2");
}

TEST_F(Refusal, OfAPlanOfOtherRanks) {
  Planner other(pcp(4));
  const auto& plan = other.plan(batch.scheduled());
  EXPECT_EQ(invalid([&] { (void)step.writer.sizes(plan, {}); }),
            "[tables] the plan is one of 4 ranks, expected 2");
  EXPECT_EQ(write(plan, batch, {3, 5, 3, 5}), "[tables] the plan is one of 4 ranks, expected 2");
}

TEST_F(Refusal, OfSizesOfAnotherPlan) {
  const OwnedBatch small({decode()});
  const auto& first = step.planner.plan(small.scheduled());
  const auto sizes = step.writer.sizes(first, {});
  const auto& plan = step.planner.plan(OwnedBatch({decode(), decode(), decode()}).scheduled());
  EXPECT_EQ(write(plan, OwnedBatch({decode(), decode(), decode()}), sizes),
            "[tables] padded token count 1 is smaller than the largest rank's 2 tokens");
  const TableSizes wrong{
      .num_local_reqs = 9, .num_local_tokens = 2, .padded_num_reqs = 9, .padded_num_tokens = 2};
  EXPECT_EQ(write(plan, OwnedBatch({decode(), decode(), decode()}), wrong),
            concat("[tables] the sizes (9 rows, 2 tokens) are of another plan than the one given "
                   "(revision ",
                   plan.revision(), ")"));
}

TEST_F(Refusal, OfABatchWithoutRequests) {
  const OwnedBatch none;
  const auto& plan = step.planner.plan(none.scheduled());
  EXPECT_EQ(write(plan, none, step.writer.sizes(plan, {})),
            "[tables] a batch of 0 requests has no tables, expected 1 or more");
}

TEST_F(Refusal, OfABrokenBatch) {
  const auto& plan = step.planner.plan(batch.scheduled());
  batch.query_start_loc[1] = 4;
  EXPECT_EQ(write(plan, batch, step.writer.sizes(plan, {})),
            "[batch] query_start_loc[1] is 4, expected 1, the sum of num_scheduled_tokens before "
            "it");
}

TEST_F(Refusal, OfPaddingThatDoesNotFit) {
  EXPECT_EQ(padding_error({.num_tokens = 4}),
            "[tables] padded token count 4 is smaller than the largest rank's 5 tokens");
  EXPECT_EQ(padding_error({.num_tokens = -1}),
            "[tables] padded token count -1 is smaller than the largest rank's 5 tokens");
  EXPECT_EQ(padding_error({.num_tokens = 4097}),
            "[tables] padded token count 4097 exceeds the buffers' 4096 tokens");
  EXPECT_EQ(padding_error({.num_reqs = 2}),
            "[tables] padded request count 2 is smaller than this rank's 3 rows");
  EXPECT_EQ(padding_error({.num_reqs = 129}),
            "[tables] padded request count 129 exceeds the buffers' 128 rows");
}

TEST_F(Refusal, OfMemoryThatIsTooSmallOrNotAligned) {
  const auto& plan = step.planner.plan(batch.scheduled());
  const auto sizes = step.writer.sizes(plan, {});
  const auto device_bytes = step.writer.device_bytes(plan, sizes);
  const auto host_bytes = step.writer.host_bytes(sizes);
  const auto write_into = [&](std::span<std::byte> device, std::span<std::byte> host) {
    return invalid([&] { step.writer.write(plan, batch.view(), sizes, device, host); });
  };
  const auto device = step.device_arena.span();
  const auto host = step.host_memory.span();
  EXPECT_EQ(write_into(device.first(device_bytes - 1), host),
            concat("[tables] device arena has ", device_bytes - 1, " bytes, this step needs ",
                   device_bytes));
  EXPECT_EQ(
      write_into(device, host.first(host_bytes - 1)),
      concat("[tables] host memory has ", host_bytes - 1, " bytes, this step needs ", host_bytes));
  EXPECT_EQ(write_into(device.subspan(4), host), "[tables] device arena is not aligned to 8 bytes");
  EXPECT_EQ(write_into(device, host.subspan(1)), "[tables] host memory is not aligned to 8 bytes");
  EXPECT_TRUE(step.device_arena.is_untouched() && step.host_memory.is_untouched());
  EXPECT_EQ(write_into(device.first(device_bytes), host.first(host_bytes)), "");
}

TEST_F(Refusal, LeavesTheLastTablesStanding) {
  step.run(batch);
  const auto before = copy(step.device().hidden_restore_idx);
  const OwnedBatch other({decode(), decode()});
  const auto& plan = step.planner.plan(other.scheduled());
  EXPECT_NE(
      invalid([&] { step.writer.write(plan, other.view(), step.writer.sizes(plan, {}), {}, {}); }),
      "");
  EXPECT_EQ(copy(step.device().hidden_restore_idx), before);
}

TEST(BadInput, OfTheWritersConfiguration) {
  EXPECT_EQ(invalid([] { TableWriter writer(pcp(2), 2); }), "[tables] rank 2 is outside [0, 2)");
  EXPECT_EQ(invalid([] { TableWriter writer(pcp(2), -1); }), "[tables] rank -1 is outside [0, 2)");
  EXPECT_EQ(invalid([] { TableWriter writer(pcp(0), 0); }),
            "[plan] pcp_size is 0, expected 1 or more");
  const BatchLimits negative{.max_num_reqs = -1, .max_num_tokens = 1};
  EXPECT_EQ(invalid([&] { (void)device_arena_bytes(pcp(2, negative)); }),
            "[plan] max_num_reqs is -1, expected 1 or more");
  EXPECT_EQ(invalid([&] { (void)host_arena_bytes(pcp(2, negative)); }),
            "[plan] max_num_reqs is -1, expected 1 or more");
}

/// Buffers of one step's local tokens, full of what no step writes.
struct LocalMemory {
  explicit LocalMemory(const TableSizes& sizes)
      : input_ids(testing::index(sizes.padded_num_tokens), -7),
        positions(testing::index(sizes.padded_num_tokens), -7),
        is_padding(testing::index(sizes.padded_num_tokens), 7),
        seq_lens(testing::index(sizes.padded_num_reqs), -7),
        query_start_loc(testing::index(sizes.padded_num_reqs) + 3, -7) {}

  [[nodiscard]] LocalTokens view() {
    return {.input_ids = input_ids,
            .positions = positions,
            .is_padding = is_padding,
            .seq_lens = seq_lens,
            .query_start_loc = query_start_loc};
  }

  std::vector<std::int32_t> input_ids;
  std::vector<std::int64_t> positions;
  std::vector<std::uint8_t> is_padding;
  std::vector<std::int32_t> seq_lens;
  std::vector<std::int32_t> query_start_loc;
};

TEST(LocalTokens, AreTheRowsOfTheGatherIndex) {
  // Rank 0 of 2: decode 9, and chunks 0 and 3 of the prompt's four.
  const OwnedBatch batch({decode(9), prompt(7), decode(30)});
  const std::vector<std::int32_t> ids{50, 60, 61, 62, 63, 64, 65, 66, 70};
  const std::vector<std::int64_t> positions{9, 0, 1, 2, 3, 4, 5, 6, 30};
  RankStep step(pcp(2));
  const auto& plan = step.run(batch, {.num_tokens = 6});
  const auto sizes = step.writer.sizes(plan, {.num_tokens = 6});
  LocalMemory memory(sizes);
  step.writer.write_local(plan, ids, positions, memory.view());
  EXPECT_EQ(memory.input_ids, (std::vector<std::int32_t>{50, 60, 61, 66, 0, 0}));
  EXPECT_EQ(memory.positions, (std::vector<std::int64_t>{9, 0, 1, 6, 0, 0}));
  EXPECT_EQ(memory.is_padding, (std::vector<std::uint8_t>{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(memory.seq_lens, (std::vector<std::int32_t>{10, 2, 7}));
  EXPECT_EQ(memory.query_start_loc, (std::vector<std::int32_t>{0, 1, 3, 4, 4, 4}));
}

TEST(LocalTokens, AnIdleRankHasPaddingAlone) {
  const OwnedBatch batch({decode(9)});
  RankStep step(pcp(2), 1);
  const auto& plan = step.run(batch);
  LocalMemory memory(step.writer.sizes(plan, {}));
  step.writer.write_local(plan, std::vector{50}, std::vector<std::int64_t>{9}, memory.view());
  EXPECT_EQ(memory.input_ids, (std::vector<std::int32_t>{0}));
  EXPECT_EQ(memory.is_padding, (std::vector<std::uint8_t>{1}));
  EXPECT_EQ(memory.seq_lens, (std::vector<std::int32_t>{0}));
  EXPECT_EQ(memory.query_start_loc, (std::vector<std::int32_t>{0, 0, 0, 0}));
}

TEST(LocalTokens, SizesAndStepAreChecked) {
  const OwnedBatch batch({decode(9), decode(3)});
  RankStep step(pcp(2));
  const auto& plan = step.planner.plan(batch.scheduled());
  LocalMemory memory(step.writer.sizes(plan, {}));
  const std::vector<std::int32_t> ids{50, 60};
  const std::vector<std::int64_t> positions{9, 3};
  const auto write = [&] { step.writer.write_local(plan, ids, positions, memory.view()); };
  EXPECT_NE(invalid(write).find("the tables are of another step"), std::string::npos);
  step.run(batch);
  EXPECT_EQ(
      invalid([&] { step.writer.write_local(plan, std::vector{50}, positions, memory.view()); }),
      "[tables] input_ids has 1 entries, expected at least 2");
  memory.seq_lens.resize(4);
  EXPECT_EQ(invalid(write), "[tables] local seq_lens has 4 entries, expected 1");
  EXPECT_EQ(memory.input_ids, (std::vector<std::int32_t>{-7}));
}

TEST(Reuse, UpdateWritesTheDeviceTablesOnlyWhereTheyAreStale) {
  RankStep step(pcp(2));
  const auto update = [&step](const OwnedBatch& batch) {
    const auto& plan = step.planner.plan(batch.scheduled());
    return step.writer.update(plan, batch.view(), step.writer.sizes(plan, {}),
                              step.device_arena.span(), step.host_memory.span());
  };
  EXPECT_TRUE(update(OwnedBatch(kBase)));
  EXPECT_FALSE(update(OwnedBatch(kBase)));
  EXPECT_FALSE(update(OwnedBatch({decode(10), chunk(7, 8, 20), decode(31)})));
  EXPECT_EQ(step.host().start_pos[0], 10);
  EXPECT_TRUE(update(OwnedBatch({decode(10), decode(31)})));
}

}  // namespace
}  // namespace pyvllm_pp
