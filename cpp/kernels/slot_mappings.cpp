#include <algorithm>

#include "block_tables.h"

namespace pyvllm_pp::kernels {
namespace {

constexpr std::string_view kSlots = "compute_slot_mappings";

/// How positions of one group are dealt out to blocks.
struct Layout {
  std::int64_t block_size;
  std::int64_t cp_rank;
  std::int64_t cp_size;  // 1 where the group is whole on every rank
  std::int64_t interleave;

  [[nodiscard]] bool is_local(std::int64_t position) const {
    return cp_size == 1 || position % (block_size * cp_size) / interleave % cp_size == cp_rank;
  }
  /// Position among those that this rank keeps.
  [[nodiscard]] std::int64_t local_position(std::int64_t position) const {
    if (cp_size == 1) {
      return position;
    }
    const auto virtual_size = block_size * cp_size;
    const auto within = position % virtual_size;
    const auto rounds = within / (interleave * cp_size);
    return position / virtual_size * block_size + rounds * interleave + within % interleave;
  }
};

Layout layout_of(const SlotMappings& in, std::int64_t group) {
  const bool is_sharded = in.cp_size != 1 && in.dcp_sharded[group];
  return {in.block_sizes[group], in.cp_rank, is_sharded ? in.cp_size : 1, in.cp_interleave};
}

bool is_mapped(const SlotMappings& in, std::int64_t group, std::int64_t row) {
  return in.mapping_enabled[group] && in.idx_mapping[row] >= 0;
}

void check_blocks(const SlotMappings& in, std::int64_t group) {
  const auto layout = layout_of(in, group);
  if (layout.block_size < 1) {
    fail(kSlots, "block_sizes[", group, "] is ", layout.block_size, ", expected 1 or more");
  }
  const auto num_blocks = in.tables.strides[group];
  for (std::int64_t row = 0; row < in.num_reqs; ++row) {
    if (!is_mapped(in, group, row)) {
      continue;
    }
    for (auto token = in.query_start_loc[row]; token < in.query_start_loc[row + 1]; ++token) {
      const auto position = in.positions[token];
      const auto block = layout.local_position(position) / layout.block_size;
      if (position < 0 || block >= num_blocks) [[unlikely]] {
        fail(kSlots, "positions[", token, "] is ", position, ", a row has ", num_blocks,
             " blocks of ", layout.block_size);
      }
    }
  }
}

void check(const SlotMappings& in) {
  check_range(kSlots, "idx_mapping", 0, in.num_reqs, in.idx_mapping.size());
  check_range(kSlots, "query_start_loc", 0, in.num_reqs + 1, in.query_start_loc.size());
  check_range(kSlots, "block_sizes", 0, in.tables.num_groups, in.block_sizes.size());
  check_range(kSlots, "slot_mappings", (in.tables.num_groups - 1) * in.slot_mappings.stride,
              in.max_num_tokens, in.slot_mappings.flat.size());
  const auto num_tokens = std::min(in.positions.size(), in.max_num_tokens);
  for (std::int64_t row = 0; row < in.num_reqs; ++row) {
    const auto start = in.query_start_loc[row];
    check_range(kSlots, "positions", start, in.query_start_loc[row + 1] - start, num_tokens);
  }
  check_range(kSlots, "positions", in.query_start_loc[in.num_reqs], 0, num_tokens);
  for (std::int64_t group = 0; group < in.tables.num_groups; ++group) {
    check_blocks(in, group);
  }
}

void map_row(const SlotMappings& in, std::int64_t group, std::int64_t row) {
  const auto start = in.query_start_loc[row];
  const auto end = in.query_start_loc[row + 1];
  const Layout layout = layout_of(in, group);
  const auto* blocks = in.tables.row(group, in.idx_mapping[row]);
  const auto target = group * in.slot_mappings.stride;
  for (auto token = start; token < end; ++token) {
    const auto position = in.positions[token];
    const auto local = layout.local_position(position);
    const auto block = blocks[local / layout.block_size];
    const auto slot = layout.is_local(position)
                          ? block * layout.block_size + local % layout.block_size
                          : in.pad_slot;
    in.slot_mappings.flat.set(target + token, slot);
  }
}

}  // namespace

void compute_slot_mappings(const SlotMappings& in) {
  check(in);
  const auto num_tokens = in.query_start_loc[in.num_reqs];
  for (std::int64_t group = 0; group < in.tables.num_groups; ++group) {
    const auto target = group * in.slot_mappings.stride;
    for (std::int64_t row = 0; row < in.num_reqs; ++row) {
      const auto start = in.query_start_loc[row];
      if (is_mapped(in, group, row)) {
        map_row(in, group, row);
      } else {
        fill(in.slot_mappings.flat, target + start, in.query_start_loc[row + 1] - start,
             in.pad_slot);
      }
    }
    fill(in.slot_mappings.flat, target + num_tokens, in.max_num_tokens - num_tokens, in.pad_slot);
  }
}

}  // namespace pyvllm_pp::kernels
