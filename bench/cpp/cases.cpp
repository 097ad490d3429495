#include "cases.h"

#include <algorithm>
#include <numeric>

namespace pyvllm_pp::bench {
namespace {

PlanConfig config_of(std::int32_t pcp_size, std::int32_t max_num_reqs) {
  return {.pcp_size = pcp_size,
          .dcp_size = 1,
          .shard_decode_requests = true,
          .partition = Partition::dual_chunk_swap,
          .limits = {.max_num_reqs = max_num_reqs, .max_num_tokens = kMaxNumTokens}};
}

std::size_t words(std::size_t num_bytes) {
  return (num_bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
}

}  // namespace

OwnedBatch::OwnedBatch(const Shape& shape, std::int32_t first_tokens)
    : num_reqs_(static_cast<std::size_t>(shape.num_reqs)),
      num_scheduled_tokens_(num_reqs_, shape.tokens_each),
      is_prefilling_(std::make_unique<bool[]>(num_reqs_)),
      query_start_loc_(num_reqs_ + 1),
      num_computed_tokens_(num_reqs_, shape.is_prefilling ? 0 : 100),
      prefill_len_(num_reqs_, shape.is_prefilling ? shape.tokens_each : 100),
      idx_mapping_(num_reqs_) {
  num_scheduled_tokens_.front() = first_tokens;
  std::ranges::fill(std::span(is_prefilling_.get(), num_reqs_), shape.is_prefilling);
  std::partial_sum(num_scheduled_tokens_.begin(), num_scheduled_tokens_.end(),
                   query_start_loc_.begin() + 1);
  // Slots in reverse: a table that gave rows instead would show.
  std::iota(idx_mapping_.rbegin(), idx_mapping_.rend(), 0);
}

BatchView OwnedBatch::view() const {
  return {.scheduled = {.num_scheduled_tokens = num_scheduled_tokens_,
                        .is_prefilling = std::span(is_prefilling_.get(), num_reqs_)},
          .query_start_loc = query_start_loc_,
          .num_computed_tokens = num_computed_tokens_,
          .prefill_len = prefill_len_,
          .idx_mapping = idx_mapping_};
}

Core::Core(std::int32_t pcp_size, std::int32_t max_num_reqs)
    : planner_(config_of(pcp_size, max_num_reqs)),
      device_arena_(words(device_arena_bytes(planner_.config()))),
      host_memory_(words(host_arena_bytes(planner_.config()))) {
  for (std::int32_t rank = 0; rank < pcp_size; ++rank) {
    writers_.emplace_back(planner_.config(), rank);
  }
}

const Plan& Core::step(const BatchView& batch, std::size_t rank) {
  const auto& plan = planner_.plan(batch.scheduled);
  write(plan, batch, rank);
  return plan;
}

const Plan& Core::step_of_all_ranks(const BatchView& batch) {
  const auto& plan = planner_.plan(batch.scheduled);
  for (std::size_t rank = 0; rank < writers_.size(); ++rank) {
    write(plan, batch, rank);
  }
  return plan;
}

void Core::write(const Plan& plan, const BatchView& batch, std::size_t rank) {
  auto& writer = writers_[rank];
  writer.write(plan, batch, writer.sizes(plan, {}),
               std::as_writable_bytes(std::span(device_arena_)),
               std::as_writable_bytes(std::span(host_memory_)));
}

bool is_right(const Core& core, const Plan& plan, std::size_t rank) {
  const auto& device = core.writer(rank).device();
  const auto& host = core.writer(rank).host();
  const auto num_tokens = static_cast<std::size_t>(plan.num_tokens());
  if (device.hidden_restore_idx.size() != num_tokens ||
      std::ranges::count(device.gathered_kv_write_mask, true) != plan.num_tokens()) {
    return false;
  }
  for (std::size_t token = 0; token < num_tokens; ++token) {
    const auto row = static_cast<std::size_t>(device.hidden_restore_idx[token]);
    if (device.padded_gather_idx[row] != static_cast<std::int64_t>(token) ||
        !device.gathered_kv_write_mask[row] || device.gathered_is_padding[row]) {
      return false;
    }
  }
  return host.query_start_loc.back() == plan.num_rank_tokens(static_cast<std::int32_t>(rank));
}

}  // namespace pyvllm_pp::bench
