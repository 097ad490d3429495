#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/gumbel.h"
#include "kernels/simd/rows.h"
#include "kernels/thinking_budget.h"
#include "kernels/topk_topp.h"
#include "support.h"

namespace pyvllm_pp::kernels {
namespace {

Floats random_row(std::size_t size) {
  std::mt19937 random(static_cast<unsigned>(size));
  std::normal_distribution<float> normal(0, 3);
  Floats row(size);
  for (auto& logit : row) {
    logit = normal(random);
  }
  return row;
}

TEST(Rows, AllInstructionSetsGiveTheSameBits) {
  const auto& first = instruction_sets().front()->float32;
  for (const auto* set : instruction_sets()) {
    for (const std::size_t size : {0U, 1U, 7U, 8U, 9U, 31U, 1000U, 1025U}) {
      const auto row = random_row(size);
      const auto count = size_of(row);
      const auto& ops = set->float32;
      EXPECT_EQ(ops.max(row.data(), count), first.max(row.data(), count)) << set->name;
      EXPECT_EQ(ops.sum_exp(row.data(), count, 9), first.sum_exp(row.data(), count, 9));
      EXPECT_EQ(ops.count_at_least(row.data(), count, 0),
                first.count_at_least(row.data(), count, 0));
      EXPECT_EQ(ops.argmax(row.data(), count).index, first.argmax(row.data(), count).index);
      const Noise noise{.seed = 3, .position = 5, .first_token = 8};
      const auto best = ops.gumbel_argmax(row.data(), count, 0.5F, noise);
      const auto expected = first.gumbel_argmax(row.data(), count, 0.5F, noise);
      EXPECT_EQ(best.index, expected.index);
      EXPECT_EQ(best.value, expected.value);
    }
  }
}

TEST(Rows, NanLosesAndIsCounted) {
  const Floats row{NAN, 1, NAN, -kInfinity, 2};
  for (const auto* set : instruction_sets()) {
    EXPECT_EQ(set->float32.max(row.data(), 5), 2);
    EXPECT_EQ(set->float32.argmax(row.data(), 5).index, 4);
    EXPECT_EQ(set->float32.count_nans(row.data(), 5), 2);
    EXPECT_EQ(set->float32.count_at_least(row.data(), 5, -kInfinity), 3);
    EXPECT_TRUE(std::isnan(set->float32.sum_exp(row.data(), 5, 2)));
  }
}

/// Two rows of five tokens in blocks of three; slot 1 is greedy.
template <typename Value>
struct Sampled {
  Floats values{0, 9, 1, 2, 3, 4, 3, 2, 8, 0};
  Wide idx_mapping{1, -1};
  Wide seeds{7, 7};
  Wide positions{3, 4};
  Floats temperature{1, 0};
  Wide tokens = Wide(4, -1);
  std::vector<Value> best = std::vector<Value>(4, -1);

  void run(const LogitsCache& cache = {}) {
    gumbel_sample(logits_of(values, 5),
                  {.idx_mapping = ints(idx_mapping),
                   .seeds = ints(seeds),
                   .positions = ints(positions),
                   .temperature = temperature,
                   .block_size = 3,
                   .is_drafting = false,
                   .apply_temperature = true,
                   .cache = cache},
                  BlockBest<Value>{
                      .token = ints(tokens), .token_stride = 2, .value = best, .value_stride = 2},
                  2, 2);
  }
};

TEST(GumbelKernel, WithoutTemperatureTheBestOfEachBlock) {
  Sampled<float> narrow;
  narrow.run();
  EXPECT_EQ(narrow.tokens, (Wide{1, 4, 0, 3}));
  EXPECT_EQ(narrow.best, (Floats{9, 3, 4, 8}));
  Sampled<double> wide;
  wide.run();
  EXPECT_EQ(wide.tokens, narrow.tokens);
  EXPECT_EQ(wide.best, (std::vector<double>{9, 3, 4, 8}));
}

TEST(GumbelKernel, ASeedGivesTheSameDrawAndAPositionAnother) {
  Sampled<float> first;
  first.idx_mapping = {0, 0};
  first.run();
  Sampled<float> again;
  again.idx_mapping = {0, 0};
  again.run();
  EXPECT_EQ(first.best, again.best);
  again.positions[0] = 9;
  again.run();
  EXPECT_NE(first.best[0], again.best[0]);
  EXPECT_EQ(first.best[2], again.best[2]);
}

TEST(GumbelKernel, RawLogitsOfRowsWithARequestAreKept) {
  Sampled<float> draw;
  Floats kept(2 * 2 * 5, -7);
  Wide column{1};
  const LogitsCache cache{.data = kept.data(),
                          .size = size_of(kept),
                          .request_stride = 10,
                          .column_stride = 5,
                          .column = ints(column),
                          .has_column_per_row = false,
                          .source = logits_of(draw.values, 5)};
  draw.run(cache);
  Floats expected(20, -7);
  std::copy_n(draw.values.begin(), 5, expected.begin() + 15);
  EXPECT_EQ(kept, expected);
  column[0] = 2;
  expect_refused([&] { draw.run(cache); }, "elements 20 to 25 of logits_cache");
}

TEST(GumbelKernel, MemoryThatIsTooSmallIsRefused) {
  Sampled<float> draw;
  draw.tokens.pop_back();
  expect_refused([&] { draw.run(); }, "local_argmax");
  draw.tokens.push_back(-1);
  draw.idx_mapping[0] = 2;
  expect_refused([&] { draw.run(); }, "expanded_idx_mapping[0] is 2");
  EXPECT_EQ(draw.tokens, Wide(4, -1));
}

Floats kept(Floats values, Wide top_k, const Floats& top_p) {
  apply_top_k_top_p({.logits = values.data(),
                     .num_rows = 1,
                     .vocab_size = size_of(values),
                     .stride = size_of(values),
                     .top_k = top_k.empty() ? Ints{} : ints(top_k),
                     .top_p = top_p,
                     .mask_value = -1});
  return values;
}

TEST(TopKTopPKernel, KeepsTheGreatestOfEqualOnesTheFirst) {
  EXPECT_EQ(kept({3, 1, 3, 3}, {2}, {}), (Floats{3, -1, 3, -1}));
  EXPECT_EQ(kept({3, 1, 3, 3}, {9}, {}), (Floats{3, 1, 3, 3}));
  EXPECT_EQ(kept({5, 1, 5.5, 0}, {}, {0.9F}), (Floats{5, -1, 5.5, -1}));
  EXPECT_EQ(kept({5, 1, 5.5, 0}, {}, {0}), (Floats{-1, -1, 5.5, -1}));
  EXPECT_EQ(kept({5, 1, 5.5, 0}, {2}, {0.5F}), (Floats{-1, -1, 5.5, -1}));
  EXPECT_EQ(kept({1, NAN, 3, 2}, {}, {0.5F}), (Floats{-1, -1, 3, -1}));
  EXPECT_EQ(kept({4}, {1}, {0.5F}), (Floats{4}));
  expect_refused([] { kept({4}, {0}, {}); }, "k[0] is 0, expected 1 or more");
}

TEST(TopKTopPKernel, ALongRowKeepsExactlyK) {
  const auto row = random_row(5000);
  for (const std::int64_t k : {1, 50, 4999}) {
    const auto masked = kept(row, {k}, {});
    EXPECT_EQ(std::ranges::count_if(masked, [](float x) { return x != -1; }), k);
  }
}

TEST(ThinkingBudgetKernel, TheMarkerIsForcedOnceTheBudgetIsUsedUp) {
  Floats values(8, 0);
  Wide idx_mapping{0};
  Narrow budget{2};
  Narrow tokens{1, 5, 5, 5};
  Narrow total_len{2};
  Narrow last_start{-1};
  Narrow last_end{-1};
  Narrow scan{0};
  Narrow start{1};
  Narrow end{2};
  Narrow forced{3, 4};
  Narrow input_ids{5};
  Narrow local_pos{0};
  const ThinkingState state{.budget = ints(budget),
                            .all_token_ids = rows(tokens, 4),
                            .total_len = ints(total_len),
                            .last_start = ints(last_start),
                            .last_end = ints(last_end),
                            .start_marker = ints(start),
                            .end_marker = ints(end)};
  const auto step = [&] {
    find_markers(state, ints(idx_mapping), ints(scan), 1);
    force_end_of_thinking(logits_of(values, 8), state,
                          {.idx_mapping = ints(idx_mapping),
                           .input_ids = ints(input_ids),
                           .local_pos = ints(local_pos),
                           .forced_marker = ints(forced)},
                          1);
  };
  step();
  EXPECT_EQ(values, Floats(8, 0));
  EXPECT_EQ(last_start[0], 0);
  total_len[0] = 3;
  step();
  EXPECT_GT(values[3], 1e4F);
  tokens[3] = 3;
  total_len[0] = 4;
  step();
  EXPECT_GT(values[4], 1e4F);
  total_len[0] = 5;
  expect_refused(step, "elements 0 to 5 of all_token_ids");
}

}  // namespace
}  // namespace pyvllm_pp::kernels
