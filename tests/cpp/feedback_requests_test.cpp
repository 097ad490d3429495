#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "pyvllm_pp/error.h"
#include "pyvllm_pp/feedback.h"
#include "support/batches.h"
#include "support/errors.h"

/// What travels with feedback: which requests need their token, and whose it is.
namespace pyvllm_pp {
namespace {

using testing::chunk;
using testing::decode;
using testing::invalid;
using testing::OwnedBatch;
using testing::prompt;

template <typename Call>
std::string order_fault(Call&& call) {
  return testing::text_of<FeedbackOrderError>(std::forward<Call>(call));
}

using Slots = std::vector<std::int64_t>;

std::vector<int> mask_of(const OwnedBatch& batch, const std::vector<std::int32_t>& max_seq_len) {
  std::valarray<bool> mask(batch.idx_mapping.size());
  const auto count = need_sampled_mask(batch.view(), max_seq_len, {std::begin(mask), mask.size()});
  EXPECT_EQ(count, std::count(std::begin(mask), std::end(mask), true));
  return {std::begin(mask), std::end(mask)};
}

TEST(NeedSampled, LastChunksAndDecodes) {
  const OwnedBatch batch({decode(), prompt(4), chunk(4, 3, 8), {0, 3, 8}});
  EXPECT_EQ(mask_of(batch, {20, 20, 20, 20}), (std::vector<int>{1, 1, 0, 0}));
}

TEST(NeedSampled, C14APromptWhoseOneTokenIsItsLast) {
  const OwnedBatch batch({prompt(4), prompt(4)});
  EXPECT_EQ(mask_of(batch, {5, 6}), (std::vector<int>{0, 1}));
  EXPECT_EQ(mask_of(batch, {5, 5}), (std::vector<int>{0, 0}));
}

TEST(NeedSampled, DecodesAloneCarryNoLimit) {
  EXPECT_EQ(mask_of(OwnedBatch({decode(), decode()}), {}), (std::vector<int>{1, 1}));
}

TEST(NeedSampled, LengthsNearTheEndOfInt32DoNotWrap) {
  constexpr auto kMost = std::numeric_limits<std::int32_t>::max();
  OwnedBatch batch({chunk(4, 3, 8)});
  batch.num_computed_tokens = {kMost};
  batch.prefill_len = {kMost};
  EXPECT_EQ(mask_of(batch, {kMost}), (std::vector<int>{0}));
}

TEST(NeedSampled, LengthsAreNamed) {
  const OwnedBatch batch({decode(), decode()});
  EXPECT_EQ(invalid([&] { mask_of(batch, {1}); }),
            "[feedback] max_seq_len has 1 entries, expected 2");
  std::valarray<bool> mask(1);
  EXPECT_EQ(invalid([&] { need_sampled_mask(batch.view(), {}, {std::begin(mask), 1}); }),
            "[feedback] num_scheduled_tokens has 2 entries, expected 1");
}

TEST(Digest, DependsOnSlotsTheirOrderGenerationsAndTokens) {
  FeedbackRing ring(2, 8);
  const auto digest = [&](const Slots& slots, const std::vector<std::int32_t>& tokens) {
    return ring.digest(slots, tokens);
  };
  const auto base = digest({1, 2}, {1, 7});
  EXPECT_EQ(digest({1, 2}, {1, 7}), base);
  EXPECT_NE(digest({2, 1}, {7, 1}), base);
  EXPECT_NE(digest({1, 3}, {1, 7}), base);
  EXPECT_NE(digest({1, 2}, {1, 8}), base);
  EXPECT_NE(digest({1}, {1}), base);
  ring.free_slot(2);
  EXPECT_NE(digest({1, 2}, {1, 7}), base);
}

TEST(Digest, OfManyBatchesDoNotCollide) {
  FeedbackRing ring(2, 8);
  std::vector<std::int64_t> seen;
  for (std::int64_t a = 0; a < 8; ++a) {
    for (std::int64_t b = 0; b < 8; ++b) {
      for (std::int32_t tokens = 0; tokens < 50; ++tokens) {
        const std::vector<std::int32_t> counts{1, tokens};
        seen.push_back(ring.digest(Slots{a, b}, counts));
      }
    }
  }
  std::ranges::sort(seen);
  EXPECT_EQ(std::ranges::adjacent_find(seen), seen.end());
}

/// The digest of a batch that is posted, and the slots that are kept when it is due.
struct Due {
  std::int64_t digest;
  std::int32_t num_kept;
  Slots idx_mapping;
};

/// Posts a batch, frees slots, and advances until it is due; other steps of the pipeline are empty.
Due through(FeedbackRing& ring, const OwnedBatch& batch, const Slots& freed) {
  Due due{.digest = 0, .num_kept = 0, .idx_mapping = Slots(8, 77)};
  EXPECT_EQ(ring.advance(false, {}, due.idx_mapping), 0);
  EXPECT_GT(ring.post_batch(batch.view(), {}), 0);
  const auto step = ring.step();
  due.digest = ring.posted_digest(step);
  EXPECT_EQ(due.digest, ring.digest(batch.idx_mapping, batch.num_scheduled_tokens));
  for (const auto slot : freed) {
    ring.free_slot(slot);
  }
  for (std::int32_t later = 1; later < ring.depth(); ++later) {
    EXPECT_EQ(ring.advance(false, {}, due.idx_mapping), 0);
  }
  due.num_kept = ring.advance(true, Slots{step, due.digest}, due.idx_mapping);
  EXPECT_EQ(ring.state(step), EntryState::empty);
  return due;
}

TEST(Advance, ALikeBatchHasTheSameDigestUntilASlotIsFreed) {
  FeedbackRing ring(2, 8);
  const OwnedBatch batch({decode(), decode(), decode()});  // slots 3, 2, 1
  const auto first = through(ring, batch, {});
  EXPECT_EQ(first.num_kept, 3);
  EXPECT_EQ(through(ring, batch, {}).digest, first.digest);
  const auto freed = through(ring, batch, {2});
  EXPECT_EQ(freed.digest, first.digest);
  EXPECT_EQ(freed.num_kept, 2);
  EXPECT_EQ(Slots(freed.idx_mapping.begin(), freed.idx_mapping.begin() + 4), (Slots{3, -1, 1, 77}));
  const auto reused = through(ring, batch, {});
  EXPECT_EQ(reused.num_kept, 3);
  EXPECT_NE(reused.digest, first.digest);
  EXPECT_EQ(through(ring, OwnedBatch({decode(), {2, 9, 9}, decode()}), {}).num_kept, 3);
  EXPECT_EQ(through(ring, batch, {1, 2, 3}).num_kept, 0);
}

TEST(Advance, AFreedSlotOfNobodyKeepsAll) {
  FeedbackRing ring(2, 8);
  const auto due = through(ring, OwnedBatch({decode(), decode()}), {7});
  EXPECT_EQ(due.num_kept, 2);
  EXPECT_EQ(Slots(due.idx_mapping.begin(), due.idx_mapping.begin() + 2), (Slots{2, 1}));
}

TEST(Advance, RequestsWithoutNeedAreLeftOut) {
  FeedbackRing ring(1, 8);
  const auto due = through(ring, OwnedBatch({decode(), chunk(4, 3, 9)}), {});
  EXPECT_EQ(due.num_kept, 1);
  EXPECT_EQ(Slots(due.idx_mapping.begin(), due.idx_mapping.begin() + 2), (Slots{2, -1}));
  EXPECT_EQ(ring.post_batch(OwnedBatch({chunk(4, 3, 9)}).view(), {}), 0);
  EXPECT_EQ(ring.state(ring.step()), EntryState::empty);
}

TEST(Advance, AWrongHeaderNamesBothAndLeavesTheEntry) {
  FeedbackRing ring(1, 8);
  Slots kept(8);
  ring.advance(false, {}, kept);
  ring.post_batch(OwnedBatch({decode(), decode()}).view(), {});
  const auto digest = ring.posted_digest(0);
  const auto error = order_fault([&] { ring.advance(true, Slots{4, 0x1f}, kept); });
  EXPECT_NE(error.find("received the feedback of step 4 with the requests' digest 0x1f, "
                       "expected step 0 with 0x"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("(slots 2, 1)"), std::string::npos) << error;
  EXPECT_EQ(ring.state(0), EntryState::posted);
  EXPECT_EQ(ring.posted_digest(0), digest);
}

TEST(Advance, OrderAndLengthsAreChecked) {
  FeedbackRing ring(1, 8);
  const OwnedBatch batch({decode(), decode()});
  Slots kept(8);
  EXPECT_EQ(order_fault([&] { ring.post_batch(batch.view(), {}); }),
            "[feedback] no step has begun, expected begin_step first");
  ring.advance(false, {}, kept);
  ring.post_batch(batch.view(), {});
  EXPECT_NE(order_fault([&] { ring.post_batch(batch.view(), {}); }).find("is posted again"),
            std::string::npos);
  EXPECT_EQ(invalid([&] { ring.advance(true, {}, std::span(kept).first(1)); }),
            "[feedback] idx_mapping has 1 entries, expected at least 2");
  EXPECT_NE(order_fault([&] { (void)ring.posted_digest(1); }).find("step 1 has no feedback"),
            std::string::npos);
}

TEST(Advance, FeedbackThatHasNotArrivedIsAnError) {
  FeedbackRing ring(1, 8);
  Slots kept(8);
  ring.advance(false, {}, kept);
  ring.post_batch(OwnedBatch({decode()}).view(), {});
  EXPECT_NE(order_fault([&] { ring.advance(false, {}, kept); }).find("expected ready"),
            std::string::npos);
}

TEST(Digest, ChecksAsPostDoes) {
  FeedbackRing ring(2, 4);
  const std::vector<std::int32_t> one{1};
  EXPECT_EQ(invalid([&] { (void)ring.digest(Slots{0, 1}, one); }),
            "[feedback] num_scheduled_tokens has 1 entries, expected 2");
  EXPECT_EQ(invalid([&] { (void)ring.digest(Slots{9}, one); }),
            "[feedback] request slot 9 is outside [0, 4)");
}

}  // namespace
}  // namespace pyvllm_pp
