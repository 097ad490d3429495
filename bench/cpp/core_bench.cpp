#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "cases.h"

namespace pyvllm_pp::bench {
namespace {

enum class Ranks : std::uint8_t { one, all };

/// Two batches of one shape in turn, so that no plan and no table of the last step is current.
void run(benchmark::State& state, const Shape& shape, std::int32_t pcp_size,
         std::int32_t max_num_reqs, Ranks ranks) {
  const auto other = shape.tokens_each == 1 ? 2 : shape.tokens_each - 1;
  const OwnedBatch batches[]{{shape, shape.tokens_each}, {shape, other}};
  const BatchView views[]{batches[0].view(), batches[1].view()};
  Core core(pcp_size, max_num_reqs);
  const auto step = [&core, ranks](const BatchView& batch) -> const Plan& {
    return ranks == Ranks::one ? core.step(batch, 0) : core.step_of_all_ranks(batch);
  };
  // All ranks write into the same memory: the last one's tables are there to be seen.
  const auto last_rank = ranks == Ranks::one ? 0U : static_cast<std::size_t>(pcp_size) - 1;
  for (const auto& view : views) {
    if (!is_right(core, step(view), last_rank)) {
      state.SkipWithError("wrong tables");
      return;
    }
  }
  std::size_t turn = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(&step(views[turn]));
    benchmark::ClobberMemory();
    turn ^= 1;
  }
}

void add(const std::string& group, const Shape& shape, std::int32_t pcp_size,
         std::int32_t max_num_reqs, Ranks ranks) {
  const auto name = group + "/" + std::string(shape.name) + "/" + std::to_string(pcp_size);
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    run(state, shape, pcp_size, max_num_reqs, ranks);
  });
}

void add_scaling(const std::string& series, std::int32_t size, std::int32_t num_reqs,
                 std::int32_t tokens_each, bool is_prefilling) {
  const auto name = std::to_string(size);
  add("scaling/" + series, {name, num_reqs, tokens_each, is_prefilling}, kScalingPcpSize,
      kScalingMaxNumReqs, Ranks::one);
}

void add_all() {
  for (const auto& shape : kBatches) {
    for (const auto pcp_size : kPcpSizes) {
      add("one_rank", shape, pcp_size, kMaxNumReqs, Ranks::one);
      add("all_ranks", shape, pcp_size, kMaxNumReqs, Ranks::all);
    }
  }
  for (const auto num_reqs : kDecodes) {
    add_scaling("decodes", num_reqs, num_reqs, 1, false);
  }
  for (const auto num_reqs : kPromptsOf16) {
    add_scaling("prompts_of_16", num_reqs, num_reqs, 16, true);
  }
  for (const auto num_tokens : kTokensOf4Prompts) {
    add_scaling("tokens_of_4_prompts", num_tokens, 4, num_tokens / 4, true);
  }
}

}  // namespace
}  // namespace pyvllm_pp::bench

int main(int argc, char** argv) {
  pyvllm_pp::bench::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return EXIT_FAILURE;
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return EXIT_SUCCESS;
}
