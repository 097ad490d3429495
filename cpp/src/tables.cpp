#include "pyvllm_pp/tables.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "pyvllm_pp/error.h"

namespace pyvllm_pp {
namespace {

constexpr std::string_view kRoom = "tables";
constexpr RankSegment kIdleRow{.req_idx = 0, .token_start = 0, .num_tokens = 0, .local_start = 0};

std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }

/// Cuts typed arrays off a block of memory; widest types first, so that no array needs padding.
class Cutter {
 public:
  explicit Cutter(std::span<std::byte> memory) : memory_(memory) {}

  template <typename T>
  std::span<T> cut(std::size_t count) {
    const auto bytes = memory_.subspan(used_, count * sizeof(T));
    used_ += bytes.size();
    return {reinterpret_cast<T*>(bytes.data()), count};
  }

  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  std::span<std::byte> memory_;
  std::size_t used_ = 0;
};

void check_memory(std::string_view name, std::span<const std::byte> memory, std::size_t needed) {
  if (memory.size() < needed) {
    fail(kRoom, name, " has ", memory.size(), " bytes, this step needs ", needed);
  }
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % alignof(std::int64_t) != 0) {
    fail(kRoom, name, " is not aligned to ", alignof(std::int64_t), " bytes");
  }
}

std::size_t device_bytes_for(const PlanConfig& config, std::size_t num_tokens,
                             std::size_t padded_num_tokens, std::size_t num_local_reqs) {
  const auto num_gathered = padded_num_tokens * index(config.pcp_size);
  return sizeof(std::int64_t) * (num_tokens + num_gathered + num_local_reqs) +
         sizeof(std::int32_t) * (2 * index(config.limits.max_num_reqs) + 1 + num_local_reqs + 1) +
         sizeof(bool) * num_gathered;
}

std::size_t host_bytes_for(std::size_t num_local_reqs, std::size_t padded_num_reqs) {
  return sizeof(std::int64_t) * 2 * num_local_reqs +
         sizeof(std::int32_t) * (5 * num_local_reqs + 1 + 2 * padded_num_reqs + 1) +
         sizeof(bool) * padded_num_reqs;
}

}  // namespace

std::size_t device_arena_bytes(const PlanConfig& config) {
  const auto max_num_tokens = index(config.limits.max_num_tokens);
  return device_bytes_for(config, max_num_tokens, max_num_tokens,
                          2 * index(config.limits.max_num_reqs));
}

std::size_t host_arena_bytes(const PlanConfig& config) {
  const auto max_local_reqs = 2 * index(config.limits.max_num_reqs);
  return host_bytes_for(max_local_reqs, max_local_reqs);
}

TableWriter::TableWriter(const PlanConfig& config, std::int32_t rank)
    : config_(config), rank_(rank) {
  if (rank < 0 || rank >= config.pcp_size) {
    fail(kRoom, "rank ", rank, " is outside [0, ", config.pcp_size, ")");
  }
}

TableSizes TableWriter::sizes(const Plan& plan, const Padding& padding) const {
  const auto num_rows = static_cast<std::int32_t>(plan.segments(rank_).size());
  const auto num_local_reqs = std::max(num_rows, 1);
  const auto max_local_reqs = 2 * config_.limits.max_num_reqs;
  const auto max_rank_tokens = plan.max_rank_tokens();
  const auto padded_num_tokens = padding.num_tokens == 0 ? max_rank_tokens : padding.num_tokens;
  const auto padded_num_reqs = padding.num_reqs == 0 ? num_local_reqs : padding.num_reqs;
  if (padded_num_tokens < max_rank_tokens) {
    fail(kRoom, "padded token count ", padding.num_tokens, " is smaller than the largest rank's ",
         max_rank_tokens, " tokens");
  }
  if (padded_num_tokens > config_.limits.max_num_tokens) {
    fail(kRoom, "padded token count ", padded_num_tokens, " exceeds the buffers' ",
         config_.limits.max_num_tokens, " tokens");
  }
  if (padded_num_reqs < num_local_reqs) {
    fail(kRoom, "padded request count ", padding.num_reqs, " is smaller than this rank's ",
         num_local_reqs, " rows");
  }
  if (padded_num_reqs > max_local_reqs) {
    fail(kRoom, "padded request count ", padded_num_reqs, " exceeds the buffers' ",
         max_local_reqs, " rows");
  }
  return {.num_local_reqs = num_local_reqs,
          .num_local_tokens = plan.num_rank_tokens(rank_),
          .padded_num_reqs = padded_num_reqs,
          .padded_num_tokens = padded_num_tokens};
}

std::size_t TableWriter::device_bytes(const Plan& plan, const TableSizes& sizes) const {
  return device_bytes_for(config_, index(plan.num_tokens()), index(sizes.padded_num_tokens),
                          index(sizes.num_local_reqs));
}

std::size_t TableWriter::host_bytes(const TableSizes& sizes) const {
  return host_bytes_for(index(sizes.num_local_reqs), index(sizes.padded_num_reqs));
}

void TableWriter::write(const Plan& plan, const BatchView& batch, const TableSizes& sizes,
                        std::span<std::byte> device_arena, std::span<std::byte> host_memory) {
  if (!plan.is_made_from(batch.scheduled)) {
    fail(kRoom, "the plan (", plan.num_reqs(), " requests, ", plan.num_tokens(),
         " tokens) was made from another batch than the one given (",
         batch.scheduled.num_scheduled_tokens.size(), " requests)");
  }
  check_batch(batch, config_.limits);
  if (plan.num_reqs() == 0) {
    fail(kRoom, "a batch of 0 requests has no tables, expected 1 or more");
  }
  check_memory("device arena", device_arena, device_bytes(plan, sizes));
  check_memory("host memory", host_memory, host_bytes(sizes));

  const auto num_gathered = index(sizes.padded_num_tokens) * index(config_.pcp_size);
  const auto num_local_reqs = index(sizes.num_local_reqs);
  const auto padded_num_reqs = index(sizes.padded_num_reqs);
  Cutter device(device_arena);
  device_.hidden_restore_idx = device.cut<std::int64_t>(index(plan.num_tokens()));
  device_.padded_gather_idx = device.cut<std::int64_t>(num_gathered);
  device_.idx_mapping = device.cut<std::int64_t>(num_local_reqs);
  device_.query_start_loc =
      device.cut<std::int32_t>(2 * index(config_.limits.max_num_reqs) + 1);
  device_.cu_num_logits = device.cut<std::int32_t>(num_local_reqs + 1);
  device_.gathered_kv_write_mask = device.cut<bool>(num_gathered);
  device_.num_bytes = device.used();
  Cutter host(host_memory);
  host_.req_idx = host.cut<std::int64_t>(num_local_reqs);
  host_.idx_mapping = host.cut<std::int64_t>(num_local_reqs);
  host_.num_scheduled_tokens = host.cut<std::int32_t>(num_local_reqs);
  host_.start_pos = host.cut<std::int32_t>(num_local_reqs);
  host_.prefill_len = host.cut<std::int32_t>(num_local_reqs);
  host_.num_computed_prefill_tokens = host.cut<std::int32_t>(num_local_reqs);
  host_.query_start_loc = host.cut<std::int32_t>(padded_num_reqs + 1);
  host_.seq_lens_upper_bound = host.cut<std::int32_t>(padded_num_reqs);
  host_.cu_num_logits = host.cut<std::int32_t>(num_local_reqs + 1);
  host_.is_prefilling = host.cut<bool>(padded_num_reqs);
  host_.num_bytes = host.used();

  write_gathered(plan, sizes.padded_num_tokens);
  write_rows(plan, batch);
}

void TableWriter::write_gathered(const Plan& plan, std::int32_t padded_num_tokens) {
  for (std::int32_t rank = 0; rank < config_.pcp_size; ++rank) {
    const auto rank_start = index(rank) * index(padded_num_tokens);
    for (const auto& segment : plan.segments(rank)) {
      const auto gathered = rank_start + index(segment.local_start);
      const auto count = index(segment.num_tokens);
      const auto gather = device_.padded_gather_idx.subspan(gathered, count);
      std::iota(gather.begin(), gather.end(), std::int64_t{segment.token_start});
      // A replicated request's rows are equal on all ranks; rank 0's are the ones that count.
      const bool counts = rank == 0 || !plan.is_replicated(segment.req_idx);
      std::ranges::fill(device_.gathered_kv_write_mask.subspan(gathered, count), counts);
      if (counts) {
        const auto restore = device_.hidden_restore_idx.subspan(index(segment.token_start), count);
        std::iota(restore.begin(), restore.end(), static_cast<std::int64_t>(gathered));
      }
    }
    const auto used = index(plan.num_rank_tokens(rank));
    const auto unused = index(padded_num_tokens) - used;
    std::ranges::fill(device_.padded_gather_idx.subspan(rank_start + used, unused), 0);
    std::ranges::fill(device_.gathered_kv_write_mask.subspan(rank_start + used, unused), false);
  }
}

void TableWriter::write_rows(const Plan& plan, const BatchView& batch) {
  auto segments = plan.segments(rank_);
  if (segments.empty()) {
    segments = {&kIdleRow, 1};
  }
  const bool has_logits = plan.num_rank_tokens(rank_) > 0;
  std::int32_t end = 0;
  for (std::size_t row = 0; row < segments.size(); ++row) {
    const auto& segment = segments[row];
    const auto req = index(segment.req_idx);
    const auto prefill_len = batch.prefill_len[req];
    const auto start_pos =
        batch.num_computed_tokens[req] + segment.token_start - batch.query_start_loc[req];
    host_.req_idx[row] = segment.req_idx;
    host_.idx_mapping[row] = batch.idx_mapping[req];
    host_.num_scheduled_tokens[row] = segment.num_tokens;
    host_.start_pos[row] = start_pos;
    host_.prefill_len[row] = prefill_len;
    host_.num_computed_prefill_tokens[row] = std::min(start_pos, prefill_len);
    host_.is_prefilling[row] = start_pos < prefill_len;
    host_.seq_lens_upper_bound[row] = start_pos + segment.num_tokens;
    host_.query_start_loc[row] = end;
    host_.cu_num_logits[row] = has_logits ? static_cast<std::int32_t>(row) : 0;
    end += segment.num_tokens;
  }
  const auto num_rows = segments.size();
  host_.cu_num_logits[num_rows] = has_logits ? static_cast<std::int32_t>(num_rows) : 0;
  std::ranges::fill(host_.query_start_loc.subspan(num_rows), end);
  std::ranges::fill(host_.seq_lens_upper_bound.subspan(num_rows), 0);
  std::ranges::fill(host_.is_prefilling.subspan(num_rows), false);

  std::ranges::copy(host_.idx_mapping, device_.idx_mapping.begin());
  std::ranges::copy(host_.cu_num_logits, device_.cu_num_logits.begin());
  std::ranges::copy(host_.query_start_loc.first(num_rows + 1), device_.query_start_loc.begin());
  std::ranges::fill(device_.query_start_loc.subspan(num_rows + 1), end);
}

}  // namespace pyvllm_pp
