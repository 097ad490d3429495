#include <stdexcept>

#include "pyvllm_pp/tables.h"
#include "steps.h"
#include "support/steps.h"

/// Rules 2 to 4 of the tables, and reuse, on any batch, padding and memory.
namespace pyvllm_pp::fuzz {
namespace {

using testing::copy;
using testing::index;
using testing::Memory;
using testing::OwnedBatch;

void check_gathered(const DeviceTables& device, const OwnedBatch& batch) {
  std::size_t num_written = 0;
  for (std::size_t row = 0; row < device.padded_gather_idx.size(); ++row) {
    const auto token = device.padded_gather_idx[row];
    require(device.gathered_is_padding[row] ? token == 0 : token < batch.num_tokens(),
            "a gathered row is a token or padding");
    if (device.gathered_kv_write_mask[row]) {
      ++num_written;
      require(!device.gathered_is_padding[row], "padding writes no KV");
      require(device.hidden_restore_idx[index(token)] == static_cast<std::int64_t>(row),
              "restore is the inverse of gather where KV is written");
    }
  }
  require(num_written == device.hidden_restore_idx.size(), "each token's KV is written once");
}

void check_rows(const TableWriter& writer, const Plan& plan, const OwnedBatch& batch) {
  const auto& host = writer.host();
  const auto segments = plan.segments(writer.rank());
  for (std::size_t row = 0; row < segments.size(); ++row) {
    const auto req = index(segments[row].req_idx);
    require(host.start_pos[row] - batch.num_computed_tokens[req] ==
                segments[row].token_start - batch.query_start_loc[req],
            "a row's context is all earlier tokens of its request");
    require(host.idx_mapping[row] == batch.idx_mapping[req], "a row has its request's slot");
  }
  require(host.query_start_loc.back() == plan.num_rank_tokens(writer.rank()),
          "query starts end at the rank's tokens");
}

/// Sampled tokens lie where packed rows are restored from.
void check_selected(const TableWriter& writer, const OwnedBatch& batch) {
  std::int32_t num_packed = 0;
  for (const auto count : writer.num_selected_rows()) {
    num_packed += count;
  }
  std::int32_t num_sampling = 0;
  for (const auto count : batch.num_scheduled_tokens) {
    num_sampling += count > 0 ? 1 : 0;
  }
  require(num_packed == num_sampling, "each request's last token is packed once");
  for (const auto row : writer.device().selected_restore_idx) {
    require(row >= 0 && row < std::max(num_packed, 1), "a restored row is a packed one");
  }
}

struct Rank {
  Rank(const PlanConfig& config, std::int32_t rank)
      : planner(config),
        writer(config, rank),
        arena(device_arena_bytes(config)),
        host(host_arena_bytes(config)) {}
  Planner planner;
  TableWriter writer;
  Memory arena;
  Memory host;
};

void step(Rank& kept, const PlanConfig& config, Input& input) {
  const auto batch = batch_from(input);
  const auto& plan = kept.planner.plan(batch.scheduled());
  const Padding padding{.num_tokens = input.in(0, 1) == 0 ? 0 : input.any(),
                        .num_reqs = input.in(0, 1) == 0 ? 0 : input.any()};
  const auto sizes = kept.writer.sizes(plan, padding);
  if (kept.writer.is_current(plan, batch.view(), sizes)) {
    kept.writer.write_host(plan, batch.view(), sizes, kept.host.span());
  } else {
    // Memory of exactly the size asked for: a write past it is caught.
    const auto num_bytes = kept.writer.device_bytes(plan, sizes);
    require(num_bytes <= device_arena_bytes(config), "the arena holds any step");
    kept.writer.write(plan, batch.view(), sizes, kept.arena.span().first(num_bytes),
                      kept.host.span().first(kept.writer.host_bytes(sizes)));
  }
  Rank fresh(config, kept.writer.rank());
  const auto& same = fresh.planner.plan(batch.scheduled());
  fresh.writer.write(same, batch.view(), sizes, fresh.arena.span(), fresh.host.span());
  require(copy(kept.writer.device().hidden_restore_idx) ==
                  copy(fresh.writer.device().hidden_restore_idx) &&
              copy(kept.writer.device().idx_mapping) == copy(fresh.writer.device().idx_mapping),
          "tables that stand are this step's");
  check_gathered(kept.writer.device(), batch);
  check_rows(kept.writer, plan, batch);
  check_selected(kept.writer, batch);
}

void run(Input input) {
  const auto config = config_from(input);
  Rank kept(config, input.in(0, config.pcp_size - 1));
  while (!input.is_empty()) {
    try {
      step(kept, config, input);
    } catch (const std::invalid_argument&) {
      // Bad input has its error.
    }
  }
}

}  // namespace
}  // namespace pyvllm_pp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  pyvllm_pp::fuzz::run({data, size});
  return 0;
}
