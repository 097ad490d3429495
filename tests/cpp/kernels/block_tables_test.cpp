#include "kernels/block_tables.h"

#include <array>
#include <memory>

#include "support.h"

namespace pyvllm_pp::kernels {
namespace {

std::uint64_t address(Narrow& table) { return reinterpret_cast<std::uint64_t>(table.data()); }

const std::byte* bytes(const Narrow& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

TEST(StagedWritesKernel, EachRunGoesToItsRow) {
  Narrow output(8, 0);
  Narrow rows_{1, 0};
  Narrow starts{1, 3};
  Narrow ends{2, 3};
  const Narrow contents{7, 8, 9};
  const StagedWrites writes{.rows = ints(rows_),
                            .starts = ints(starts),
                            .cumulative_lens = ints(ends),
                            .contents = bytes(contents),
                            .num_contents = 3};
  auto* out = reinterpret_cast<std::byte*>(output.data());
  apply_writes(writes, 2, out, 8, 4, 4);
  EXPECT_EQ(output, (Narrow{0, 0, 0, 9, 0, 7, 8, 0}));

  rows_[1] = 2;
  expect_refused([&] { apply_writes(writes, 2, out, 8, 4, 4); }, "elements 11 to 12 of output");
  rows_[1] = -1;
  expect_refused([&] { apply_writes(writes, 2, out, 8, 4, 4); }, "goes to row -1, column 3");
  rows_[1] = 0;
  ends[1] = 4;
  expect_refused([&] { apply_writes(writes, 2, out, 8, 4, 4); }, "elements 2 to 4 of write_con");
}

TEST(StagedWritesKernel, GroupsHaveTablesOfTheirOwn) {
  Narrow first(4, 0);
  Narrow second(6, 0);
  const std::array<std::uint64_t, 2> addresses{address(first), address(second)};
  const std::array<std::int64_t, 2> strides{2, 3};
  Narrow rows_{1, 1};
  Narrow starts{0, 1};
  Narrow ends{1, 3};
  Narrow groups{0, 1};
  const Narrow contents{7, 8, 9};
  const StagedWrites writes{.rows = ints(rows_),
                            .starts = ints(starts),
                            .cumulative_lens = ints(ends),
                            .contents = bytes(contents),
                            .num_contents = 3};
  const TablePointers tables{
      .addresses = addresses.data(), .strides = strides.data(), .num_groups = 2};
  apply_group_writes(writes, 2, tables, ints(groups));
  EXPECT_EQ(first, (Narrow{0, 0, 7, 0}));
  EXPECT_EQ(second, (Narrow{0, 0, 0, 0, 8, 9}));
  starts[1] = 2;
  expect_refused([&] { apply_group_writes(writes, 2, tables, ints(groups)); }, "2 to 4 of a row");
  groups[0] = 2;
  expect_refused([&] { apply_group_writes(writes, 2, tables, ints(groups)); }, "write_group_ids");
}

TEST(GatherTables, CopiesBlocksAndClearsRowsWithoutRequest) {
  Narrow source{1, 2, 3, 4, 5, 6};
  Narrow target(9, -1);
  const std::array<std::uint64_t, 1> from{address(source)};
  const std::array<std::uint64_t, 1> to{address(target)};
  const std::array<std::int64_t, 1> strides{3};
  Wide idx_mapping{1, -1};
  Narrow num_blocks{0, 2};
  const GatheredTables in{
      .idx_mapping = ints(idx_mapping),
      .source = {.addresses = from.data(), .strides = strides.data(), .num_groups = 1},
      .target = {.addresses = to.data(), .strides = strides.data(), .num_groups = 1},
      .num_blocks = rows(num_blocks, 2),
      .num_reqs = 2,
      .num_rows = 3};
  gather_block_tables(in);
  EXPECT_EQ(target, (Narrow{4, 5, -1, 0, 0, 0, 0, 0, 0}));
  num_blocks[1] = 4;
  expect_refused([&] { gather_block_tables(in); }, "elements 0 to 4 of a row, which has 3");
}

/// One group of blocks of 4, two requests of two tokens each.
struct Slots {
  Narrow table{10, 11, 12, 13};
  std::array<std::uint64_t, 1> addresses{address(table)};
  std::array<std::int64_t, 1> strides{2};
  std::unique_ptr<bool[]> flags{new bool[2]{true, true}};
  Wide idx_mapping{1, 0};
  Narrow query_start_loc{0, 2, 4};
  Wide positions{3, 4, 0, 1};
  Narrow block_sizes{4};
  Wide slots = Wide(6, -9);

  SlotMappings view(std::int64_t cp_size = 1, std::int64_t cp_rank = 0) {
    return {.idx_mapping = ints(idx_mapping),
            .query_start_loc = ints(query_start_loc),
            .positions = ints(positions),
            .tables = {.addresses = addresses.data(), .strides = strides.data(), .num_groups = 1},
            .block_sizes = ints(block_sizes),
            .mapping_enabled = &flags[0],
            .dcp_sharded = &flags[1],
            .slot_mappings = rows(slots, 6),
            .max_num_tokens = 6,
            .num_reqs = 2,
            .cp_rank = cp_rank,
            .cp_size = cp_size,
            .cp_interleave = 1,
            .pad_slot = -1};
  }
};

TEST(SlotMappingsKernel, BlockTimesSizePlusOffset) {
  Slots slots;
  compute_slot_mappings(slots.view());
  EXPECT_EQ(slots.slots, (Wide{51, 52, 40, 41, -1, -1}));
}

TEST(SlotMappingsKernel, WithoutRequestOrMappingThereIsNoSlot) {
  Slots slots;
  slots.idx_mapping[0] = -1;
  compute_slot_mappings(slots.view());
  EXPECT_EQ(slots.slots, (Wide{-1, -1, 40, 41, -1, -1}));
  slots.flags[0] = false;
  compute_slot_mappings(slots.view());
  EXPECT_EQ(slots.slots, Wide(6, -1));
}

TEST(SlotMappingsKernel, RanksKeepPositionsInTurn) {
  Slots slots;
  compute_slot_mappings(slots.view(2, 1));
  EXPECT_EQ(slots.slots, (Wide{49, -1, -1, 40, -1, -1}));
  slots.flags[1] = false;  // this group is whole on every rank
  compute_slot_mappings(slots.view(2, 1));
  EXPECT_EQ(slots.slots, (Wide{51, 52, 40, 41, -1, -1}));
}

TEST(SlotMappingsKernel, PositionsWithoutABlockAreRefusedBeforeAnyWrite) {
  const auto refuses = [](auto change, const std::string& text) {
    Slots slots;
    change(slots);
    expect_refused([&] { compute_slot_mappings(slots.view()); }, text);
    EXPECT_EQ(slots.slots, Wide(6, -9));
  };
  refuses([](Slots& s) { s.positions[1] = 8; }, "positions[1] is 8, a row has 2 blocks of 4");
  refuses([](Slots& s) { s.positions[3] = -1; }, "positions[3] is -1");
  refuses([](Slots& s) { s.block_sizes[0] = 0; }, "block_sizes[0] is 0");
  refuses([](Slots& s) { s.query_start_loc[2] = 5; }, "elements 2 to 5 of positions");
}

TEST(LocalSeqLensKernel, RoundRobinWithInterleave) {
  Narrow seq_lens{9, 3};
  Narrow local(3, -1);
  dcp_local_seq_lens({.local = ints(local),
                      .seq_lens = ints(seq_lens),
                      .num_reqs = 2,
                      .max_num_reqs = 3,
                      .dcp_size = 2,
                      .dcp_rank = 1,
                      .interleave = 2});
  EXPECT_EQ(local, (Narrow{4, 1, 0}));
}

}  // namespace
}  // namespace pyvllm_pp::kernels
