#include "kernels/logprobs.h"

#include <array>
#include <cmath>

#include "support.h"

namespace pyvllm_pp::kernels {
namespace {

TEST(LogSoftmaxKernel, LogProbabilityOfEachToken) {
  Floats values{0, 0, 0, 0, 1, -kInfinity, 1, -kInfinity};
  Wide tokens{3, 0, 2, 1};
  Floats out(4, -9);
  token_log_softmax(logits_of(values, 4), rows(tokens, 2), 2, out, 2);
  EXPECT_NEAR(out[0], std::log(0.25), 1e-6);
  EXPECT_NEAR(out[2], std::log(0.5), 1e-6);
  EXPECT_EQ(out[3], -kInfinity);
  tokens[1] = 4;
  expect_refused([&] { token_log_softmax(logits_of(values, 4), rows(tokens, 2), 2, out, 2); },
                 "elements 4 to 5 of a row of logits");
}

TEST(RanksKernel, CountsLogitsThatAreAtLeastTheTokens) {
  Floats values{1, 3, 2, 3, NAN, 5, -kInfinity, 0};
  Wide tokens{2, 0};
  Wide out(2, -9);
  token_ranks(logits_of(values, 4), ints(tokens), 8, ints(out), 2);
  EXPECT_EQ(out, (Wide{3, 0}));
  tokens = {1, 2};
  // The last block of 8 has four places without a token.
  token_ranks(logits_of(values, 4), ints(tokens), 8, ints(out), 2);
  EXPECT_EQ(out, (Wide{2, 3 + 4}));
  token_ranks(logits_of(values, 4), ints(tokens), 4, ints(out), 2);
  EXPECT_EQ(out[1], 3);
  tokens[0] = -1;
  expect_refused([&] { token_ranks(logits_of(values, 4), ints(tokens), 8, ints(out), 2); },
                 "elements -1 to 0");
  expect_refused([&] { token_ranks(logits_of(values, 4), ints(tokens), 0, ints(out), 0); },
                 "BLOCK_SIZE is 0");
}

TEST(NumNansKernel, CountsARow) {
  Floats values{NAN, 1, NAN, kInfinity, 2, 3};
  Narrow out(2, -1);
  count_nan_logits(logits_of(values, 3), ints(out), 2);
  EXPECT_EQ(out, (Narrow{2, 0}));
}

TEST(LogprobTokensKernel, ThoseAskedForOrElseTheBest) {
  Wide token_ids(6, -1);
  std::array<bool, 6> valid{};
  Wide sampled{9, 8};
  Wide best{1, 2, 3, 4};
  Narrow idx_mapping{-1, 0};
  Narrow num_custom{1};
  Narrow custom{7, 0};
  const LogprobTokens in{.token_ids = rows(token_ids, 3),
                         .valid = valid,
                         .valid_stride = 3,
                         .sampled = ints(sampled),
                         .best = rows(best, 2),
                         .idx_mapping = ints(idx_mapping),
                         .num_custom = ints(num_custom),
                         .custom = rows(custom, 2),
                         .num_best = 2,
                         .max_num_columns = 2};
  fill_logprob_tokens(in, 2);
  EXPECT_EQ(token_ids, (Wide{9, 1, 2, 8, 7, -1}));
  EXPECT_EQ(valid, (std::array<bool, 6>{true, true, true, true, true, false}));
  idx_mapping[0] = 1;
  expect_refused([&] { fill_logprob_tokens(in, 2); }, "expanded_idx_mapping[0] is 1");
}

TEST(PromptTargetsKernel, TheTokenAfterEachScheduledOne) {
  Narrow targets(4, -1);
  Narrow query_start_loc{0, 2, 4};
  Wide idx_mapping{1, 0};
  Narrow num_computed{0, 1};
  Narrow tokens{10, 11, 12, 20, 21, 22};
  const PromptTargets in{.token_ids = ints(targets),
                         .query_start_loc = ints(query_start_loc),
                         .idx_mapping = ints(idx_mapping),
                         .num_computed_tokens = ints(num_computed),
                         .all_token_ids = rows(tokens, 3)};
  prompt_target_tokens(in, 2);
  EXPECT_EQ(targets, (Narrow{22, 0, 11, 12}));
  query_start_loc[2] = 5;
  expect_refused([&] { prompt_target_tokens(in, 2); }, "elements 2 to 5");
}

TEST(SamplingMaskKernel, TokensCountAndBitsOfWhatCouldBeChosen) {
  Floats values(12, -kInfinity);
  values[1] = values[9] = values[10] = 0;
  Narrow cu_num_logits{0, 1};
  Narrow num_sampled{1};
  Narrow token_ids(4, -1);
  std::vector<std::uint8_t> bits(4, 0xff);
  Narrow counts(2, -1);
  const SamplingMask in{.column_stride = 1,
                        .cu_num_logits = ints(cu_num_logits),
                        .num_sampled = ints(num_sampled),
                        .token_ids = rows(token_ids, 2),
                        .bits = bits,
                        .bits_stride = 2,
                        .counts = ints(counts),
                        .max_num_kept = 2,
                        .rows_per_request = 2};
  compact_sampling_mask(logits_of(values, 12), in, 2);
  EXPECT_EQ(token_ids, (Narrow{1, 9, -1, -1}));
  EXPECT_EQ(counts, (Narrow{3, 0}));
  EXPECT_EQ(bits, (std::vector<std::uint8_t>{0b10, 0b110, 0xff, 0xff}));
  cu_num_logits[0] = 1;
  expect_refused([&] { compact_sampling_mask(logits_of(values, 12), in, 2); }, "of logits");
}

TEST(TraceReplayKernel, TheRecordedTokenWhileTheTraceLasts) {
  Wide sampled{50, 51, 52};
  Wide idx_mapping{0, 1, -1};
  Narrow trace{7, 8, 9, 9};
  Narrow trace_len{2, 1};
  Narrow total_len{5, 5};
  Narrow prompt_len{4, 4};
  const TraceReplay in{.sampled = ints(sampled),
                       .idx_mapping = ints(idx_mapping),
                       .trace_tokens = rows(trace, 2),
                       .trace_len = ints(trace_len),
                       .total_len = ints(total_len),
                       .prompt_len = ints(prompt_len)};
  replay_trace(in, 3);
  EXPECT_EQ(sampled, (Wide{8, 51, 52}));
  idx_mapping[2] = 2;
  expect_refused([&] { replay_trace(in, 3); }, "idx_mapping[2] is 2");
}

}  // namespace
}  // namespace pyvllm_pp::kernels
