#include "pyvllm_pp/batch.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/batches.h"
#include "support/errors.h"

namespace pyvllm_pp {
namespace {

using testing::Bools;
using testing::decode;
using testing::invalid;
using testing::OwnedBatch;
using testing::prompt;

constexpr BatchLimits kSmall{.max_num_reqs = 3, .max_num_tokens = 10};

std::string error_of(const OwnedBatch& batch) {
  return invalid([&] { check_batch(batch.view(), kSmall); });
}

TEST(CheckScheduled, CountsTokens) {
  const OwnedBatch batch({decode(), prompt(8), {0, 5, 9}});
  EXPECT_EQ(check_scheduled(batch.scheduled(), kSmall), 9);
  EXPECT_EQ(check_scheduled(OwnedBatch().scheduled(), kSmall), 0);
}

TEST(CheckScheduled, AcceptsExactlyTheLimits) {
  const OwnedBatch batch({prompt(4), prompt(5), prompt(1)});
  EXPECT_EQ(check_scheduled(batch.scheduled(), kSmall), 10);
}

TEST(CheckScheduled, NamesANegativeCount) {
  OwnedBatch batch({decode(), prompt(8)});
  batch.num_scheduled_tokens[1] = -3;
  EXPECT_EQ(invalid([&] { check_scheduled(batch.scheduled(), kSmall); }),
            "[batch] num_scheduled_tokens[1] is -3, expected 0 or more");
}

TEST(CheckScheduled, NamesTooManyRequests) {
  const OwnedBatch batch({decode(), decode(), decode(), decode()});
  EXPECT_EQ(invalid([&] { check_scheduled(batch.scheduled(), kSmall); }),
            "[batch] 4 requests scheduled, the buffers hold 3");
}

TEST(CheckScheduled, NamesTooManyTokens) {
  const OwnedBatch batch({prompt(8), prompt(3)});
  EXPECT_EQ(invalid([&] { check_scheduled(batch.scheduled(), kSmall); }),
            "[batch] 11 tokens scheduled, the buffers hold 10");
}

TEST(CheckScheduled, SumsBeyondInt32) {
  OwnedBatch batch({prompt(1), prompt(1)});
  batch.num_scheduled_tokens.assign(2, std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(invalid([&] { check_scheduled(batch.scheduled(), kSmall); }),
            "[batch] 4294967294 tokens scheduled, the buffers hold 10");
}

TEST(CheckScheduled, NamesAnotherLength) {
  OwnedBatch batch({decode(), decode()});
  batch.is_prefilling = Bools{0, 0, 1};
  EXPECT_EQ(invalid([&] { check_scheduled(batch.scheduled(), kSmall); }),
            "[batch] is_prefilling has 3 entries, expected 2, one a request");
}

TEST(CheckBatch, AcceptsAWholeBatch) {
  EXPECT_EQ(error_of(OwnedBatch({decode(), prompt(8), {0, 5, 9}})), "");
}

TEST(CheckBatch, AcceptsGraphPaddingAfterTheLastRequest) {
  OwnedBatch batch({decode(), prompt(8)});
  batch.query_start_loc.insert(batch.query_start_loc.end(), 4, 9);
  EXPECT_EQ(error_of(batch), "");
}

TEST(CheckBatch, NamesEachArrayOfAnotherLength) {
  OwnedBatch computed({decode(), decode()});
  computed.num_computed_tokens.pop_back();
  EXPECT_EQ(error_of(computed),
            "[batch] num_computed_tokens has 1 entries, expected 2, one a request");
  OwnedBatch prefill({decode(), decode()});
  prefill.prefill_len.push_back(1);
  EXPECT_EQ(error_of(prefill), "[batch] prefill_len has 3 entries, expected 2, one a request");
  OwnedBatch slots({decode(), decode()});
  slots.idx_mapping.clear();
  EXPECT_EQ(error_of(slots), "[batch] idx_mapping has 0 entries, expected 2, one a request");
  OwnedBatch starts({decode(), decode()});
  starts.query_start_loc.pop_back();
  EXPECT_EQ(error_of(starts), "[batch] query_start_loc has 2 entries, expected at least 3");
}

TEST(CheckBatch, NamesAStartThatIsNoRunningSum) {
  OwnedBatch first({decode(), decode()});
  first.query_start_loc[0] = 1;
  EXPECT_EQ(error_of(first),
            "[batch] query_start_loc[0] is 1, expected 0, the sum of num_scheduled_tokens before "
            "it");
  OwnedBatch last({decode(), decode()});
  last.query_start_loc[2] = 5;
  EXPECT_EQ(error_of(last),
            "[batch] query_start_loc[2] is 5, expected 2, the sum of num_scheduled_tokens");
}

TEST(CheckBatch, NamesNegativeLengths) {
  OwnedBatch computed({decode(), decode()});
  computed.num_computed_tokens[1] = -1;
  EXPECT_EQ(error_of(computed), "[batch] num_computed_tokens[1] is -1, expected 0 or more");
  OwnedBatch prefill({decode(), decode()});
  prefill.prefill_len[0] = -7;
  EXPECT_EQ(error_of(prefill), "[batch] prefill_len[0] is -7, expected 0 or more");
}

TEST(CheckBatch, NamesASequenceLongerThanInt32) {
  OwnedBatch batch({decode(), prompt(2)});
  batch.num_computed_tokens[1] = std::numeric_limits<std::int32_t>::max() - 1;
  EXPECT_EQ(error_of(batch),
            "[batch] num_computed_tokens[1] + num_scheduled_tokens[1] is 2147483648, expected at "
            "most 2147483647");
}

}  // namespace
}  // namespace pyvllm_pp
