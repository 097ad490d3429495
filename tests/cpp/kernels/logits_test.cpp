#include "kernels/logits.h"

#include "support.h"

namespace pyvllm_pp::kernels {
namespace {

TEST(TemperatureKernel, DividesRowsOfARequestUnlessBy0Or1) {
  Floats values{1, 2, 3, 4, 5, 6, 7, 8};
  Wide idx_mapping{1, 0, -1, 2};
  const Floats temperature{0, 2, 1};
  apply_temperature(logits_of(values, 2), ints(idx_mapping), temperature, 4);
  EXPECT_EQ(values, (Floats{0.5, 1, 3, 4, 5, 6, 7, 8}));
  idx_mapping[3] = 3;
  expect_refused(
      [&] { apply_temperature(logits_of(values, 2), ints(idx_mapping), temperature, 4); },
      "idx_mapping[3] is 3, expected below 3");
  expect_refused(
      [&] { apply_temperature(logits_of(values, 2), ints(idx_mapping), temperature, 5); },
      "logits");
  apply_temperature(logits_of(values, 2), ints(idx_mapping), temperature, 0);
  EXPECT_EQ(values[0], 0.5F);
}

TEST(MinPKernel, MasksWhatIsMuchLessLikelyThanTheBest) {
  Floats values{0, 3, 2.5, 0, 3, 2.5};
  Narrow idx_mapping{0, 1};
  apply_min_p(logits_of(values, 3), ints(idx_mapping), Floats{0.5, 0}, 2);
  EXPECT_EQ(values, (Floats{-kInfinity, 3, 2.5, 0, 3, 2.5}));
  idx_mapping[0] = 2;
  expect_refused([&] { apply_min_p(logits_of(values, 3), ints(idx_mapping), Floats{0.5, 0}, 2); },
                 "idx_mapping[0] is 2");
}

/// One request of 10 tokens in the vocabulary; token 1 in its prompt, token 9 twice in its output.
struct Penalized {
  Floats values{1, 2, -1, 0, 0, 0, 0, 0, 0, 2};
  Wide idx_mapping{0};
  Narrow token_ids{3};
  Narrow local_pos{0};
  Floats repetition{2};
  Floats frequency{0.25};
  Floats presence{0.5};
  Narrow prompt_bits{0b110};
  Narrow output_counts{0, 0, 0, 0, 0, 0, 0, 0, 0, 2};

  void apply() {
    apply_penalties(logits_of(values, 10),
                    {.idx_mapping = ints(idx_mapping),
                     .token_ids = ints(token_ids),
                     .local_pos = ints(local_pos),
                     .repetition = repetition,
                     .frequency = frequency,
                     .presence = presence,
                     .prompt_bits = prompt_bits,
                     .prompt_bits_stride = 1,
                     .output_counts = output_counts,
                     .output_counts_stride = 10},
                    1);
  }
};

TEST(PenaltiesKernel, RepetitionForAllFrequencyAndPresenceForTheOutput) {
  Penalized request;
  request.apply();
  EXPECT_EQ(request.values, (Floats{1, 1, -2, 0, 0, 0, 0, 0, 0, 0}));
  request.idx_mapping[0] = -1;
  request.apply();
  EXPECT_EQ(request.values[1], 1);
}

TEST(PenaltiesKernel, CountsThatAreTooShortAreRefused) {
  Penalized request;
  request.idx_mapping[0] = 1;
  expect_refused([&] { request.apply(); }, "idx_mapping[0] is 1, expected below 1");
  request.idx_mapping[0] = 0;
  request.prompt_bits.clear();
  expect_refused([&] { request.apply(); }, "idx_mapping[0] is 0");
}

TEST(BincountKernel, PromptTokensAreBitsOutputTokensCounts) {
  Wide idx_mapping{1, -1};
  Narrow tokens{9, 9, 9, 9, 1, 33, 2, 2};
  Narrow prompt_len{0, 2};
  Narrow prefill_len{0, 4};
  Narrow bits(4, 0);
  Narrow counts(68, 0);
  const TokenCounts in{.idx_mapping = ints(idx_mapping),
                       .all_token_ids = rows(tokens, 4),
                       .prompt_len = ints(prompt_len),
                       .prefill_len = ints(prefill_len),
                       .prompt_bits = bits,
                       .prompt_bits_stride = 2,
                       .output_counts = counts,
                       .output_counts_stride = 34,
                       .block_size = 8,
                       .num_blocks = 1};
  count_tokens(in, 2);
  EXPECT_EQ(bits, (Narrow{0, 0, 0b10, 0b10}));
  EXPECT_EQ(counts[34 + 2], 2);
  tokens[7] = 34;
  expect_refused([&] { count_tokens(in, 2); }, "elements 34 to 35 of the vocabulary");
  EXPECT_EQ(counts[34 + 2], 2);
}

/// A row of four tokens whose request may have any of the three kinds of bias.
struct Biased {
  Floats values{0, 1, 2, 3};
  Wide idx_mapping{0};
  Narrow num_allowed{0};
  Narrow allowed{1, 2};
  Narrow num_biased{0};
  Narrow biased{1, 9};
  Floats bias{5, 7};
  Wide positions{4};
  Narrow min_lens{6};
  Narrow num_stop{0};
  Narrow restore{1};
  Narrow stop{2, 3};

  void apply() {
    apply_token_bias(logits_of(values, 4),
                     {.idx_mapping = ints(idx_mapping),
                      .num_allowed = ints(num_allowed),
                      .allowed = rows(allowed, 2),
                      .num_biased = ints(num_biased),
                      .biased = rows(biased, 2),
                      .bias = bias,
                      .bias_stride = 2,
                      .positions = ints(positions),
                      .min_lens = ints(min_lens),
                      .num_stop = ints(num_stop),
                      .restore_when_all_masked = ints(restore),
                      .stop = rows(stop, 2),
                      .check_all_masked = true},
                     1);
  }
};

TEST(BiasKernel, AllowedThenBiasThenNoStopBeforeTheMinimum) {
  Biased row;
  row.apply();
  EXPECT_EQ(row.values, (Floats{0, 1, 2, 3}));
  row.num_allowed[0] = row.num_biased[0] = row.num_stop[0] = 2;
  row.apply();
  EXPECT_EQ(row.values, (Floats{-kInfinity, 6, -kInfinity, -kInfinity}));
}

TEST(BiasKernel, StopTokensComeBackWhereNothingElseIsLeft) {
  Biased row;
  row.num_allowed[0] = row.num_stop[0] = 2;
  row.allowed = {2, 3};
  row.apply();
  EXPECT_EQ(row.values, (Floats{-kInfinity, -kInfinity, 2, 3}));
  row.positions[0] = 5;
  row.restore[0] = 0;
  row.apply();
  EXPECT_EQ(row.values[3], 3);
}

TEST(BiasKernel, ListsThatAreTooLongAreRefused) {
  Biased row;
  row.num_stop[0] = 3;
  expect_refused([&] { row.apply(); }, "elements 0 to 3 of");
  EXPECT_EQ(row.values, (Floats{0, 1, 2, 3}));
}

/// Words {7} and {4, 5}; the request has generated one token behind a prompt of two.
struct Bad {
  Floats values = Floats(8, 0);
  Wide idx_mapping{0};
  Narrow tokens{7, 4, 5};
  Narrow offsets{0, 1, 3};
  Narrow num_words{2};
  Narrow all_tokens{4, 4, 4};
  Narrow prompt_len{2};
  Narrow total_len{3};
  Narrow input_ids{4};
  Narrow local_pos{0};

  void apply() {
    apply_bad_words(logits_of(values, 8),
                    {.idx_mapping = ints(idx_mapping),
                     .tokens = rows(tokens, 3),
                     .offsets = rows(offsets, 3),
                     .num_words = ints(num_words),
                     .all_token_ids = rows(all_tokens, 3),
                     .prompt_len = ints(prompt_len),
                     .total_len = ints(total_len),
                     .input_ids = ints(input_ids),
                     .local_pos = ints(local_pos),
                     .max_num_words = 2},
                    1);
  }
};

TEST(BadWordsKernel, MasksTheEndOfAWordThatHasBegun) {
  Bad begun;
  begun.apply();
  EXPECT_EQ(begun.values, (Floats{0, 0, 0, 0, 0, -kInfinity, 0, -kInfinity}));
  Bad of_prompt;
  of_prompt.total_len[0] = 2;
  of_prompt.apply();
  EXPECT_EQ(of_prompt.values, (Floats{0, 0, 0, 0, 0, 0, 0, -kInfinity}));
  Bad empty;
  empty.offsets[1] = 0;
  expect_refused([&] { empty.apply(); }, "word 0 of slot 0 has 0 tokens");
  Bad too_long;
  too_long.total_len[0] = 4;
  expect_refused([&] { too_long.apply(); }, "elements 2 to 4 of all_token_ids");
}

TEST(GrammarKernel, MasksTokensWithoutABit) {
  Floats values = Floats(66, 1);
  Narrow mask_rows{1};
  Narrow cu_num_logits{0, 1, 2};
  Narrow bits{0b101, 1};
  const auto apply = [&] {
    apply_grammar_bitmask(logits_of(values, 33),
                          {.rows = ints(mask_rows),
                           .cu_num_logits = ints(cu_num_logits),
                           .bits = bits,
                           .bits_stride = 2,
                           .positions_per_request = 1},
                          1);
  };
  apply();
  for (std::size_t i = 0; i < 66; ++i) {
    const bool is_kept = i < 33 || i == 33 || i == 35 || i == 65;
    EXPECT_EQ(values[i], is_kept ? 1 : -kInfinity) << i;
  }
  mask_rows[0] = 2;
  expect_refused(apply, "logits_indices[0] is 2, expected below 2");
}

}  // namespace
}  // namespace pyvllm_pp::kernels
