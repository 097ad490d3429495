#include "kernels/logprobs.h"
#include "rooms.h"
#include "tensor.h"

namespace pyvllm_pp::bindings {
namespace {

using std::int64_t;

void topk_log_softmax(const Grid& grid, const Tensor& output_ptr, const Tensor& logits_ptr,
                      int64_t logits_stride, const Tensor& topk_ids_ptr, int64_t topk_ids_stride,
                      int64_t topk, int64_t vocab_size, int64_t /*block_size*/,
                      int64_t /*topk_block_size*/) {
  constexpr std::string_view kName = "topk_log_softmax";
  const auto logits = logits_ptr.logits(kName, logits_stride, vocab_size);
  const auto token_ids = topk_ids_ptr.rows(kName, "topk_ids", topk_ids_stride);
  const auto out = output_ptr.span<float>(kName, "output");
  const py::gil_scoped_release release;
  kernels::token_log_softmax(logits, token_ids, topk, out, grid[0]);
}

void ranks(const Grid& grid, const Tensor& output_ptr, const Tensor& logits_ptr,
           int64_t logits_stride, const Tensor& token_ids_ptr, int64_t vocab_size,
           int64_t block_size) {
  constexpr std::string_view kName = "ranks";
  const auto logits = logits_ptr.logits(kName, logits_stride, vocab_size);
  const auto token_ids = token_ids_ptr.ints(kName, "token_ids");
  const auto out = output_ptr.ints(kName, "output");
  const py::gil_scoped_release release;
  kernels::token_ranks(logits, token_ids, block_size, out, grid[0]);
}

void num_nans(const Grid& grid, const Tensor& logits_ptr, int64_t logits_stride,
              const Tensor& num_nans_ptr, int64_t vocab_size, int64_t /*block_size*/) {
  constexpr std::string_view kName = "num_nans";
  const auto logits = logits_ptr.logits(kName, logits_stride, vocab_size);
  const auto out = num_nans_ptr.ints(kName, "num_nans");
  const py::gil_scoped_release release;
  kernels::count_nan_logits(logits, out, grid[0]);
}

void fill_logprob_token_ids(const Grid& grid, const Tensor& out_token_ids_ptr,
                            int64_t out_token_ids_stride, const Tensor& out_valid_mask_ptr,
                            int64_t out_valid_mask_stride, const Tensor& sampled_token_ids_ptr,
                            const Tensor& topk_indices_ptr, int64_t topk_indices_stride,
                            const Tensor& expanded_idx_mapping_ptr,
                            const Tensor& num_per_req_token_ids_ptr,
                            const Tensor& per_req_token_ids_ptr, int64_t per_req_token_ids_stride,
                            int64_t num_topk, int64_t padded_cols) {
  constexpr std::string_view kName = "fill_logprob_token_ids";
  const kernels::LogprobTokens in{
      .token_ids = out_token_ids_ptr.rows(kName, "out_token_ids", out_token_ids_stride),
      .valid = out_valid_mask_ptr.span<bool>(kName, "out_valid_mask"),
      .valid_stride = out_valid_mask_stride,
      .sampled = sampled_token_ids_ptr.ints(kName, "sampled_token_ids"),
      .best = topk_indices_ptr.rows(kName, "topk_indices", topk_indices_stride),
      .idx_mapping = expanded_idx_mapping_ptr.ints(kName, "expanded_idx_mapping"),
      .num_custom = num_per_req_token_ids_ptr.ints(kName, "num_per_req_token_ids"),
      .custom = per_req_token_ids_ptr.rows(kName, "per_req_token_ids", per_req_token_ids_stride),
      .num_best = num_topk,
      .max_num_columns = padded_cols};
  const py::gil_scoped_release release;
  kernels::fill_logprob_tokens(in, grid[0]);
}

void prompt_logprobs_token_ids(const Grid& grid, const Tensor& prompt_logprobs_token_ids_ptr,
                               const Tensor& query_start_loc_ptr, const Tensor& idx_mapping_ptr,
                               const Tensor& num_computed_tokens_ptr,
                               const Tensor& all_token_ids_ptr, int64_t all_token_ids_stride,
                               int64_t /*block_size*/) {
  constexpr std::string_view kName = "prompt_logprobs_token_ids";
  const kernels::PromptTargets in{
      .token_ids = prompt_logprobs_token_ids_ptr.ints(kName, "prompt_logprobs_token_ids"),
      .query_start_loc = query_start_loc_ptr.ints(kName, "query_start_loc"),
      .idx_mapping = idx_mapping_ptr.ints(kName, "idx_mapping"),
      .num_computed_tokens = num_computed_tokens_ptr.ints(kName, "num_computed_tokens"),
      .all_token_ids = all_token_ids_ptr.rows(kName, "all_token_ids", all_token_ids_stride)};
  const py::gil_scoped_release release;
  kernels::prompt_target_tokens(in, grid[0]);
}

void compact_sampling_mask(const Grid& grid, const Tensor& logits_ptr, int64_t logits_row_stride,
                           int64_t logits_col_stride, const Tensor& cu_num_logits_ptr,
                           const Tensor& num_sampled_tokens_ptr, const Tensor& token_ids_ptr,
                           int64_t token_ids_row_stride, const Tensor& packed_mask_ptr,
                           int64_t packed_mask_row_stride, const Tensor& counts_ptr,
                           int64_t vocab_size, int64_t max_num_kept, int64_t rows_per_request,
                           int64_t /*block_size*/) {
  constexpr std::string_view kName = "compact_sampling_mask";
  const auto logits = logits_ptr.logits(kName, logits_row_stride, vocab_size);
  const kernels::SamplingMask in{
      .column_stride = logits_col_stride,
      .cu_num_logits = cu_num_logits_ptr.ints(kName, "cu_num_logits"),
      .num_sampled = num_sampled_tokens_ptr.ints(kName, "num_sampled_tokens"),
      .token_ids = token_ids_ptr.rows(kName, "token_ids", token_ids_row_stride),
      .bits = packed_mask_ptr.span<std::uint8_t>(kName, "packed_mask"),
      .bits_stride = packed_mask_row_stride,
      .counts = counts_ptr.ints(kName, "counts"),
      .max_num_kept = max_num_kept,
      .rows_per_request = rows_per_request};
  const py::gil_scoped_release release;
  kernels::compact_sampling_mask(logits, in, grid[0]);
}

void trace_replay(const Grid& grid, const Tensor& sampled_ptr, const Tensor& idx_mapping_ptr,
                  const Tensor& trace_token_ids_ptr, int64_t trace_token_ids_stride,
                  const Tensor& trace_len_ptr, const Tensor& total_len_ptr,
                  const Tensor& prompt_len_ptr) {
  constexpr std::string_view kName = "trace_replay";
  const kernels::TraceReplay in{
      .sampled = sampled_ptr.ints(kName, "sampled"),
      .idx_mapping = idx_mapping_ptr.ints(kName, "idx_mapping"),
      .trace_tokens = trace_token_ids_ptr.rows(kName, "trace_token_ids", trace_token_ids_stride),
      .trace_len = trace_len_ptr.ints(kName, "trace_len"),
      .total_len = total_len_ptr.ints(kName, "total_len"),
      .prompt_len = prompt_len_ptr.ints(kName, "prompt_len")};
  const py::gil_scoped_release release;
  kernels::replay_trace(in, grid[0]);
}

}  // namespace

void bind_logprobs(py::module_& module) {
  using py::arg;
  module.def("_topk_log_softmax_kernel", &topk_log_softmax, arg("grid"), arg("output_ptr"),
             arg("logits_ptr"), arg("logits_stride"), arg("topk_ids_ptr"), arg("topk_ids_stride"),
             arg("topk"), arg("vocab_size"), arg("BLOCK_SIZE"), arg("TOPK_BLOCK_SIZE"));
  module.def("_ranks_kernel", &ranks, arg("grid"), arg("output_ptr"), arg("logits_ptr"),
             arg("logits_stride"), arg("token_ids_ptr"), arg("vocab_size"), arg("BLOCK_SIZE"));
  module.def("_num_nans_kernel", &num_nans, arg("grid"), arg("logits_ptr"), arg("logits_stride"),
             arg("num_nans_ptr"), arg("vocab_size"), arg("BLOCK_SIZE"));
  module.def("_fill_logprob_token_ids_kernel", &fill_logprob_token_ids, arg("grid"),
             arg("out_token_ids_ptr"), arg("out_token_ids_stride"), arg("out_valid_mask_ptr"),
             arg("out_valid_mask_stride"), arg("sampled_token_ids_ptr"), arg("topk_indices_ptr"),
             arg("topk_indices_stride"), arg("expanded_idx_mapping_ptr"),
             arg("num_per_req_token_ids_ptr"), arg("per_req_token_ids_ptr"),
             arg("per_req_token_ids_stride"), arg("NUM_TOPK"), arg("PADDED_COLS"));
  module.def("_prompt_logprobs_token_ids_kernel", &prompt_logprobs_token_ids, arg("grid"),
             arg("prompt_logprobs_token_ids_ptr"), arg("query_start_loc_ptr"),
             arg("idx_mapping_ptr"), arg("num_computed_tokens_ptr"), arg("all_token_ids_ptr"),
             arg("all_token_ids_stride"), arg("BLOCK_SIZE"));
  module.def("_compact_sampling_mask_kernel", &compact_sampling_mask, arg("grid"),
             arg("logits_ptr"), arg("logits_row_stride"), arg("logits_col_stride"),
             arg("cu_num_logits_ptr"), arg("num_sampled_tokens_ptr"), arg("token_ids_ptr"),
             arg("token_ids_row_stride"), arg("packed_mask_ptr"), arg("packed_mask_row_stride"),
             arg("counts_ptr"), arg("vocab_size"), arg("max_num_kept"), arg("ROWS_PER_REQUEST"),
             arg("BLOCK_SIZE"));
  module.def("_trace_replay_kernel", &trace_replay, arg("grid"), arg("sampled_ptr"),
             arg("idx_mapping_ptr"), arg("trace_token_ids_ptr"), arg("trace_token_ids_stride"),
             arg("trace_len_ptr"), arg("total_len_ptr"), arg("prompt_len_ptr"));
}

}  // namespace pyvllm_pp::bindings
