#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <iostream>
#include <set>
#include <string_view>

#include "support/feedback_pair.h"

/// All interleavings of the feedback ring's calls, legal or not, against the model.
///
/// PYVLLM_PP_EXPLORE=long goes further, in some minutes.
namespace pyvllm_pp {
namespace {

using testing::apply;
using testing::Call;
using testing::Fault;
using testing::FeedbackModel;
using testing::FeedbackPair;
using testing::kNumFaults;
using testing::Outcome;
using testing::Verb;

struct Bounds {
  std::int32_t depth;
  std::int32_t num_slots;
  std::int64_t last_step;      // begin_step is not called at it
  std::int64_t most_frees;     // of one slot
  bool whole_batches = false;  // whether only posts of all slots are made
  bool bad_input = false;      // whether calls with bad arguments are made too

  friend std::ostream& operator<<(std::ostream& out, const Bounds& bounds) {
    return out << "depth " << bounds.depth << ", " << bounds.num_slots << " slots, steps to "
               << bounds.last_step << ", " << bounds.most_frees << " frees a slot";
  }
};

const bool kLong = std::string_view(std::getenv("PYVLLM_PP_EXPLORE") == nullptr
                                        ? ""
                                        : std::getenv("PYVLLM_PP_EXPLORE")) == "long";

struct Explored {
  std::size_t states = 0;
  std::size_t transitions = 0;
  std::array<std::size_t, kNumFaults> faults{};

  void count(const Outcome& outcome) {
    ++transitions;
    ++faults[static_cast<std::size_t>(outcome.fault)];
  }
};

/// Every post: each order of each choice of slots, with each mask of needs.
std::vector<Call> posts(const Bounds& bounds) {
  std::vector<std::vector<std::int64_t>> choices{{}, {0}, {1}, {0, 1}, {1, 0}};
  std::erase_if(choices, [&bounds](const auto& slots) {
    const auto most = static_cast<std::size_t>(bounds.num_slots);
    return slots.size() > most || (slots.size() < most && bounds.whole_batches) ||
           (most == 1 && slots == std::vector<std::int64_t>{1});
  });
  std::vector<Call> calls;
  for (const auto& slots : choices) {
    for (std::size_t mask = 0; mask < (std::size_t{1} << slots.size()); ++mask) {
      Call call{.verb = Verb::post, .slots = slots};
      for (std::size_t i = 0; i < slots.size(); ++i) {
        call.need.push_back(((mask >> i) & 1U) != 0);
      }
      calls.push_back(call);
    }
  }
  return calls;
}

std::vector<Call> bad_calls(std::int32_t num_slots) {
  const std::vector<std::int64_t> too_many(static_cast<std::size_t>(num_slots) + 1, 0);
  return {{.verb = Verb::post, .slots = {num_slots}, .need = {true}},
          {.verb = Verb::post, .slots = {-1}, .need = {true}},
          {.verb = Verb::post, .slots = {0}, .need = {}},
          {.verb = Verb::post, .slots = too_many, .need = std::vector<bool>(too_many.size())},
          {.verb = Verb::free_slot, .number = num_slots},
          {.verb = Verb::free_slot, .number = -1}};
}

/// The calls to try in a state: all of them, whether allowed or not.
std::vector<Call> calls_at(const FeedbackModel& model, const Bounds& bounds) {
  std::vector<Call> calls = posts(bounds);
  if (model.step() < bounds.last_step) {
    calls.push_back({.verb = Verb::begin_step});
  }
  calls.push_back({.verb = Verb::consume});
  for (auto step = model.step() - bounds.depth - 1; step <= model.step() + 1; ++step) {
    calls.push_back({.verb = Verb::mark_ready, .number = step});
    calls.push_back({.verb = Verb::drop, .number = step});
  }
  for (std::int32_t slot = 0; slot < bounds.num_slots; ++slot) {
    if (model.frees(slot) < bounds.most_frees) {
      calls.push_back({.verb = Verb::free_slot, .number = slot});
    }
  }
  if (bounds.bad_input) {
    const auto bad = bad_calls(bounds.num_slots);
    calls.insert(calls.end(), bad.begin(), bad.end());
  }
  return calls;
}

/// Every call in every state that can be reached; a state once.
Explored explore_states(const Bounds& bounds) {
  Explored explored;
  std::set<FeedbackModel> seen;
  std::vector<FeedbackPair> open{FeedbackPair(bounds.depth, bounds.num_slots)};
  seen.insert(open.back().model);
  while (!open.empty()) {
    const auto here = std::move(open.back());
    open.pop_back();
    ++explored.states;
    for (const auto& call : calls_at(here.model, bounds)) {
      auto next = here;
      const auto [outcome, wrong] = apply(next, call);
      if (!wrong.empty()) {
        ADD_FAILURE() << wrong;
        return explored;
      }
      explored.count(outcome);
      if (outcome.fault == Fault::none && seen.insert(next.model).second) {
        open.push_back(std::move(next));
      }
    }
  }
  return explored;
}

/// Every sequence of calls of a length, each run to its end: what the ring keeps from its past
/// without showing it cannot hide here.
void explore_sequences(const FeedbackPair& here, const Bounds& bounds, int length,
                       Explored& explored) {
  ++explored.states;
  if (length == 0) {
    return;
  }
  for (const auto& call : calls_at(here.model, bounds)) {
    auto next = here;
    const auto [outcome, wrong] = apply(next, call);
    ASSERT_EQ(wrong, "");
    explored.count(outcome);
    explore_sequences(next, bounds, length - 1, explored);
  }
}

void print(const char* what, const Bounds& bounds, const Explored& explored) {
  const auto refused = explored.transitions - explored.faults[0];
  std::cout << what << ": " << bounds << ": " << explored.states << " states, "
            << explored.transitions << " transitions, " << refused << " of them refused\n";
}

class Exploration : public ::testing::TestWithParam<Bounds> {};

TEST_P(Exploration, EveryCallInEveryStateIsAsInTheModel) {
  const auto explored = explore_states(GetParam());
  print("every state", GetParam(), explored);
  EXPECT_GT(explored.transitions, explored.states);
}

const std::vector<Bounds> kShortBounds{
    {1, 1, 6, 3}, {1, 2, 2, 1}, {2, 1, 5, 2}, {2, 2, 2, 0, true}, {3, 1, 5, 1}};
const std::vector<Bounds> kLongBounds{{1, 2, 3, 2}, {2, 2, 2, 1}, {3, 1, 7, 2}, {3, 2, 3, 1, true}};

INSTANTIATE_TEST_SUITE_P(Bounds, Exploration,
                         ::testing::ValuesIn(kLong ? kLongBounds : kShortBounds));

TEST(ExplorationSequences, EverySequenceIsAsInTheModel) {
  const Bounds bounds{1, 1, 3, 2};
  const int length = kLong ? 6 : 4;
  Explored explored;
  explore_sequences(FeedbackPair(bounds.depth, bounds.num_slots), bounds, length, explored);
  print("every sequence of calls", bounds, explored);
}

TEST(ExplorationFaults, EachTransitionThatIsNotAllowedIsReachedAndReported) {
  const auto explored = explore_states({1, 2, 2, 0, true, true});
  for (std::size_t fault = 0; fault < kNumFaults; ++fault) {
    EXPECT_GT(explored.faults[fault], 0U) << "fault " << fault << " was never reached";
  }
}

}  // namespace
}  // namespace pyvllm_pp
