#include "kernels/gumbel.h"
#include "kernels/thinking_budget.h"
#include "kernels/topk_topp.h"
#include "rooms.h"
#include "tensor.h"

namespace pyvllm_pp::bindings {
namespace {

using std::int64_t;

kernels::LogitsCache logits_cache(const Tensor& cache, int64_t stride_0, int64_t stride_1,
                                  const Tensor& column, const Tensor& source, int64_t source_stride,
                                  int64_t vocab_size, bool per_token_col) {
  constexpr std::string_view kName = "gumbel_sample";
  if (cache.is_absent()) {
    return {};
  }
  const auto raw = source.logits(kName, source_stride, vocab_size);
  if (cache.type() != raw.type) {
    throw py::type_error(concat('[', kName, "] logits_cache is ", kernels::name_of(cache.type()),
                                ", its source is ", kernels::name_of(raw.type)));
  }
  return {.data = cache.bytes(),
          .size = cache.size(),
          .request_stride = stride_0,
          .column_stride = stride_1,
          .column = column.ints(kName, "logits_cache_col"),
          .has_column_per_row = per_token_col,
          .source = raw};
}

template <typename Value>
void draw(const Grid& grid, const kernels::Logits& logits, const kernels::GumbelDraw& in,
          const Tensor& local_argmax, int64_t argmax_stride, const Tensor& local_max,
          int64_t max_stride) {
  constexpr std::string_view kName = "gumbel_sample";
  const kernels::BlockBest<Value> out{.token = local_argmax.ints(kName, "local_argmax"),
                                      .token_stride = argmax_stride,
                                      .value = local_max.span<Value>(kName, "local_max"),
                                      .value_stride = max_stride};
  const py::gil_scoped_release release;
  kernels::gumbel_sample(logits, in, out, grid[0], grid[1]);
}

void gumbel_sample(const Grid& grid, const Tensor& local_argmax_ptr, int64_t local_argmax_stride,
                   const Tensor& local_max_ptr, int64_t local_max_stride,
                   const Tensor& logits_cache_ptr, int64_t logits_cache_stride_0,
                   int64_t logits_cache_stride_1, const Tensor& logits_cache_col_ptr,
                   const Tensor& logits_cache_source_ptr, int64_t logits_cache_source_stride,
                   const Tensor& logits_ptr, int64_t logits_stride,
                   const Tensor& expanded_idx_mapping_ptr, const Tensor& seeds_ptr,
                   const Tensor& pos_ptr, const Tensor& temp_ptr, int64_t vocab_size,
                   int64_t block_size, bool is_drafting, bool apply_temperature, bool use_fp64,
                   bool per_token_col) {
  constexpr std::string_view kName = "gumbel_sample";
  const auto logits = logits_ptr.logits(kName, logits_stride, vocab_size);
  const kernels::GumbelDraw in{
      .idx_mapping = expanded_idx_mapping_ptr.ints(kName, "expanded_idx_mapping"),
      .seeds = seeds_ptr.ints(kName, "seeds"),
      .positions = pos_ptr.ints(kName, "pos"),
      .temperature = temp_ptr.span<float>(kName, "temp"),
      .block_size = block_size,
      .is_drafting = is_drafting,
      .apply_temperature = apply_temperature,
      .cache = logits_cache(logits_cache_ptr, logits_cache_stride_0, logits_cache_stride_1,
                            logits_cache_col_ptr, logits_cache_source_ptr,
                            logits_cache_source_stride, vocab_size, per_token_col)};
  const auto run = use_fp64 ? &draw<double> : &draw<float>;
  run(grid, logits, in, local_argmax_ptr, local_argmax_stride, local_max_ptr, local_max_stride);
}

kernels::ThinkingState thinking_state(std::string_view kernel, const Tensor& budget,
                                      const Tensor& all_token_ids, int64_t all_token_ids_stride,
                                      const Tensor& total_len, const Tensor& last_start,
                                      const Tensor& last_end, const Tensor& start_marker,
                                      const Tensor& end_marker) {
  return {.budget = budget.ints(kernel, "thinking_token_budget"),
          .all_token_ids = all_token_ids.rows(kernel, "all_token_ids", all_token_ids_stride),
          .total_len = total_len.ints(kernel, "total_len"),
          .last_start = last_start.ints(kernel, "cached_last_start"),
          .last_end = last_end.ints(kernel, "cached_last_end"),
          .start_marker = start_marker.ints(kernel, "reasoning_start_token_ids"),
          .end_marker = end_marker.ints(kernel, "natural_reasoning_end_token_ids")};
}

void update_committed_marker_cache(
    const Grid& grid, const Tensor& req_ids_ptr, const Tensor& thinking_token_budget_ptr,
    const Tensor& all_token_ids_ptr, int64_t all_token_ids_stride, const Tensor& total_len_ptr,
    const Tensor& cached_last_start_ptr, const Tensor& cached_last_end_ptr,
    const Tensor& cached_scan_pos_ptr, const Tensor& reasoning_start_token_ids_ptr,
    const Tensor& natural_reasoning_end_token_ids_ptr, int64_t /*start_len*/,
    int64_t /*natural_end_len*/, int64_t /*max_len*/, int64_t /*block*/) {
  constexpr std::string_view kName = "update_committed_marker_cache";
  const auto state =
      thinking_state(kName, thinking_token_budget_ptr, all_token_ids_ptr, all_token_ids_stride,
                     total_len_ptr, cached_last_start_ptr, cached_last_end_ptr,
                     reasoning_start_token_ids_ptr, natural_reasoning_end_token_ids_ptr);
  const auto mapping = req_ids_ptr.ints(kName, "req_ids");
  const auto scan_positions = cached_scan_pos_ptr.ints(kName, "cached_scan_pos");
  const py::gil_scoped_release release;
  kernels::find_markers(state, mapping, scan_positions, grid[0]);
}

void thinking_budget(const Grid& grid, const Tensor& logits_ptr, int64_t logits_stride,
                     const Tensor& expanded_idx_mapping_ptr,
                     const Tensor& thinking_token_budget_ptr, const Tensor& all_token_ids_ptr,
                     int64_t all_token_ids_stride, const Tensor& total_len_ptr,
                     const Tensor& input_ids_ptr, const Tensor& expanded_local_pos_ptr,
                     const Tensor& cached_last_start_ptr, const Tensor& cached_last_end_ptr,
                     const Tensor& reasoning_start_token_ids_ptr,
                     const Tensor& natural_reasoning_end_token_ids_ptr,
                     const Tensor& reasoning_end_token_ids_ptr, int64_t /*start_len*/,
                     int64_t /*natural_end_len*/, int64_t /*end_len*/) {
  constexpr std::string_view kName = "thinking_budget";
  const auto logits = logits_ptr.logit_rows(kName, logits_stride, grid[0]);
  const auto state =
      thinking_state(kName, thinking_token_budget_ptr, all_token_ids_ptr, all_token_ids_stride,
                     total_len_ptr, cached_last_start_ptr, cached_last_end_ptr,
                     reasoning_start_token_ids_ptr, natural_reasoning_end_token_ids_ptr);
  const kernels::ForcedEnd in{
      .idx_mapping = expanded_idx_mapping_ptr.ints(kName, "expanded_idx_mapping"),
      .input_ids = input_ids_ptr.ints(kName, "input_ids"),
      .local_pos = expanded_local_pos_ptr.ints(kName, "expanded_local_pos"),
      .forced_marker = reasoning_end_token_ids_ptr.ints(kName, "reasoning_end_token_ids")};
  const py::gil_scoped_release release;
  kernels::force_end_of_thinking(logits, state, in, grid[0]);
}

/// In the place of vLLM's function, not of its kernel: changes `logits` in place.
void top_k_top_p(const Tensor& logits, int64_t num_rows, int64_t vocab_size, int64_t stride,
                 const Tensor& k, const Tensor& p, float mask_value) {
  constexpr std::string_view kName = "topk_topp";
  const auto rows = static_cast<std::size_t>(num_rows);
  const auto extent = num_rows == 0 ? 0 : (num_rows - 1) * stride + vocab_size;
  kernels::TopKTopP in{.logits = logits.data<float>(kName, "logits", extent),
                       .num_rows = num_rows,
                       .vocab_size = vocab_size,
                       .stride = stride,
                       .top_k = {},
                       .top_p = {},
                       .mask_value = mask_value};
  if (!k.is_absent()) {
    in.top_k = k.ints(kName, "k");
    kernels::check_range(kName, "k", 0, num_rows, k.size());
  }
  if (!p.is_absent()) {
    in.top_p = {p.data<float>(kName, "p", num_rows), rows};
  }
  const py::gil_scoped_release release;
  kernels::apply_top_k_top_p(in);
}

}  // namespace

void bind_sampling(py::module_& module) {
  using py::arg;
  module.def("_gumbel_sample_kernel", &gumbel_sample, arg("grid"), arg("local_argmax_ptr"),
             arg("local_argmax_stride"), arg("local_max_ptr"), arg("local_max_stride"),
             arg("logits_cache_ptr"), arg("logits_cache_stride_0"), arg("logits_cache_stride_1"),
             arg("logits_cache_col_ptr"), arg("logits_cache_source_ptr"),
             arg("logits_cache_source_stride"), arg("logits_ptr"), arg("logits_stride"),
             arg("expanded_idx_mapping_ptr"), arg("seeds_ptr"), arg("pos_ptr"), arg("temp_ptr"),
             arg("vocab_size"), arg("BLOCK_SIZE"), arg("IS_DRAFTING"), arg("APPLY_TEMPERATURE"),
             arg("USE_FP64"), arg("PER_TOKEN_COL"));
  module.def("_update_committed_marker_cache_kernel", &update_committed_marker_cache, arg("grid"),
             arg("req_ids_ptr"), arg("thinking_token_budget_ptr"), arg("all_token_ids_ptr"),
             arg("all_token_ids_stride"), arg("total_len_ptr"), arg("cached_last_start_ptr"),
             arg("cached_last_end_ptr"), arg("cached_scan_pos_ptr"),
             arg("reasoning_start_token_ids_ptr"), arg("natural_reasoning_end_token_ids_ptr"),
             arg("START_LEN"), arg("NATURAL_END_LEN"), arg("MAX_LEN"), arg("BLOCK"));
  module.def("_thinking_budget_kernel", &thinking_budget, arg("grid"), arg("logits_ptr"),
             arg("logits_stride"), arg("expanded_idx_mapping_ptr"),
             arg("thinking_token_budget_ptr"), arg("all_token_ids_ptr"),
             arg("all_token_ids_stride"), arg("total_len_ptr"), arg("input_ids_ptr"),
             arg("expanded_local_pos_ptr"), arg("cached_last_start_ptr"),
             arg("cached_last_end_ptr"), arg("reasoning_start_token_ids_ptr"),
             arg("natural_reasoning_end_token_ids_ptr"), arg("reasoning_end_token_ids_ptr"),
             arg("START_LEN"), arg("NATURAL_END_LEN"), arg("END_LEN"));
  module.def("top_k_top_p", &top_k_top_p, arg("logits"), arg("num_rows"), arg("vocab_size"),
             arg("stride"), arg("k"), arg("p"), arg("mask_value"));
}

}  // namespace pyvllm_pp::bindings
