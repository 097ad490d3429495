#include "pyvllm_pp/error.h"

#include <gtest/gtest.h>

#include "support/errors.h"

namespace pyvllm_pp {
namespace {

using testing::invalid;
using testing::text_of;

TEST(Error, ConcatJoinsTextAndNumbers) {
  EXPECT_EQ(concat("rank ", 3, " is outside [0, ", std::size_t{2}, ')'),
            "rank 3 is outside [0, 2)");
}

TEST(Error, FailNamesTheRoomInFront) {
  EXPECT_EQ(invalid([] { fail("plan", "pcp_size is ", 0); }), "[plan] pcp_size is 0");
}

TEST(Error, FeedbackOrderErrorIsNoInvalidArgument) {
  const auto raise = [] { throw FeedbackOrderError("[feedback] step 3"); };
  EXPECT_EQ(text_of<std::runtime_error>(raise), "[feedback] step 3");
  EXPECT_THROW(invalid(raise), FeedbackOrderError);
}

}  // namespace
}  // namespace pyvllm_pp
