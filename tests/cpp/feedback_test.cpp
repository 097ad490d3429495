#include "pyvllm_pp/feedback.h"

#include <gtest/gtest.h>

#include "pyvllm_pp/error.h"
#include "support/batches.h"
#include "support/errors.h"

namespace pyvllm_pp {
namespace {

using testing::Bools;
using testing::index;
using testing::invalid;
using testing::text_of;

using Slots = std::vector<std::int64_t>;

/// A ring with the calls of a stage in short.
struct Stage {
  explicit Stage(std::int32_t depth, std::int32_t max_num_reqs = 8) : ring(depth, max_num_reqs) {}

  bool post(const Slots& slots) { return post(slots, std::vector<int>(slots.size(), 1)); }
  bool post(const Slots& slots, const std::vector<int>& need) {
    return ring.post(slots, Bools(need).span());
  }
  Consumed consume() {
    taken.resize(index(ring.due_num_reqs()));
    return ring.consume(taken);
  }
  void begin(int count = 1) {
    for (int i = 0; i < count; ++i) {
      ring.begin_step();
    }
  }

  FeedbackRing ring;
  Slots taken;
};

template <typename Call>
std::string order_error(Call&& call) {
  return text_of<FeedbackOrderError>(std::forward<Call>(call));
}

TEST(Feedback, AnEntryGoesEmptyPostedReadyEmpty) {
  Stage stage(2);
  EXPECT_EQ(stage.ring.begin_step(), 0);
  EXPECT_EQ(stage.ring.state(0), EntryState::empty);
  EXPECT_TRUE(stage.post({5, 2}));
  EXPECT_EQ(stage.ring.state(0), EntryState::posted);
  stage.ring.mark_ready(0);
  EXPECT_EQ(stage.ring.state(0), EntryState::ready);
  EXPECT_EQ(stage.ring.begin_step(), 1);
  EXPECT_EQ(stage.consume(), Consumed::nothing);
  EXPECT_EQ(stage.ring.begin_step(), 2);
  EXPECT_EQ(stage.ring.due_num_reqs(), 2);
  EXPECT_EQ(stage.consume(), Consumed::all);
  EXPECT_EQ(stage.taken, (Slots{5, 2}));
  EXPECT_EQ(stage.ring.state(0), EntryState::empty);
  EXPECT_EQ(stage.ring.due_num_reqs(), 0);
}

TEST(Feedback, IsConsumedExactlyDepthStepsLater) {
  for (std::int32_t depth = 1; depth <= 5; ++depth) {
    Stage stage(depth);
    for (std::int64_t step = 0; step < 20; ++step) {
      stage.begin();
      const bool due = step >= depth;
      EXPECT_EQ(stage.consume(), due ? Consumed::all : Consumed::nothing);
      EXPECT_EQ(stage.taken, due ? Slots{(step - depth) % 8} : Slots{});
      stage.post({step % 8});
      stage.ring.mark_ready(step);
    }
  }
}

TEST(Feedback, C13ThreeStagesConsumeAtStepPlusThree) {
  Stage stage(3);
  stage.begin();
  stage.post({2, 0, 3});
  stage.ring.mark_ready(0);
  for (int step = 1; step < 3; ++step) {
    stage.begin();
    EXPECT_EQ(stage.consume(), Consumed::nothing);
  }
  stage.begin();
  EXPECT_EQ(stage.consume(), Consumed::all);
  EXPECT_EQ(stage.taken, (Slots{2, 0, 3}));
}

TEST(Feedback, C14AStepThatNobodyNeedsPostsNothing) {
  Stage stage(2);
  stage.begin();
  EXPECT_FALSE(stage.post({0, 1}, {0, 0}));
  EXPECT_EQ(stage.ring.state(0), EntryState::empty);
  EXPECT_FALSE(stage.post({}, {}));
  stage.begin();
  EXPECT_TRUE(stage.post({0, 1}, {0, 1}));
  stage.ring.mark_ready(1);
  stage.begin();
  EXPECT_EQ(stage.consume(), Consumed::nothing);
  stage.begin();
  EXPECT_EQ(stage.consume(), Consumed::filtered);
  EXPECT_EQ(stage.taken, (Slots{-1, 1}));
}

TEST(Feedback, C15AReusedSlotConsumesItsOwnTokenAlone) {
  Stage stage(2);
  stage.begin();
  stage.post({1});
  stage.ring.mark_ready(0);
  stage.ring.free_slot(1);
  stage.begin();
  stage.post({1});
  stage.ring.mark_ready(1);
  stage.begin();
  EXPECT_EQ(stage.consume(), Consumed::none);
  EXPECT_EQ(stage.taken, (Slots{-1}));
  stage.begin();
  EXPECT_EQ(stage.consume(), Consumed::all);
  EXPECT_EQ(stage.taken, (Slots{1}));
}

TEST(Feedback, C16TheLateTokenOfAnAbortedRequestIsLeftOut) {
  Stage stage(2);
  stage.begin();
  stage.post({0, 2, 4});
  stage.begin();
  stage.ring.free_slot(2);
  stage.ring.mark_ready(0);
  stage.begin();
  EXPECT_EQ(stage.consume(), Consumed::filtered);
  EXPECT_EQ(stage.taken, (Slots{0, -1, 4}));
}

TEST(Feedback, C7SlotsAreGlobalAndKeepTheirRow) {
  Stage stage(2);
  stage.begin();
  stage.post({6, 1, 3}, {1, 0, 1});
  stage.ring.mark_ready(0);
  stage.begin(2);
  EXPECT_EQ(stage.consume(), Consumed::filtered);
  EXPECT_EQ(stage.taken, (Slots{6, -1, 3}));
}

TEST(Feedback, TokensMayArriveInAnyOrderAndLate) {
  Stage stage(3);
  for (std::int64_t step = 0; step < 3; ++step) {
    stage.begin();
    stage.post({step});
  }
  for (const std::int64_t step : {2, 0, 1}) {
    stage.ring.mark_ready(step);
  }
  for (std::int64_t step = 0; step < 3; ++step) {
    stage.begin();
    EXPECT_EQ(stage.consume(), Consumed::all);
    EXPECT_EQ(stage.taken, (Slots{step}));
  }
}

TEST(Feedback, ADroppedEntryIsNotDue) {
  for (const bool ready : {false, true}) {
    Stage stage(1);
    stage.begin();
    stage.post({0});
    if (ready) {
      stage.ring.mark_ready(0);
    }
    stage.ring.drop(0);
    EXPECT_EQ(stage.ring.state(0), EntryState::empty);
    stage.begin();
    EXPECT_EQ(stage.consume(), Consumed::nothing);
    stage.ring.drop(0);
    stage.ring.drop(99);
    stage.ring.drop(-5);
    EXPECT_EQ(stage.ring.step(), 1);
  }
}

TEST(Feedback, ADroppedStepMayBePostedAgain) {
  Stage stage(1);
  stage.begin();
  stage.post({0});
  stage.ring.drop(0);
  EXPECT_TRUE(stage.post({3}));
}

TEST(Feedback, FreesAreCountedASlot) {
  Stage stage(2);
  stage.ring.free_slot(3);
  stage.ring.free_slot(3);
  EXPECT_EQ(stage.ring.generation(3), 2);
  EXPECT_EQ(stage.ring.generation(2), 0);
  EXPECT_EQ(stage.ring.depth(), 2);
}

TEST(FeedbackOrder, AStepThatIsStillDueIsNamedWithItsSlots) {
  for (const bool ready : {false, true}) {
    Stage stage(1);
    stage.begin();
    stage.post({4, 6});
    if (ready) {
      stage.ring.mark_ready(0);
    }
    stage.begin();
    EXPECT_EQ(order_error([&] { stage.begin(); }),
              std::string("[feedback] step 2 begins, but the feedback of step 0 is still ") +
                  (ready ? "ready" : "posted") + " (slots 4, 6): it was due at step 1");
    EXPECT_EQ(stage.ring.step(), 1);
    EXPECT_NE(stage.ring.state(0), EntryState::empty);
  }
}

TEST(FeedbackOrder, PostingTwiceNamesStepAndSlots) {
  Stage stage(2);
  stage.begin();
  stage.post({1});
  EXPECT_EQ(order_error([&] { stage.post({2, 3}); }),
            "[feedback] step 0 is posted again (slots 2, 3), its feedback is already posted");
  stage.ring.mark_ready(0);
  EXPECT_EQ(order_error([&] { stage.post({0, 1, 2, 3, 4, 5, 6, 7}); }),
            "[feedback] step 0 is posted again (slots 0, 1, 2, 3, 4, 5, 6, 7), its feedback is "
            "already ready");
}

TEST(FeedbackOrder, LongSlotListsAreShortened) {
  Stage stage(2, 16);
  stage.begin();
  stage.post({1});
  EXPECT_EQ(order_error([&] { stage.post({0, 1, 2, 3, 4, 5, 6, 7, 8}); }),
            "[feedback] step 0 is posted again (slots 0, 1, 2, 3, 4, 5, 6, 7, ...), its feedback "
            "is already posted");
}

TEST(FeedbackOrder, ArrivalOfWhatWasNotPostedIsNamed) {
  Stage stage(2);
  stage.begin(2);
  for (const std::int64_t step : {-1, 0, 1, 2}) {
    EXPECT_EQ(order_error([&] { stage.ring.mark_ready(step); }),
              "[feedback] feedback of step " + std::to_string(step) +
                  " arrived at step 1, but its entry is empty, expected posted");
  }
}

TEST(FeedbackOrder, ArrivingTwiceIsNamed) {
  Stage stage(2);
  stage.begin();
  stage.post({1});
  stage.ring.mark_ready(0);
  EXPECT_EQ(order_error([&] { stage.ring.mark_ready(0); }),
            "[feedback] feedback of step 0 arrived at step 0, but its entry is ready, expected "
            "posted");
}

TEST(FeedbackOrder, ConsumingBeforeArrivalNamesStepAndSlots) {
  Stage stage(1);
  stage.begin();
  stage.post({3, 5});
  stage.begin();
  EXPECT_EQ(order_error([&] { stage.consume(); }),
            "[feedback] feedback of step 0 (slots 3, 5) is due at step 1, but it is posted, "
            "expected ready");
  stage.ring.mark_ready(0);
  EXPECT_EQ(stage.consume(), Consumed::all);
}

TEST(FeedbackOrder, ConsumingTwiceIsNamed) {
  Stage stage(1);
  stage.begin();
  stage.post({3});
  stage.ring.mark_ready(0);
  stage.begin();
  stage.consume();
  const std::string text = "[feedback] feedback of step 0 is consumed twice at step 1";
  EXPECT_EQ(order_error([&] { stage.consume(); }), text);
  Stage idle(1);
  idle.begin(2);
  idle.consume();
  EXPECT_EQ(order_error([&] { idle.consume(); }), text);
}

TEST(FeedbackOrder, NothingGoesBeforeTheFirstStep) {
  Stage stage(2);
  const std::string text = "[feedback] no step has begun, expected begin_step first";
  EXPECT_EQ(order_error([&] { stage.post({0}); }), text);
  EXPECT_EQ(order_error([&] { stage.consume(); }), text);
  EXPECT_NE(order_error([&] { stage.ring.mark_ready(0); }), "");
  EXPECT_EQ(stage.ring.step(), -1);
}

TEST(FeedbackInput, SizesBelowOneAreNamed) {
  EXPECT_EQ(invalid([] { FeedbackRing ring(0, 4); }), "[feedback] depth is 0, expected 1 or more");
  EXPECT_EQ(invalid([] { FeedbackRing ring(2, -4); }),
            "[feedback] max_num_reqs is -4, expected 1 or more");
}

TEST(FeedbackInput, ASlotOutsideTheRingIsNamedAndNothingPosted) {
  Stage stage(2, 4);
  stage.begin();
  EXPECT_EQ(invalid([&] { stage.post({0, 4}); }), "[feedback] request slot 4 is outside [0, 4)");
  EXPECT_EQ(invalid([&] { stage.post({-1}); }), "[feedback] request slot -1 is outside [0, 4)");
  EXPECT_EQ(invalid([&] { stage.ring.free_slot(4); }),
            "[feedback] request slot 4 is outside [0, 4)");
  EXPECT_EQ(invalid([&] { (void)stage.ring.generation(-1); }),
            "[feedback] request slot -1 is outside [0, 4)");
  EXPECT_EQ(stage.ring.state(0), EntryState::empty);
}

TEST(FeedbackInput, LengthsAreNamed) {
  Stage stage(1, 2);
  stage.begin();
  EXPECT_EQ(invalid([&] { stage.post({0, 1}, {1}); }),
            "[feedback] need_sampled has 1 entries, expected 2");
  EXPECT_EQ(invalid([&] { stage.post({0, 1, 0}); }),
            "[feedback] 3 requests posted, the ring holds 2");
  stage.post({0, 1});
  stage.ring.mark_ready(0);
  stage.begin();
  Slots wrong(1);
  EXPECT_EQ(invalid([&] { stage.ring.consume(wrong); }),
            "[feedback] idx_mapping has 1 entries, expected 2");
  EXPECT_EQ(stage.consume(), Consumed::all);
}

}  // namespace
}  // namespace pyvllm_pp
