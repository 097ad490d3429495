#include "kernels/updates.h"

#include "support.h"

namespace pyvllm_pp::kernels {
namespace {

/// Slot 2 samples two tokens of three logits; the other row was filtered out.
struct Step {
  Wide idx_mapping{2, -1};
  Narrow num_computed{0, 0, 5};
  Wide last_sampled{-1, -1, -1};
  Narrow bin_counts = Narrow(12, 0);
  Wide sampled{3, 1, 0, 2, 2, 2};
  Narrow num_sampled{2, 3};
  Narrow num_rejected{1, 0};
  Narrow query_start_loc{0, 3, 4};
  Narrow all_token_ids = Narrow(24, -1);
  Narrow total_len{0, 0, 5};

  StateUpdate view() {
    return {.idx_mapping = ints(idx_mapping),
            .num_computed_tokens = ints(num_computed),
            .last_sampled_tokens = ints(last_sampled),
            .output_bin_counts = rows(bin_counts, 4),
            .sampled_tokens = rows(sampled, 3),
            .num_sampled = ints(num_sampled),
            .num_rejected = ints(num_rejected),
            .query_start_loc = ints(query_start_loc),
            .all_token_ids = rows(all_token_ids, 8),
            .total_len = ints(total_len)};
  }
};

TEST(PostUpdate, AppendsSampledTokensOfRowsWithARequest) {
  Step step;
  post_update(step.view(), 2);
  EXPECT_EQ(step.num_computed, (Narrow{0, 0, 7}));
  EXPECT_EQ(step.last_sampled, (Wide{-1, -1, 1}));
  EXPECT_EQ(step.total_len, (Narrow{0, 0, 7}));
  EXPECT_EQ(step.all_token_ids[21], 3);
  EXPECT_EQ(step.all_token_ids[22], 1);
  EXPECT_EQ(step.bin_counts, (Narrow{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1}));
}

TEST(PostUpdate, WithoutCountsAndWithoutComputedTokens) {
  Step step;
  auto in = step.view();
  in.output_bin_counts = {};
  in.query_start_loc = {};
  post_update(in, 2);
  EXPECT_EQ(step.num_computed, (Narrow{0, 0, 4}));
  EXPECT_EQ(step.bin_counts, Narrow(12, 0));
}

TEST(PostUpdate, IndicesOutsideTheirArraysAreRefusedBeforeAnyWrite) {
  const auto refuses = [](auto change, const std::string& text) {
    Step step;
    change(step);
    expect_refused([&] { post_update(step.view(), 2); }, text);
    EXPECT_EQ(step.num_computed[2], 5);
    EXPECT_EQ(step.all_token_ids, Narrow(24, -1));
  };
  refuses([](Step& s) { s.idx_mapping[0] = 3; }, "idx_mapping[0] is 3");
  refuses([](Step& s) { s.sampled[0] = 4; }, "elements 4 to 5 of output_bin_counts");
  refuses([](Step& s) { s.sampled[1] = -1; }, "elements -1 to 0 of output_bin_counts");
  refuses([](Step& s) { s.total_len[2] = 7; }, "elements 23 to 25 of all_token_ids");
  refuses([](Step& s) { s.num_sampled[0] = 7; }, "sampled_tokens");
}

TEST(SampledCountsKernel, AChunkOfAPromptSamplesAndRejectsNothing) {
  Narrow num_sampled{2, 1, 1};
  Narrow num_rejected(3, -1);
  Narrow seq_lens{9, 5, 5};
  Narrow cu_num_logits{0, 3, 4, 5};
  Wide idx_mapping{0, 1, -1};
  Narrow prefill_len{9, 6};
  get_num_sampled_and_rejected({.num_sampled = ints(num_sampled),
                                .num_rejected = ints(num_rejected),
                                .seq_lens = ints(seq_lens),
                                .cu_num_logits = ints(cu_num_logits),
                                .idx_mapping = ints(idx_mapping),
                                .prefill_len = ints(prefill_len)},
                               3);
  EXPECT_EQ(num_sampled, (Narrow{2, 0, 0}));
  EXPECT_EQ(num_rejected, (Narrow{1, 0, 0}));
}

TEST(ComputedUpdateKernel, AddsQueryLengths) {
  Wide idx_mapping{1, 0};
  Narrow num_computed{1, 2};
  Narrow query_start_loc{0, 3, 7};
  const ComputedUpdate in{.idx_mapping = ints(idx_mapping),
                          .num_computed_tokens = ints(num_computed),
                          .query_start_loc = ints(query_start_loc)};
  post_update_num_computed_tokens(in, 2);
  EXPECT_EQ(num_computed, (Narrow{5, 5}));
  idx_mapping[0] = 2;
  expect_refused([&] { post_update_num_computed_tokens(in, 2); }, "idx_mapping[0] is 2");
}

}  // namespace
}  // namespace pyvllm_pp::kernels
