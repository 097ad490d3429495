#include "support/worked_examples.h"

#include <gtest/gtest.h>

#include "pyvllm_pp/feedback.h"
#include "support/batches.h"
#include "support/steps.h"

/// The examples of tests/data/worked_examples.json, worked by hand, against the core.
namespace pyvllm_pp {
namespace {

using nlohmann::json;
using testing::array;
using testing::Bools;
using testing::copy;
using testing::Example;
using testing::index;
using testing::OwnedBatch;
using testing::RankStep;
using testing::worked_examples;

using Ints = std::vector<std::int32_t>;
using Longs = std::vector<std::int64_t>;

class Worked : public ::testing::TestWithParam<Example> {
 protected:
  static const json& example() { return GetParam().json; }

  static PlanConfig config() {
    const auto& given = example().at("config");
    return {.pcp_size = given.at("pcp_size"),
            .dcp_size = given.at("dcp_size"),
            .shard_decode_requests = given.at("shard_decode_requests"),
            .limits = {.max_num_reqs = example().value("max_num_reqs", 8), .max_num_tokens = 64}};
  }
};

OwnedBatch batch_of(const json& given) {
  OwnedBatch batch;
  batch.num_scheduled_tokens = array<std::int32_t>(given.at("num_scheduled_tokens"));
  batch.is_prefilling = Bools(array<int>(given.at("is_prefilling")));
  batch.query_start_loc = array<std::int32_t>(given.value("query_start_loc", json::array()));
  batch.num_computed_tokens =
      array<std::int32_t>(given.value("num_computed_tokens", json::array()));
  batch.prefill_len = array<std::int32_t>(given.value("prefill_len", json::array()));
  batch.idx_mapping = array<std::int64_t>(given.value("idx_mapping", json::array()));
  return batch;
}

Ints as_ints(std::span<const bool> flags) { return {flags.begin(), flags.end()}; }

/// A batch around scheduled tokens alone: what gathered tables do not look at is zero.
OwnedBatch around(const OwnedBatch& scheduled) {
  OwnedBatch batch = scheduled;
  const auto num_reqs = batch.num_scheduled_tokens.size();
  batch.query_start_loc = {0};
  for (const auto count : batch.num_scheduled_tokens) {
    batch.query_start_loc.push_back(batch.query_start_loc.back() + count);
  }
  batch.num_computed_tokens.assign(num_reqs, 0);
  batch.prefill_len.assign(num_reqs, 0);
  batch.idx_mapping.assign(num_reqs, 0);
  return batch;
}

class WorkedPlan : public Worked {};

TEST_P(WorkedPlan, SegmentsAndCounts) {
  Planner planner(config());
  const auto& plan = planner.plan(batch_of(example()).scheduled());
  std::vector<std::vector<Ints>> segments(index(plan.pcp_size()));
  for (std::int32_t rank = 0; rank < plan.pcp_size(); ++rank) {
    for (const auto& segment : plan.segments(rank)) {
      segments[index(rank)].push_back(
          {segment.req_idx, segment.token_start, segment.num_tokens, segment.local_start});
    }
  }
  EXPECT_EQ(json(segments), example().at("segments"));
  EXPECT_EQ(plan.max_rank_tokens(), example().at("max_rank_tokens"));
  Ints replicated;
  for (std::int32_t req = 0; req < plan.num_reqs(); ++req) {
    replicated.push_back(plan.is_replicated(req) ? 1 : 0);
  }
  EXPECT_EQ(json(replicated), example().at("is_replicated"));
}

TEST_P(WorkedPlan, GatheredTablesOnEveryRank) {
  const auto batch = around(batch_of(example()));
  for (std::int32_t rank = 0; rank < config().pcp_size; ++rank) {
    RankStep step(config(), rank);
    step.run(batch);
    const auto& device = step.device();
    EXPECT_EQ(json(copy(device.hidden_restore_idx)), example().at("hidden_restore_idx"));
    EXPECT_EQ(json(copy(device.padded_gather_idx)), example().at("padded_gather_idx"));
    EXPECT_EQ(json(as_ints(device.gathered_kv_write_mask)), example().at("gathered_kv_write_mask"));
    EXPECT_EQ(json(as_ints(device.gathered_is_padding)), example().at("gathered_is_padding"));
  }
}

class WorkedTables : public Worked {};

TEST_P(WorkedTables, EveryArray) {
  RankStep step(config(), example().at("rank"));
  step.run(batch_of(example().at("batch")), {.num_tokens = example().at("padded_num_tokens"),
                                             .num_reqs = example().at("padded_num_reqs")});
  const auto& device = step.device();
  const json device_tables{{"hidden_restore_idx", copy(device.hidden_restore_idx)},
                           {"padded_gather_idx", copy(device.padded_gather_idx)},
                           {"idx_mapping", copy(device.idx_mapping)},
                           {"query_start_loc", copy(device.query_start_loc)},
                           {"cu_num_logits", copy(device.cu_num_logits)},
                           {"logits_indices", copy(device.logits_indices)},
                           {"gathered_kv_write_mask", as_ints(device.gathered_kv_write_mask)},
                           {"gathered_is_padding", as_ints(device.gathered_is_padding)}};
  EXPECT_EQ(device_tables, example().at("device"));
  const auto& host = step.host();
  const json host_tables{{"req_idx", copy(host.req_idx)},
                         {"idx_mapping", copy(host.idx_mapping)},
                         {"num_scheduled_tokens", copy(host.num_scheduled_tokens)},
                         {"start_pos", copy(host.start_pos)},
                         {"prefill_len", copy(host.prefill_len)},
                         {"num_computed_prefill_tokens", copy(host.num_computed_prefill_tokens)},
                         {"query_start_loc", copy(host.query_start_loc)},
                         {"seq_lens_upper_bound", copy(host.seq_lens_upper_bound)},
                         {"cu_num_logits", copy(host.cu_num_logits)},
                         {"is_prefilling", as_ints(host.is_prefilling)}};
  EXPECT_EQ(host_tables, example().at("host"));
}

class WorkedMask : public Worked {};

TEST_P(WorkedMask, OfRequestsThatNeedTheirToken) {
  const auto batch = batch_of(example());
  const auto& given = example().at("max_seq_len");
  const auto limit = given.is_null() ? Ints{} : array<std::int32_t>(given);
  std::valarray<bool> mask(batch.num_scheduled_tokens.size());
  const std::span<bool> out(std::begin(mask), mask.size());
  const auto count = need_sampled_mask(batch.view(), limit, out);
  EXPECT_EQ(count, std::ranges::count(out, true));
  EXPECT_EQ(json(as_ints(out)), example().at("mask"));
}

class WorkedFeedback : public Worked {};

std::string_view text(Consumed consumed) {
  switch (consumed) {
    case Consumed::nothing:
      return "nothing";
    case Consumed::none:
      return "none";
    case Consumed::filtered:
      return "filtered";
    case Consumed::all:
      return "all";
  }
  return "?";
}

void expect_call(FeedbackRing& ring, const json& call) {
  const std::string name = call.at("call");
  if (name == "begin_step") {
    EXPECT_EQ(ring.begin_step(), call.at("gives"));
  } else if (name == "post") {
    const auto slots = array<std::int64_t>(call.at("idx_mapping"));
    const Bools need(array<int>(call.at("need_sampled")));
    EXPECT_EQ(ring.post(slots, need.span()), call.at("gives"));
  } else if (name == "mark_ready") {
    ring.mark_ready(call.at("step"));
  } else if (name == "free_slot") {
    ring.free_slot(call.at("slot"));
  } else if (name == "drop") {
    ring.drop(call.at("step"));
  } else {
    ASSERT_EQ(name, "consume");
    Longs taken(index(ring.due_num_reqs()));
    EXPECT_EQ(text(ring.consume(taken)), call.at("gives"));
    EXPECT_EQ(json(taken), call.at("idx_mapping"));
  }
}

TEST_P(WorkedFeedback, EveryCall) {
  FeedbackRing ring(example().at("depth"), example().at("max_num_reqs"));
  for (const auto& call : example().at("calls")) {
    expect_call(ring, call);
  }
}

const auto kName = [](const auto& example) { return example.param.name(); };
INSTANTIATE_TEST_SUITE_P(Examples, WorkedPlan, ::testing::ValuesIn(worked_examples("plans")),
                         kName);
INSTANTIATE_TEST_SUITE_P(Examples, WorkedTables, ::testing::ValuesIn(worked_examples("tables")),
                         kName);
INSTANTIATE_TEST_SUITE_P(Examples, WorkedMask, ::testing::ValuesIn(worked_examples("need_sampled")),
                         kName);
INSTANTIATE_TEST_SUITE_P(Examples, WorkedFeedback, ::testing::ValuesIn(worked_examples("feedback")),
                         kName);

}  // namespace
}  // namespace pyvllm_pp
