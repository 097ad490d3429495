#include "kernels/inputs.h"
#include "rooms.h"
#include "tensor.h"

namespace pyvllm_pp::bindings {
namespace {

using std::int64_t;

void prepare_prefill_inputs(const Grid& grid, const Tensor& input_ids_ptr,
                            const Tensor& next_prefill_tokens_ptr,
                            int64_t next_prefill_tokens_stride, int64_t num_lookahead,
                            const Tensor& idx_mapping_ptr, const Tensor& query_start_loc_ptr,
                            const Tensor& all_token_ids_ptr, int64_t all_token_ids_stride,
                            const Tensor& prefill_lens_ptr, const Tensor& num_computed_tokens_ptr,
                            int64_t /*block_size*/, int64_t /*lookahead_block*/) {
  constexpr std::string_view kName = "prepare_prefill_inputs";
  const kernels::PrefillInputs in{
      .input_ids = input_ids_ptr.ints(kName, "input_ids"),
      .next_tokens =
          next_prefill_tokens_ptr.rows(kName, "next_prefill_tokens", next_prefill_tokens_stride),
      .num_lookahead = num_lookahead,
      .idx_mapping = idx_mapping_ptr.ints(kName, "idx_mapping"),
      .query_start_loc = query_start_loc_ptr.ints(kName, "query_start_loc"),
      .all_token_ids = all_token_ids_ptr.rows(kName, "all_token_ids", all_token_ids_stride),
      .prefill_len = prefill_lens_ptr.ints(kName, "prefill_lens"),
      .num_computed_tokens = num_computed_tokens_ptr.ints(kName, "num_computed_tokens")};
  const py::gil_scoped_release release;
  kernels::prepare_prefill_inputs(in, grid[0]);
}

void prepare_pos_seq_lens(const Grid& grid, const Tensor& pos_ptr, const Tensor& seq_lens_ptr,
                          const Tensor& idx_mapping_ptr, const Tensor& query_start_loc_ptr,
                          const Tensor& num_computed_tokens_ptr, int64_t max_num_reqs,
                          int64_t /*block_size*/) {
  constexpr std::string_view kName = "prepare_pos_seq_lens";
  const kernels::Positions in{
      .positions = pos_ptr.ints(kName, "pos"),
      .seq_lens = seq_lens_ptr.ints(kName, "seq_lens"),
      .idx_mapping = idx_mapping_ptr.ints(kName, "idx_mapping"),
      .query_start_loc = query_start_loc_ptr.ints(kName, "query_start_loc"),
      .num_computed_tokens = num_computed_tokens_ptr.ints(kName, "num_computed_tokens")};
  const py::gil_scoped_release release;
  // One program more than requests: it pads.
  kernels::prepare_pos_seq_lens(in, grid[0] - 1, max_num_reqs);
}

void combine_sampled_and_draft_tokens(const Grid& grid, const Tensor& input_ids_ptr,
                                      const Tensor& idx_mapping_ptr,
                                      const Tensor& last_sampled_tokens_ptr,
                                      const Tensor& query_start_loc_ptr, const Tensor& seq_lens_ptr,
                                      const Tensor& prefill_len_ptr, const Tensor& draft_tokens_ptr,
                                      int64_t draft_tokens_stride, const Tensor& cu_num_logits_ptr,
                                      const Tensor& logits_indices_ptr, int64_t block_size,
                                      int64_t num_new_sampled_tokens) {
  constexpr std::string_view kName = "combine_sampled_and_draft_tokens";
  const kernels::SampledInputs in{
      .input_ids = input_ids_ptr.ints(kName, "input_ids"),
      .idx_mapping = idx_mapping_ptr.ints(kName, "idx_mapping"),
      .last_sampled_tokens = last_sampled_tokens_ptr.ints(kName, "last_sampled_tokens"),
      .query_start_loc = query_start_loc_ptr.ints(kName, "query_start_loc"),
      .seq_lens = seq_lens_ptr.ints(kName, "seq_lens"),
      .prefill_len = prefill_len_ptr.ints(kName, "prefill_len"),
      .draft_tokens = draft_tokens_ptr.rows(kName, "draft_tokens", draft_tokens_stride),
      .cu_num_logits = cu_num_logits_ptr.ints(kName, "cu_num_logits"),
      .logits_indices = logits_indices_ptr.ints(kName, "logits_indices"),
      .max_num_logits = block_size,
      .num_new_sampled_tokens = num_new_sampled_tokens};
  const py::gil_scoped_release release;
  kernels::combine_sampled_and_draft_tokens(in, grid[0]);
}

void expand_idx_mapping(const Grid& grid, const Tensor& idx_mapping_ptr,
                        const Tensor& expanded_idx_mapping_ptr,
                        const Tensor& expanded_local_pos_ptr, const Tensor& cu_num_logits_ptr,
                        int64_t block_size) {
  constexpr std::string_view kName = "expand_idx_mapping";
  const kernels::ExpandedMapping in{
      .idx_mapping = idx_mapping_ptr.ints(kName, "idx_mapping"),
      .expanded = expanded_idx_mapping_ptr.ints(kName, "expanded_idx_mapping"),
      .local_pos = expanded_local_pos_ptr.ints(kName, "expanded_local_pos"),
      .cu_num_logits = cu_num_logits_ptr.ints(kName, "cu_num_logits"),
      .max_num_logits = block_size};
  const py::gil_scoped_release release;
  kernels::expand_idx_mapping(in, grid[0]);
}

}  // namespace

void bind_inputs(py::module_& module) {
  using py::arg;
  module.def("_prepare_prefill_inputs_kernel", &prepare_prefill_inputs, arg("grid"),
             arg("input_ids_ptr"), arg("next_prefill_tokens_ptr"),
             arg("next_prefill_tokens_stride"), arg("num_lookahead"), arg("idx_mapping_ptr"),
             arg("query_start_loc_ptr"), arg("all_token_ids_ptr"), arg("all_token_ids_stride"),
             arg("prefill_lens_ptr"), arg("num_computed_tokens_ptr"), arg("BLOCK_SIZE"),
             arg("LOOKAHEAD_BLOCK"));
  module.def("_prepare_pos_seq_lens_kernel", &prepare_pos_seq_lens, arg("grid"), arg("pos_ptr"),
             arg("seq_lens_ptr"), arg("idx_mapping_ptr"), arg("query_start_loc_ptr"),
             arg("num_computed_tokens_ptr"), arg("max_num_reqs"), arg("BLOCK_SIZE"));
  module.def("_combine_sampled_and_draft_tokens_kernel", &combine_sampled_and_draft_tokens,
             arg("grid"), arg("input_ids_ptr"), arg("idx_mapping_ptr"),
             arg("last_sampled_tokens_ptr"), arg("query_start_loc_ptr"), arg("seq_lens_ptr"),
             arg("prefill_len_ptr"), arg("draft_tokens_ptr"), arg("draft_tokens_stride"),
             arg("cu_num_logits_ptr"), arg("logits_indices_ptr"), arg("BLOCK_SIZE"),
             arg("NUM_NEW_SAMPLED_TOKENS") = 1);
  module.def("_expand_idx_mapping_kernel", &expand_idx_mapping, arg("grid"), arg("idx_mapping_ptr"),
             arg("expanded_idx_mapping_ptr"), arg("expanded_local_pos_ptr"),
             arg("cu_num_logits_ptr"), arg("BLOCK_SIZE"));
}

}  // namespace pyvllm_pp::bindings
