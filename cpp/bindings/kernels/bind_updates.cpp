#include "kernels/updates.h"
#include "rooms.h"
#include "tensor.h"

namespace pyvllm_pp::bindings {
namespace {

using std::int64_t;

void get_num_sampled_and_rejected(const Grid& grid, const Tensor& num_sampled_ptr,
                                  const Tensor& num_rejected_ptr, const Tensor& seq_lens_ptr,
                                  const Tensor& cu_num_logits_ptr, const Tensor& idx_mapping_ptr,
                                  const Tensor& prefill_len_ptr) {
  constexpr std::string_view kName = "get_num_sampled_and_rejected";
  const kernels::SampledCounts in{.num_sampled = num_sampled_ptr.ints(kName, "num_sampled"),
                                  .num_rejected = num_rejected_ptr.ints(kName, "num_rejected"),
                                  .seq_lens = seq_lens_ptr.ints(kName, "seq_lens"),
                                  .cu_num_logits = cu_num_logits_ptr.ints(kName, "cu_num_logits"),
                                  .idx_mapping = idx_mapping_ptr.ints(kName, "idx_mapping"),
                                  .prefill_len = prefill_len_ptr.ints(kName, "prefill_len")};
  const py::gil_scoped_release release;
  kernels::get_num_sampled_and_rejected(in, grid[0]);
}

void post_update(const Grid& grid, const Tensor& idx_mapping_ptr,
                 const Tensor& num_computed_tokens_ptr, const Tensor& last_sampled_tokens_ptr,
                 const Tensor& output_bin_counts_ptr, int64_t output_bin_counts_stride,
                 const Tensor& sampled_tokens_ptr, int64_t sampled_tokens_stride,
                 const Tensor& num_sampled_ptr, const Tensor& num_rejected_ptr,
                 const Tensor& query_start_loc_ptr, const Tensor& all_token_ids_ptr,
                 int64_t all_token_ids_stride, const Tensor& total_len_ptr, int64_t /*num_warps*/) {
  constexpr std::string_view kName = "post_update";
  kernels::StateUpdate in{
      .idx_mapping = idx_mapping_ptr.ints(kName, "idx_mapping"),
      .num_computed_tokens = num_computed_tokens_ptr.ints(kName, "num_computed_tokens"),
      .last_sampled_tokens = last_sampled_tokens_ptr.ints(kName, "last_sampled_tokens"),
      .output_bin_counts = {},
      .sampled_tokens = sampled_tokens_ptr.rows(kName, "sampled_tokens", sampled_tokens_stride),
      .num_sampled = num_sampled_ptr.ints(kName, "num_sampled"),
      .num_rejected = num_rejected_ptr.ints(kName, "num_rejected"),
      .query_start_loc = {},
      .all_token_ids = all_token_ids_ptr.rows(kName, "all_token_ids", all_token_ids_stride),
      .total_len = total_len_ptr.ints(kName, "total_len")};
  if (!output_bin_counts_ptr.is_absent()) {
    in.output_bin_counts =
        output_bin_counts_ptr.rows(kName, "output_bin_counts", output_bin_counts_stride);
  }
  if (!query_start_loc_ptr.is_absent()) {
    in.query_start_loc = query_start_loc_ptr.ints(kName, "query_start_loc");
  }
  const py::gil_scoped_release release;
  kernels::post_update(in, grid[0]);
}

void post_update_num_computed_tokens(const Grid& grid, const Tensor& idx_mapping_ptr,
                                     const Tensor& num_computed_tokens_ptr,
                                     const Tensor& query_start_loc_ptr) {
  constexpr std::string_view kName = "post_update_num_computed_tokens";
  const kernels::ComputedUpdate in{
      .idx_mapping = idx_mapping_ptr.ints(kName, "idx_mapping"),
      .num_computed_tokens = num_computed_tokens_ptr.ints(kName, "num_computed_tokens"),
      .query_start_loc = query_start_loc_ptr.ints(kName, "query_start_loc")};
  const py::gil_scoped_release release;
  kernels::post_update_num_computed_tokens(in, grid[0]);
}

}  // namespace

void bind_updates(py::module_& module) {
  using py::arg;
  module.def("_get_num_sampled_and_rejected_kernel", &get_num_sampled_and_rejected, arg("grid"),
             arg("num_sampled_ptr"), arg("num_rejected_ptr"), arg("seq_lens_ptr"),
             arg("cu_num_logits_ptr"), arg("idx_mapping_ptr"), arg("prefill_len_ptr"));
  module.def("_post_update_kernel", &post_update, arg("grid"), arg("idx_mapping_ptr"),
             arg("num_computed_tokens_ptr"), arg("last_sampled_tokens_ptr"),
             arg("output_bin_counts_ptr"), arg("output_bin_counts_stride"),
             arg("sampled_tokens_ptr"), arg("sampled_tokens_stride"), arg("num_sampled_ptr"),
             arg("num_rejected_ptr"), arg("query_start_loc_ptr"), arg("all_token_ids_ptr"),
             arg("all_token_ids_stride"), arg("total_len_ptr"), arg("num_warps") = 1);
  module.def("_post_update_num_computed_tokens_kernel", &post_update_num_computed_tokens,
             arg("grid"), arg("idx_mapping_ptr"), arg("num_computed_tokens_ptr"),
             arg("query_start_loc_ptr"));
}

}  // namespace pyvllm_pp::bindings
