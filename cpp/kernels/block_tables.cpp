#include "block_tables.h"

#include <algorithm>
#include <cstring>

namespace pyvllm_pp::kernels {
namespace {

constexpr std::string_view kWrite = "apply_write";
constexpr std::string_view kGather = "gather_block_tables";
constexpr std::string_view kLocal = "dcp_local_seq_lens";

struct Write {
  std::int64_t row;
  std::int64_t start;
  std::int64_t first;  // in the contents
  std::int64_t count;
};

Write write_at(const StagedWrites& writes, std::int64_t i) {
  const auto first = i == 0 ? 0 : writes.cumulative_lens[i - 1];
  return {writes.rows[i], writes.starts[i], first, writes.cumulative_lens[i] - first};
}

void check(const StagedWrites& writes, std::int64_t num_writes, std::int64_t i) {
  const auto [row, start, first, count] = write_at(writes, i);
  check_range(kWrite, "write_contents", first, count, writes.num_contents);
  if (row < 0 || start < 0) {
    fail(kWrite, "write ", i, " of ", num_writes, " goes to row ", row, ", column ", start);
  }
}

void check_lengths(const StagedWrites& writes, std::int64_t num_writes) {
  check_range(kWrite, "write_indices", 0, num_writes, writes.rows.size());
  check_range(kWrite, "write_starts", 0, num_writes, writes.starts.size());
  check_range(kWrite, "write_cu_lens", 0, num_writes, writes.cumulative_lens.size());
}

}  // namespace

std::int32_t* TablePointers::row(std::int64_t group, std::int64_t index) const {
  // vLLM passes tables as addresses of int32 tensors.
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return reinterpret_cast<std::int32_t*>(addresses[group]) + index * strides[group];
}

void apply_writes(const StagedWrites& writes, std::int64_t num_writes, std::byte* output,
                  std::int64_t output_size, std::int64_t row_stride, std::int64_t element_bytes) {
  check_lengths(writes, num_writes);
  for (std::int64_t i = 0; i < num_writes; ++i) {
    check(writes, num_writes, i);
    const auto [row, start, first, count] = write_at(writes, i);
    check_range(kWrite, "output", row * row_stride + start, count, output_size);
  }
  for (std::int64_t i = 0; i < num_writes; ++i) {
    const auto [row, start, first, count] = write_at(writes, i);
    std::memcpy(output + (row * row_stride + start) * element_bytes,
                writes.contents + first * element_bytes, as_size(count * element_bytes));
  }
}

void apply_group_writes(const StagedWrites& writes, std::int64_t num_writes,
                        const TablePointers& tables, const Ints& group_ids) {
  check_lengths(writes, num_writes);
  check_below(kWrite, "write_group_ids", group_ids, num_writes, tables.num_groups);
  for (std::int64_t i = 0; i < num_writes; ++i) {
    check(writes, num_writes, i);
    const auto [row, start, first, count] = write_at(writes, i);
    check_range(kWrite, "write_group_ids", group_ids[i], 1, tables.num_groups);
    check_range(kWrite, "a row", start, count, tables.strides[group_ids[i]]);
  }
  for (std::int64_t i = 0; i < num_writes; ++i) {
    const auto [row, start, first, count] = write_at(writes, i);
    constexpr std::int64_t kBytes = sizeof(std::int32_t);
    std::memcpy(tables.row(group_ids[i], row) + start, writes.contents + first * kBytes,
                as_size(count * kBytes));
  }
}

namespace {

void check(const GatheredTables& in) {
  check_range(kGather, "idx_mapping", 0, in.num_reqs, in.idx_mapping.size());
  check_below(kGather, "idx_mapping", in.idx_mapping, in.num_reqs, in.num_blocks.stride);
  check_range(kGather, "num_blocks", 0, in.source.num_groups * in.num_blocks.stride,
              in.num_blocks.flat.size());
  for (std::int64_t group = 0; group < in.source.num_groups; ++group) {
    for (std::int64_t row = 0; row < std::min(in.num_reqs, in.num_rows); ++row) {
      const auto slot = in.idx_mapping[row];
      if (slot >= 0) {
        check_range(kGather, "a row", 0, in.num_blocks.at(group, slot), in.source.strides[group]);
      }
    }
  }
}

}  // namespace

void gather_block_tables(const GatheredTables& in) {
  check(in);
  for (std::int64_t group = 0; group < in.source.num_groups; ++group) {
    for (std::int64_t row = 0; row < in.num_rows; ++row) {
      const auto slot = row < in.num_reqs ? in.idx_mapping[row] : -1;
      auto* target = in.target.row(group, row);
      if (slot < 0) {
        std::fill_n(target, in.source.strides[group], 0);
      } else {
        std::copy_n(in.source.row(group, slot), in.num_blocks.at(group, slot), target);
      }
    }
  }
}

void dcp_local_seq_lens(const LocalSeqLens& in) {
  check_range(kLocal, "seq_lens", 0, in.num_reqs, in.seq_lens.size());
  check_range(kLocal, "out", 0, in.max_num_reqs, in.local.size());
  if (in.dcp_size < 1 || in.interleave < 1) {
    fail(kLocal, "dcp_size ", in.dcp_size, " and interleave ", in.interleave,
         ", expected 1 or more");
  }
  const auto round = in.dcp_size * in.interleave;
  for (std::int64_t row = 0; row < in.max_num_reqs; ++row) {
    const auto seq_len = row < in.num_reqs ? in.seq_lens[row] : 0;
    const auto rest = seq_len % round - in.dcp_rank * in.interleave;
    in.local.set(
        row, seq_len / round * in.interleave + std::clamp<std::int64_t>(rest, 0, in.interleave));
  }
}

}  // namespace pyvllm_pp::kernels
