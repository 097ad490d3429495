#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "pyvllm_pp/feedback.h"
#include "support/batches.h"
#include "support/steps.h"

/// No step of the core asks the heap for memory after warm-up: every `operator new` is counted.

namespace {
std::atomic<std::size_t> num_allocations{0};

void* counted(std::size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) {
    return memory;
  }
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace pyvllm_pp {
namespace {

using testing::Bools;
using testing::decode;
using testing::index;
using testing::OwnedBatch;
using testing::pcp;
using testing::pcp_with_dcp;
using testing::random_requests;
using testing::RankStep;

template <typename Call>
std::size_t allocations_of(Call&& call) {
  const auto before = num_allocations.load();
  std::forward<Call>(call)();
  return num_allocations.load() - before;
}

std::vector<OwnedBatch> random_batches(int count) {
  std::mt19937 random(3);
  std::vector<OwnedBatch> batches;
  for (int i = 0; i < count; ++i) {
    const auto num_reqs = std::uniform_int_distribution(1, 20)(random);
    batches.emplace_back(random_requests(random, num_reqs, 150));
  }
  return batches;
}

TEST(Allocation, IsCounted) {
  EXPECT_EQ(allocations_of([] { std::vector<int> values(100); }), 1U);
}

/// The smallest batch is warm-up enough: what larger ones need was reserved at construction.
void expect_no_allocation_a_step(const PlanConfig& config) {
  const auto batches = random_batches(200);
  RankStep step(config, config.pcp_size - 1);
  step.run(OwnedBatch({decode()}));
  for (const auto& batch : batches) {
    EXPECT_EQ(allocations_of([&] { step.run(batch); }), 0U);
    EXPECT_EQ(allocations_of([&] {
                const auto& plan = step.planner.plan(batch.scheduled());
                const auto sizes = step.writer.sizes(plan, {});
                if (step.writer.is_current(plan, batch.view(), sizes)) {
                  step.writer.write_host(plan, batch.view(), sizes, step.host_memory.span());
                }
              }),
              0U);
  }
}

TEST(Allocation, NoneInPlanAndTables) { expect_no_allocation_a_step(pcp(8)); }

TEST(Allocation, NoneInPlanAndTablesUnderDcp) { expect_no_allocation_a_step(pcp_with_dcp(4, 4)); }

TEST(Allocation, NoneInBalancedPlans) {
  auto config = pcp(8);
  config.partition = Partition::balanced;
  expect_no_allocation_a_step(config);
  Planner planner(config);
  for (const auto& batch : random_batches(200)) {
    EXPECT_EQ(allocations_of([&] { planner.max_rank_tokens(batch.scheduled()); }), 0U);
  }
}

TEST(Allocation, NoneInTheArenaRing) {
  ArenaRing ring(3, 1024);
  EXPECT_EQ(allocations_of([&] { ring.next(); }), 0U);
}

TEST(Allocation, NoneInFeedback) {
  FeedbackRing ring(2, 64);
  std::vector<std::int64_t> consumed(64);
  const auto batches = random_batches(100);
  for (const auto& batch : batches) {
    const auto num_reqs = batch.idx_mapping.size();
    const Bools need(std::vector<int>(num_reqs, 1));
    EXPECT_EQ(allocations_of([&] {
                const auto step = ring.begin_step();
                ring.consume(std::span(consumed).first(index(ring.due_num_reqs())));
                ring.post(batch.idx_mapping, need.span());
                (void)ring.digest(batch.idx_mapping, batch.num_scheduled_tokens);
                ring.mark_ready(step);
                ring.free_slot(step % 64);
              }),
              0U);
  }
  FeedbackRing other(2, 64);
  for (const auto& batch : batches) {
    EXPECT_EQ(allocations_of([&] {
                const bool is_due = other.state(other.step() - 1) == EntryState::posted;
                other.advance(is_due, {}, consumed);
                other.post_batch(batch.view(), {});
              }),
              0U);
  }
}

}  // namespace
}  // namespace pyvllm_pp
