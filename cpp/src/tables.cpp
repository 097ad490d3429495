#include "pyvllm_pp/tables.h"

#include <algorithm>
#include <cstdint>

#include "index_run.h"
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

std::size_t device_bytes_for(const PlanConfig& config, std::size_t num_reqs, std::size_t num_tokens,
                             std::size_t padded_num_tokens, std::size_t num_local_reqs,
                             std::size_t padded_num_reqs) {
  const auto num_gathered = padded_num_tokens * index(config.pcp_size);
  return sizeof(std::int64_t) * (num_tokens + num_gathered + num_local_reqs + 2 * num_reqs) +
         sizeof(std::int32_t) *
             (2 * index(config.limits.max_num_reqs) + 1 + num_local_reqs + 1 + padded_num_reqs) +
         sizeof(bool) * 2 * num_gathered;
}

std::size_t standing_bytes_for(std::size_t num_local_reqs, std::size_t padded_num_reqs) {
  return sizeof(std::int64_t) * 2 * num_local_reqs +
         sizeof(std::int32_t) * (2 * num_local_reqs + 1 + padded_num_reqs + 1);
}

std::size_t host_bytes_for(std::size_t num_local_reqs, std::size_t padded_num_reqs) {
  return standing_bytes_for(num_local_reqs, padded_num_reqs) +
         sizeof(std::int32_t) * (3 * num_local_reqs + padded_num_reqs) +
         sizeof(bool) * padded_num_reqs;
}

}  // namespace

std::size_t device_arena_bytes(const PlanConfig& config) {
  check_config(config);
  const auto max_num_tokens = index(config.limits.max_num_tokens);
  const auto max_local_reqs = 2 * index(config.limits.max_num_reqs);
  return device_bytes_for(config, index(config.limits.max_num_reqs), max_num_tokens, max_num_tokens,
                          max_local_reqs, max_local_reqs);
}

std::size_t host_arena_bytes(const PlanConfig& config) {
  check_config(config);
  const auto max_local_reqs = 2 * index(config.limits.max_num_reqs);
  return host_bytes_for(max_local_reqs, max_local_reqs);
}

TableWriter::TableWriter(const PlanConfig& config, std::int32_t rank)
    : config_(config), rank_(rank) {
  check_config(config);
  if (rank < 0 || rank >= config.pcp_size) {
    fail(kRoom, "rank ", rank, " is outside [0, ", config.pcp_size, ")");
  }
  written_idx_mapping_.reserve(2 * index(config.limits.max_num_reqs));
  num_selected_rows_.resize(index(config.pcp_size));
}

TableSizes TableWriter::sizes(const Plan& plan, const Padding& padding) const {
  if (plan.pcp_size() != config_.pcp_size) {
    fail(kRoom, "the plan is one of ", plan.pcp_size(), " ranks, expected ", config_.pcp_size);
  }
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
    fail(kRoom, "padded request count ", padded_num_reqs, " exceeds the buffers' ", max_local_reqs,
         " rows");
  }
  return {.num_local_reqs = num_local_reqs,
          .num_local_tokens = plan.num_rank_tokens(rank_),
          .padded_num_reqs = padded_num_reqs,
          .padded_num_tokens = padded_num_tokens};
}

std::size_t TableWriter::device_bytes(const Plan& plan, const TableSizes& sizes) const {
  return device_bytes_for(config_, index(plan.num_reqs()), index(plan.num_tokens()),
                          index(sizes.padded_num_tokens), index(sizes.num_local_reqs),
                          index(sizes.padded_num_reqs));
}

std::size_t TableWriter::host_bytes(const TableSizes& sizes) const {
  return host_bytes_for(index(sizes.num_local_reqs), index(sizes.padded_num_reqs));
}

void TableWriter::check(const Plan& plan, const BatchView& batch, const TableSizes& sizes) const {
  if (!plan.is_made_from(batch.scheduled)) {
    fail(kRoom, "the plan (", plan.num_reqs(), " requests, ", plan.num_tokens(),
         " tokens) was made from another batch than the one given (",
         batch.scheduled.num_scheduled_tokens.size(), " requests)");
  }
  check_batch(batch, config_.limits);
  if (plan.num_reqs() == 0) {
    fail(kRoom, "a batch of 0 requests has no tables, expected 1 or more");
  }
  const Padding padding{.num_tokens = sizes.padded_num_tokens, .num_reqs = sizes.padded_num_reqs};
  if (sizes != this->sizes(plan, padding)) {
    fail(kRoom, "the sizes (", sizes.num_local_reqs, " rows, ", sizes.num_local_tokens,
         " tokens) are of another plan than the one given (revision ", plan.revision(), ")");
  }
}

std::span<const RankSegment> TableWriter::rows(const Plan& plan) const {
  const auto segments = plan.segments(rank_);
  return segments.empty() ? std::span(&kIdleRow, 1) : segments;
}

bool TableWriter::is_current(const Plan& plan, const BatchView& batch,
                             const TableSizes& sizes) const {
  return plan.is_made_from(batch.scheduled) && batch.idx_mapping.size() == index(plan.num_reqs()) &&
         is_written(plan, batch, sizes);
}

bool TableWriter::is_written(const Plan& plan, const BatchView& batch,
                             const TableSizes& sizes) const {
  if (written_revision_ == 0 || plan.revision() != written_revision_ || sizes != written_sizes_) {
    return false;
  }
  return std::ranges::equal(rows(plan), written_idx_mapping_,
                            [&batch](const RankSegment& row, std::int64_t slot) {
                              return batch.idx_mapping[index(row.req_idx)] == slot;
                            });
}

void TableWriter::write(const Plan& plan, const BatchView& batch, const TableSizes& sizes,
                        std::span<std::byte> device_arena, std::span<std::byte> host_memory) {
  check(plan, batch, sizes);
  write_all(plan, batch, sizes, device_arena, host_memory);
}

void TableWriter::write_host(const Plan& plan, const BatchView& batch, const TableSizes& sizes,
                             std::span<std::byte> host_memory) {
  check(plan, batch, sizes);
  if (!is_written(plan, batch, sizes)) {
    fail(kRoom, "the device tables are of another step, expected those of this plan (revision ",
         plan.revision(), ", written ", written_revision_, ")");
  }
  write_host_only(plan, batch, sizes, host_memory);
}

bool TableWriter::update(const Plan& plan, const BatchView& batch, const TableSizes& sizes,
                         std::span<std::byte> device_arena, std::span<std::byte> host_memory) {
  check(plan, batch, sizes);
  if (is_written(plan, batch, sizes)) {
    write_host_only(plan, batch, sizes, host_memory);
    return false;
  }
  write_all(plan, batch, sizes, device_arena, host_memory);
  return true;
}

void TableWriter::write_all(const Plan& plan, const BatchView& batch, const TableSizes& sizes,
                            std::span<std::byte> device_arena, std::span<std::byte> host_memory) {
  check_memory("device arena", device_arena, device_bytes(plan, sizes));
  check_memory("host memory", host_memory, host_bytes(sizes));
  cut_device(plan, sizes, device_arena);
  cut_host(sizes, host_memory);
  write_gathered(plan, sizes.padded_num_tokens);
  write_selected(plan, batch);
  write_standing_rows(plan, batch);
  write_moving_rows(plan, batch);
  write_device_rows();
  written_revision_ = plan.revision();
  written_sizes_ = sizes;
  written_idx_mapping_.assign(host_.idx_mapping.begin(), host_.idx_mapping.end());
}

void TableWriter::write_host_only(const Plan& plan, const BatchView& batch, const TableSizes& sizes,
                                  std::span<std::byte> host_memory) {
  check_memory("host memory", host_memory, host_bytes(sizes));
  cut_moving_host(sizes, host_memory);
  write_moving_rows(plan, batch);
}

void TableWriter::cut_device(const Plan& plan, const TableSizes& sizes,
                             std::span<std::byte> arena) {
  const auto num_gathered = index(sizes.padded_num_tokens) * index(config_.pcp_size);
  const auto num_local_reqs = index(sizes.num_local_reqs);
  Cutter cutter(arena);
  device_.hidden_restore_idx = cutter.cut<std::int64_t>(index(plan.num_tokens()));
  device_.padded_gather_idx = cutter.cut<std::int64_t>(num_gathered);
  device_.idx_mapping = cutter.cut<std::int64_t>(num_local_reqs);
  device_.selected_local_idx = cutter.cut<std::int64_t>(index(plan.num_reqs()));
  device_.selected_restore_idx = cutter.cut<std::int64_t>(index(plan.num_reqs()));
  device_.query_start_loc = cutter.cut<std::int32_t>(2 * index(config_.limits.max_num_reqs) + 1);
  device_.cu_num_logits = cutter.cut<std::int32_t>(num_local_reqs + 1);
  device_.logits_indices = cutter.cut<std::int32_t>(index(sizes.padded_num_reqs));
  device_.gathered_kv_write_mask = cutter.cut<bool>(num_gathered);
  device_.gathered_is_padding = cutter.cut<bool>(num_gathered);
  device_.num_bytes = cutter.used();
}

void TableWriter::cut_host(const TableSizes& sizes, std::span<std::byte> memory) {
  const auto num_local_reqs = index(sizes.num_local_reqs);
  Cutter cutter(memory);
  host_.req_idx = cutter.cut<std::int64_t>(num_local_reqs);
  host_.idx_mapping = cutter.cut<std::int64_t>(num_local_reqs);
  host_.num_scheduled_tokens = cutter.cut<std::int32_t>(num_local_reqs);
  host_.query_start_loc = cutter.cut<std::int32_t>(index(sizes.padded_num_reqs) + 1);
  host_.cu_num_logits = cutter.cut<std::int32_t>(num_local_reqs + 1);
  cut_moving_host(sizes, memory);
}

void TableWriter::cut_moving_host(const TableSizes& sizes, std::span<std::byte> memory) {
  const auto num_local_reqs = index(sizes.num_local_reqs);
  const auto padded_num_reqs = index(sizes.padded_num_reqs);
  // Behind the standing tables, also in memory without them: a caller may give the same memory.
  const auto standing_bytes = standing_bytes_for(num_local_reqs, padded_num_reqs);
  Cutter cutter(memory.subspan(standing_bytes));
  host_.start_pos = cutter.cut<std::int32_t>(num_local_reqs);
  host_.prefill_len = cutter.cut<std::int32_t>(num_local_reqs);
  host_.num_computed_prefill_tokens = cutter.cut<std::int32_t>(num_local_reqs);
  host_.seq_lens_upper_bound = cutter.cut<std::int32_t>(padded_num_reqs);
  host_.is_prefilling = cutter.cut<bool>(padded_num_reqs);
  host_.num_bytes = standing_bytes + cutter.used();
}

void TableWriter::write_gathered(const Plan& plan, std::int32_t padded_num_tokens) {
  const auto replicated = plan.replicated();
  const auto padded = index(padded_num_tokens);
  for (std::int32_t rank = 0; rank < config_.pcp_size; ++rank) {
    const auto rank_start = index(rank) * padded;
    const auto used = index(plan.num_rank_tokens(rank));
    const auto gather = device_.padded_gather_idx.subspan(rank_start, padded);
    const auto write_mask = device_.gathered_kv_write_mask.subspan(rank_start, padded);
    const auto is_padding = device_.gathered_is_padding.subspan(rank_start, padded);
    std::ranges::fill(gather.subspan(used), 0);
    std::ranges::fill(write_mask.first(used), true);
    std::ranges::fill(write_mask.subspan(used), false);
    std::ranges::fill(is_padding.first(used), false);
    std::ranges::fill(is_padding.subspan(used), true);
    for (const auto& segment : plan.segments(rank)) {
      const auto local_start = index(segment.local_start);
      const auto count = index(segment.num_tokens);
      write_run(gather.subspan(local_start, count), segment.token_start);
      // A replicated request's rows are equal on all ranks; rank 0's are the ones that count.
      if (rank != 0 && replicated[index(segment.req_idx)] != 0) {
        std::ranges::fill(write_mask.subspan(local_start, count), false);
      } else {
        write_run(device_.hidden_restore_idx.subspan(index(segment.token_start), count),
                  static_cast<std::int64_t>(rank_start + local_start));
      }
    }
  }
}

void TableWriter::write_standing_rows(const Plan& plan, const BatchView& batch) {
  const bool has_logits = plan.num_rank_tokens(rank_) > 0;
  std::int32_t end = 0;
  std::size_t row = 0;
  for (const auto& segment : rows(plan)) {
    host_.req_idx[row] = segment.req_idx;
    host_.idx_mapping[row] = batch.idx_mapping[index(segment.req_idx)];
    host_.num_scheduled_tokens[row] = segment.num_tokens;
    host_.query_start_loc[row] = end;
    host_.cu_num_logits[row] = has_logits ? static_cast<std::int32_t>(row) : 0;
    end += segment.num_tokens;
    ++row;
  }
  host_.cu_num_logits[row] = has_logits ? static_cast<std::int32_t>(row) : 0;
  std::ranges::fill(host_.query_start_loc.subspan(row), end);
}

void TableWriter::write_moving_rows(const Plan& plan, const BatchView& batch) {
  std::size_t row = 0;
  for (const auto& segment : rows(plan)) {
    const auto req = index(segment.req_idx);
    const auto prefill_len = batch.prefill_len[req];
    const auto start_pos =
        batch.num_computed_tokens[req] + segment.token_start - batch.query_start_loc[req];
    host_.start_pos[row] = start_pos;
    host_.prefill_len[row] = prefill_len;
    host_.num_computed_prefill_tokens[row] = std::min(start_pos, prefill_len);
    host_.is_prefilling[row] = start_pos < prefill_len;
    host_.seq_lens_upper_bound[row] = start_pos + segment.num_tokens;
    ++row;
  }
  std::ranges::fill(host_.seq_lens_upper_bound.subspan(row), 0);
  std::ranges::fill(host_.is_prefilling.subspan(row), false);
}

void TableWriter::write_device_rows() {
  const auto num_ends = host_.query_start_loc.size();
  const auto last_end = host_.query_start_loc.back();
  std::ranges::copy(host_.idx_mapping, device_.idx_mapping.begin());
  std::ranges::copy(host_.cu_num_logits, device_.cu_num_logits.begin());
  std::ranges::copy(host_.query_start_loc, device_.query_start_loc.begin());
  std::ranges::fill(device_.query_start_loc.subspan(num_ends), last_end);
  std::ranges::transform(host_.query_start_loc.subspan(1), device_.logits_indices.begin(),
                         [](std::int32_t end) { return end - 1; });
}

}  // namespace pyvllm_pp
