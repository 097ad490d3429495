#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

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
