#include "kernels/block_tables.h"
#include "rooms.h"
#include "tensor.h"

namespace pyvllm_pp::bindings {
namespace {

using std::int64_t;

kernels::TablePointers table_pointers(std::string_view kernel, const Tensor& addresses,
                                      const Tensor& strides, int64_t num_groups) {
  return {.addresses = addresses.data<std::uint64_t>(kernel, "block_table_ptrs", num_groups),
          .strides = strides.data<std::int64_t>(kernel, "block_table_strides", num_groups),
          .num_groups = num_groups};
}

void check_contents(std::string_view kernel, const Tensor& contents, kernels::ElementType type) {
  if (contents.type() != type) {
    throw py::type_error(concat('[', kernel, "] write_contents is ",
                                kernels::name_of(contents.type()), ", expected ",
                                kernels::name_of(type)));
  }
}

/// `output_stride` is a number for one table, a tensor of numbers for several.
void apply_write(const Grid& grid, const Tensor& output_ptr, const py::object& output_stride,
                 const Tensor& write_indices_ptr, const Tensor& write_starts_ptr,
                 const Tensor& write_contents_ptr, const Tensor& write_cu_lens_ptr,
                 const Tensor& write_group_ids_ptr, int64_t /*block_size*/, bool multi_group) {
  constexpr std::string_view kName = "apply_write";
  const kernels::StagedWrites writes{
      .rows = write_indices_ptr.ints(kName, "write_indices"),
      .starts = write_starts_ptr.ints(kName, "write_starts"),
      .cumulative_lens = write_cu_lens_ptr.ints(kName, "write_cu_lens"),
      .contents = write_contents_ptr.bytes(),
      .num_contents = write_contents_ptr.size()};
  if (multi_group) {
    check_contents(kName, write_contents_ptr, kernels::ElementType::int32);
    const auto tables = table_pointers(kName, output_ptr, Tensor(output_stride), output_ptr.size());
    const auto group_ids = write_group_ids_ptr.ints(kName, "write_group_ids");
    const py::gil_scoped_release release;
    kernels::apply_group_writes(writes, grid[0], tables, group_ids);
  } else {
    check_contents(kName, write_contents_ptr, output_ptr.type());
    const auto stride = output_stride.cast<int64_t>();
    const py::gil_scoped_release release;
    kernels::apply_writes(writes, grid[0], output_ptr.bytes(), output_ptr.size(), stride,
                          kernels::bytes_of(output_ptr.type()));
  }
}

void gather_block_tables(const Grid& grid, const Tensor& batch_idx_to_req_idx,
                         const Tensor& src_block_table_ptrs, const Tensor& dst_block_table_ptrs,
                         const Tensor& block_table_strides, const Tensor& num_blocks_ptr,
                         int64_t num_blocks_stride, int64_t num_reqs, int64_t /*block_size*/) {
  constexpr std::string_view kName = "gather_block_tables";
  const kernels::GatheredTables in{
      .idx_mapping = batch_idx_to_req_idx.ints(kName, "batch_idx_to_req_idx"),
      .source = table_pointers(kName, src_block_table_ptrs, block_table_strides, grid[0]),
      .target = table_pointers(kName, dst_block_table_ptrs, block_table_strides, grid[0]),
      .num_blocks = num_blocks_ptr.rows(kName, "num_blocks", num_blocks_stride),
      .num_reqs = num_reqs,
      .num_rows = grid[1]};
  const py::gil_scoped_release release;
  kernels::gather_block_tables(in);
}

void compute_slot_mappings(const Grid& grid, int64_t max_num_tokens, const Tensor& idx_mapping,
                           const Tensor& query_start_loc, const Tensor& pos,
                           const Tensor& block_table_ptrs, const Tensor& block_table_strides,
                           const Tensor& block_sizes, const Tensor& slot_mapping_enabled,
                           const Tensor& dcp_sharded, const Tensor& slot_mappings_ptr,
                           int64_t slot_mappings_stride, int64_t cp_rank, int64_t cp_size,
                           int64_t cp_interleave, int64_t pad_id, int64_t /*block_size*/) {
  constexpr std::string_view kName = "compute_slot_mappings";
  const auto num_groups = grid[0];
  const kernels::SlotMappings in{
      .idx_mapping = idx_mapping.ints(kName, "idx_mapping"),
      .query_start_loc = query_start_loc.ints(kName, "query_start_loc"),
      .positions = pos.ints(kName, "pos"),
      .tables = table_pointers(kName, block_table_ptrs, block_table_strides, num_groups),
      .block_sizes = block_sizes.ints(kName, "block_sizes"),
      .mapping_enabled = slot_mapping_enabled.data<bool>(kName, "slot_mapping_enabled", num_groups),
      .dcp_sharded = dcp_sharded.data<bool>(kName, "dcp_sharded", num_groups),
      .slot_mappings = slot_mappings_ptr.rows(kName, "slot_mappings", slot_mappings_stride),
      .max_num_tokens = max_num_tokens,
      // One program more than requests: it pads.
      .num_reqs = grid[1] - 1,
      .cp_rank = cp_rank,
      .cp_size = cp_size,
      .cp_interleave = cp_interleave,
      .pad_slot = pad_id};
  const py::gil_scoped_release release;
  kernels::compute_slot_mappings(in);
}

void dcp_local_seq_lens(const Grid& /*grid*/, const Tensor& out_ptr, const Tensor& seq_lens_ptr,
                        int64_t dcp_size, int64_t dcp_rank, int64_t cp_interleave, int64_t num_reqs,
                        int64_t max_num_reqs, int64_t /*block_size*/) {
  constexpr std::string_view kName = "dcp_local_seq_lens";
  const kernels::LocalSeqLens in{.local = out_ptr.ints(kName, "out"),
                                 .seq_lens = seq_lens_ptr.ints(kName, "seq_lens"),
                                 .num_reqs = num_reqs,
                                 .max_num_reqs = max_num_reqs,
                                 .dcp_size = dcp_size,
                                 .dcp_rank = dcp_rank,
                                 .interleave = cp_interleave};
  const py::gil_scoped_release release;
  kernels::dcp_local_seq_lens(in);
}

}  // namespace

void bind_block_tables(py::module_& module) {
  using py::arg;
  module.def("_apply_write_kernel", &apply_write, arg("grid"), arg("output_ptr"),
             arg("output_stride"), arg("write_indices_ptr"), arg("write_starts_ptr"),
             arg("write_contents_ptr"), arg("write_cu_lens_ptr"), arg("write_group_ids_ptr"),
             arg("BLOCK_SIZE"), arg("MULTI_GROUP"));
  module.def("_gather_block_tables_kernel", &gather_block_tables, arg("grid"),
             arg("batch_idx_to_req_idx"), arg("src_block_table_ptrs"), arg("dst_block_table_ptrs"),
             arg("block_table_strides"), arg("num_blocks_ptr"), arg("num_blocks_stride"),
             arg("num_reqs"), arg("BLOCK_SIZE"));
  module.def("_compute_slot_mappings_kernel", &compute_slot_mappings, arg("grid"),
             arg("max_num_tokens"), arg("idx_mapping"), arg("query_start_loc"), arg("pos"),
             arg("block_table_ptrs"), arg("block_table_strides"), arg("block_sizes"),
             arg("slot_mapping_enabled"), arg("dcp_sharded"), arg("slot_mappings_ptr"),
             arg("slot_mappings_stride"), arg("cp_rank"), arg("CP_SIZE"), arg("CP_INTERLEAVE"),
             arg("PAD_ID"), arg("TRITON_BLOCK_SIZE"));
  module.def("_dcp_local_seq_lens_kernel", &dcp_local_seq_lens, arg("grid"), arg("out_ptr"),
             arg("seq_lens_ptr"), arg("dcp_size"), arg("dcp_rank"), arg("cp_interleave"),
             arg("num_reqs"), arg("max_num_reqs"), arg("BLOCK_SIZE"));
}

}  // namespace pyvllm_pp::bindings
