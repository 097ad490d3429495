#include "kernels/inputs.h"

#include "support.h"

namespace pyvllm_pp::kernels {
namespace {

/// Two slots of 8 tokens. Slot 1 prefills its tokens 2 to 4 of 6, slot 0 decodes.
struct Batch {
  Narrow input_ids = Narrow(6, -1);
  Narrow next_tokens = Narrow(4, -1);
  Wide idx_mapping{1, 0};
  Narrow query_start_loc{0, 3, 4};
  Narrow all_token_ids{0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17};
  Narrow prefill_len{4, 6};
  Narrow num_computed{4, 2};

  PrefillInputs view() {
    return {.input_ids = ints(input_ids),
            .next_tokens = rows(next_tokens, 2),
            .num_lookahead = 2,
            .idx_mapping = ints(idx_mapping),
            .query_start_loc = ints(query_start_loc),
            .all_token_ids = rows(all_token_ids, 8),
            .prefill_len = ints(prefill_len),
            .num_computed_tokens = ints(num_computed)};
  }
};

TEST(PrepareInputs, CopiesScheduledPromptTokensAndThoseAfterThem) {
  Batch batch;
  prepare_prefill_inputs(batch.view(), 2);
  EXPECT_EQ(batch.input_ids, (Narrow{12, 13, 14, -1, -1, -1}));
  EXPECT_EQ(batch.next_tokens, (Narrow{-1, 15, -1, 0}));
}

TEST(PrepareInputs, RowsWithoutRequestAreSkipped) {
  Batch batch;
  batch.idx_mapping = {-1, -1};
  prepare_prefill_inputs(batch.view(), 2);
  EXPECT_EQ(batch.input_ids, Narrow(6, -1));
}

TEST(PrepareInputs, IndicesOutsideTheirArraysAreRefusedBeforeAnyWrite) {
  const auto refuses = [](auto change, const std::string& text) {
    Batch batch;
    change(batch);
    expect_refused([&] { prepare_prefill_inputs(batch.view(), 2); }, text);
    EXPECT_EQ(batch.input_ids, Narrow(6, -1));
  };
  refuses([](Batch& b) { b.idx_mapping[1] = 2; }, "idx_mapping[1] is 2, expected below 2");
  refuses([](Batch& b) { b.query_start_loc[2] = 7; }, "elements 3 to 7 of query_start_loc");
  refuses([](Batch& b) { b.query_start_loc[1] = -1; }, "elements 0 to -1 of query_start_loc");
  refuses([](Batch& b) { b.num_computed[1] = -9; }, "elements -1 to 2 of all_token_ids");
  refuses([](Batch& b) { b.next_tokens.pop_back(); }, "next_prefill_tokens");
  refuses([](Batch& b) { b.query_start_loc.pop_back(); }, "query_start_loc, which has 2");
}

TEST(PositionsKernel, CountFromWhatIsComputedAndPadWithZeros) {
  Wide positions(5, -1);
  Narrow seq_lens(4, -1);
  Narrow idx_mapping{1, -1};
  Narrow query_start_loc{0, 2, 3};
  Narrow num_computed{0, 7};
  const Positions in{.positions = ints(positions),
                     .seq_lens = ints(seq_lens),
                     .idx_mapping = ints(idx_mapping),
                     .query_start_loc = ints(query_start_loc),
                     .num_computed_tokens = ints(num_computed)};
  prepare_pos_seq_lens(in, 2, 4);
  EXPECT_EQ(positions, (Wide{7, 8, 0, -1, -1}));
  EXPECT_EQ(seq_lens, (Narrow{9, 1, 0, 0}));
  expect_refused([&] { prepare_pos_seq_lens(in, 2, 5); }, "elements 0 to 5 of seq_lens");
}

/// Slot 0 decodes with two drafts, slot 1 is at the end of its prefill.
struct Sampled {
  Narrow input_ids = Narrow(5, -1);
  Wide idx_mapping{0, 1};
  Wide last_sampled{50, 51};
  Narrow query_start_loc{0, 3, 5};
  Narrow seq_lens{13, 6};
  Narrow prefill_len{10, 6};
  Wide draft_tokens{60, 61, 62, 63};
  Narrow cu_num_logits{0, 3, 4};
  Wide logits_indices = Wide(4, -1);

  SampledInputs view() {
    return {.input_ids = ints(input_ids),
            .idx_mapping = ints(idx_mapping),
            .last_sampled_tokens = ints(last_sampled),
            .query_start_loc = ints(query_start_loc),
            .seq_lens = ints(seq_lens),
            .prefill_len = ints(prefill_len),
            .draft_tokens = rows(draft_tokens, 2),
            .cu_num_logits = ints(cu_num_logits),
            .logits_indices = ints(logits_indices),
            .max_num_logits = 4,
            .num_new_sampled_tokens = 1};
  }
};

TEST(CombineSampled, PutsTheLastTokenAndDraftsWhereTheirLogitsAre) {
  Sampled batch;
  combine_sampled_and_draft_tokens(batch.view(), 2);
  EXPECT_EQ(batch.input_ids, (Narrow{50, 60, 61, -1, -1}));
  EXPECT_EQ(batch.logits_indices, (Wide{0, 1, 2, 4}));
}

TEST(CombineSampled, RefusesDraftsAndLogitsOutsideTheirArrays) {
  Sampled few_drafts;
  few_drafts.draft_tokens = {60};
  expect_refused([&] { combine_sampled_and_draft_tokens(few_drafts.view(), 2); }, "draft_tokens");
  Sampled few_tokens;
  few_tokens.query_start_loc = {0, 2, 5};
  expect_refused([&] { combine_sampled_and_draft_tokens(few_tokens.view(), 2); },
                 "elements -1 to 2 of input_ids");
}

TEST(ExpandMapping, RepeatsSlotsAndCountsWithinThem) {
  Wide idx_mapping{4, 2, 9};
  Wide expanded(5, -1);
  Narrow local_pos(5, -1);
  Narrow cu_num_logits{0, 2, 2, 5};
  expand_idx_mapping({.idx_mapping = ints(idx_mapping),
                      .expanded = ints(expanded),
                      .local_pos = ints(local_pos),
                      .cu_num_logits = ints(cu_num_logits),
                      .max_num_logits = 4},
                     3);
  EXPECT_EQ(expanded, (Wide{4, 4, 9, 9, 9}));
  EXPECT_EQ(local_pos, (Narrow{0, 1, 0, 1, 2}));
}

}  // namespace
}  // namespace pyvllm_pp::kernels
