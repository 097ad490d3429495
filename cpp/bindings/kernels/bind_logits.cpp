#include "kernels/logits.h"
#include "rooms.h"
#include "tensor.h"

namespace pyvllm_pp::bindings {
namespace {

using std::int64_t;

void temperature(const Grid& grid, const Tensor& logits_ptr, int64_t logits_stride,
                 const Tensor& expanded_idx_mapping_ptr, const Tensor& temperature_ptr,
                 int64_t vocab_size, int64_t /*block_size*/) {
  constexpr std::string_view kName = "temperature";
  const auto logits = logits_ptr.logits(kName, logits_stride, vocab_size);
  const auto mapping = expanded_idx_mapping_ptr.ints(kName, "expanded_idx_mapping");
  const auto values = temperature_ptr.span<float>(kName, "temperature");
  const py::gil_scoped_release release;
  kernels::apply_temperature(logits, mapping, values, grid[0]);
}

void min_p(const Grid& grid, const Tensor& logits_ptr, int64_t logits_stride,
           const Tensor& expanded_idx_mapping_ptr, const Tensor& min_p_ptr, int64_t vocab_size,
           int64_t /*block_size*/) {
  constexpr std::string_view kName = "min_p";
  const auto logits = logits_ptr.logits(kName, logits_stride, vocab_size);
  const auto mapping = expanded_idx_mapping_ptr.ints(kName, "expanded_idx_mapping");
  const auto values = min_p_ptr.span<float>(kName, "min_p");
  const py::gil_scoped_release release;
  kernels::apply_min_p(logits, mapping, values, grid[0]);
}

void penalties(const Grid& grid, const Tensor& logits_ptr, int64_t logits_stride,
               const Tensor& expanded_idx_mapping_ptr, const Tensor& token_ids_ptr,
               const Tensor& expanded_local_pos_ptr, const Tensor& repetition_penalty_ptr,
               const Tensor& frequency_penalty_ptr, const Tensor& presence_penalty_ptr,
               const Tensor& prompt_bin_mask_ptr, int64_t prompt_bin_mask_stride,
               const Tensor& output_bin_counts_ptr, int64_t output_bin_counts_stride,
               int64_t vocab_size, int64_t /*block_size*/) {
  constexpr std::string_view kName = "penalties";
  const auto logits = logits_ptr.logits(kName, logits_stride, vocab_size);
  const kernels::PenaltyState in{
      .idx_mapping = expanded_idx_mapping_ptr.ints(kName, "expanded_idx_mapping"),
      .token_ids = token_ids_ptr.ints(kName, "token_ids"),
      .local_pos = expanded_local_pos_ptr.ints(kName, "expanded_local_pos"),
      .repetition = repetition_penalty_ptr.span<float>(kName, "repetition_penalty"),
      .frequency = frequency_penalty_ptr.span<float>(kName, "frequency_penalty"),
      .presence = presence_penalty_ptr.span<float>(kName, "presence_penalty"),
      .prompt_bits = prompt_bin_mask_ptr.span<std::int32_t>(kName, "prompt_bin_mask"),
      .prompt_bits_stride = prompt_bin_mask_stride,
      .output_counts = output_bin_counts_ptr.span<std::int32_t>(kName, "output_bin_counts"),
      .output_counts_stride = output_bin_counts_stride};
  const py::gil_scoped_release release;
  kernels::apply_penalties(logits, in, grid[0]);
}

void bincount(const Grid& grid, const Tensor& expanded_idx_mapping_ptr,
              const Tensor& all_token_ids_ptr, int64_t all_token_ids_stride,
              const Tensor& prompt_len_ptr, const Tensor& prefill_len_ptr,
              const Tensor& prompt_bin_mask_ptr, int64_t prompt_bin_mask_stride,
              const Tensor& output_bin_counts_ptr, int64_t output_bin_counts_stride,
              int64_t block_size) {
  constexpr std::string_view kName = "bincount";
  const kernels::TokenCounts in{
      .idx_mapping = expanded_idx_mapping_ptr.ints(kName, "expanded_idx_mapping"),
      .all_token_ids = all_token_ids_ptr.rows(kName, "all_token_ids", all_token_ids_stride),
      .prompt_len = prompt_len_ptr.ints(kName, "prompt_len"),
      .prefill_len = prefill_len_ptr.ints(kName, "prefill_len"),
      .prompt_bits = prompt_bin_mask_ptr.span<std::int32_t>(kName, "prompt_bin_mask"),
      .prompt_bits_stride = prompt_bin_mask_stride,
      .output_counts = output_bin_counts_ptr.span<std::int32_t>(kName, "output_bin_counts"),
      .output_counts_stride = output_bin_counts_stride,
      .block_size = block_size,
      .num_blocks = grid[1]};
  const py::gil_scoped_release release;
  kernels::count_tokens(in, grid[0]);
}

void bias(const Grid& grid, const Tensor& logits_ptr, int64_t logits_stride, int64_t vocab_size,
          const Tensor& expanded_idx_mapping_ptr, const Tensor& num_allowed_token_ids_ptr,
          const Tensor& allowed_token_ids_ptr, int64_t allowed_token_ids_stride,
          const Tensor& num_logit_bias_ptr, const Tensor& bias_token_ids_ptr,
          int64_t bias_token_ids_stride, const Tensor& bias_ptr, int64_t bias_stride,
          const Tensor& pos_ptr, const Tensor& min_lens_ptr, const Tensor& num_stop_token_ids_ptr,
          const Tensor& restore_when_all_masked_ptr, const Tensor& stop_token_ids_ptr,
          int64_t stop_token_ids_stride, int64_t /*block_size*/, int64_t /*logits_block_size*/,
          bool check_all_masked_rows) {
  constexpr std::string_view kName = "bias";
  const auto logits = logits_ptr.logits(kName, logits_stride, vocab_size);
  const kernels::TokenBias in{
      .idx_mapping = expanded_idx_mapping_ptr.ints(kName, "expanded_idx_mapping"),
      .num_allowed = num_allowed_token_ids_ptr.ints(kName, "num_allowed_token_ids"),
      .allowed = allowed_token_ids_ptr.rows(kName, "allowed_token_ids", allowed_token_ids_stride),
      .num_biased = num_logit_bias_ptr.ints(kName, "num_logit_bias"),
      .biased = bias_token_ids_ptr.rows(kName, "bias_token_ids", bias_token_ids_stride),
      .bias = bias_ptr.span<float>(kName, "bias"),
      .bias_stride = bias_stride,
      .positions = pos_ptr.ints(kName, "pos"),
      .min_lens = min_lens_ptr.ints(kName, "min_lens"),
      .num_stop = num_stop_token_ids_ptr.ints(kName, "num_stop_token_ids"),
      .restore_when_all_masked = restore_when_all_masked_ptr.ints(kName, "restore_when_all_masked"),
      .stop = stop_token_ids_ptr.rows(kName, "stop_token_ids", stop_token_ids_stride),
      .check_all_masked = check_all_masked_rows};
  const py::gil_scoped_release release;
  kernels::apply_token_bias(logits, in, grid[0]);
}

void bad_words(const Grid& grid, const Tensor& logits_ptr, int64_t logits_stride,
               const Tensor& expanded_idx_mapping_ptr, const Tensor& bad_word_token_ids_ptr,
               int64_t bad_word_token_ids_stride, const Tensor& bad_word_offsets_ptr,
               int64_t bad_word_offsets_stride, const Tensor& num_bad_words_ptr,
               const Tensor& all_token_ids_ptr, int64_t all_token_ids_stride,
               const Tensor& prompt_len_ptr, const Tensor& total_len_ptr,
               const Tensor& input_ids_ptr, const Tensor& expanded_local_pos_ptr) {
  constexpr std::string_view kName = "bad_words";
  const auto logits = logits_ptr.logit_rows(kName, logits_stride, grid[0]);
  const kernels::BadWords in{
      .idx_mapping = expanded_idx_mapping_ptr.ints(kName, "expanded_idx_mapping"),
      .tokens = bad_word_token_ids_ptr.rows(kName, "bad_word_token_ids", bad_word_token_ids_stride),
      .offsets = bad_word_offsets_ptr.rows(kName, "bad_word_offsets", bad_word_offsets_stride),
      .num_words = num_bad_words_ptr.ints(kName, "num_bad_words"),
      .all_token_ids = all_token_ids_ptr.rows(kName, "all_token_ids", all_token_ids_stride),
      .prompt_len = prompt_len_ptr.ints(kName, "prompt_len"),
      .total_len = total_len_ptr.ints(kName, "total_len"),
      .input_ids = input_ids_ptr.ints(kName, "input_ids"),
      .local_pos = expanded_local_pos_ptr.ints(kName, "expanded_local_pos"),
      .max_num_words = grid[1]};
  const py::gil_scoped_release release;
  kernels::apply_bad_words(logits, in, grid[0]);
}

void apply_grammar_bitmask(const Grid& grid, const Tensor& logits_ptr, int64_t logits_stride,
                           const Tensor& logits_indices_ptr, const Tensor& cu_num_logits_ptr,
                           const Tensor& bitmask_ptr, int64_t bitmask_stride, int64_t vocab_size,
                           int64_t mask_stride, int64_t /*block_size*/) {
  constexpr std::string_view kName = "apply_grammar_bitmask";
  const auto logits = logits_ptr.logits(kName, logits_stride, vocab_size);
  const kernels::GrammarMask in{.rows = logits_indices_ptr.ints(kName, "logits_indices"),
                                .cu_num_logits = cu_num_logits_ptr.ints(kName, "cu_num_logits"),
                                .bits = bitmask_ptr.span<std::int32_t>(kName, "bitmask"),
                                .bits_stride = bitmask_stride,
                                .positions_per_request = mask_stride};
  const py::gil_scoped_release release;
  kernels::apply_grammar_bitmask(logits, in, grid[0]);
}

}  // namespace

void bind_logits(py::module_& module) {
  using py::arg;
  module.def("_temperature_kernel", &temperature, arg("grid"), arg("logits_ptr"),
             arg("logits_stride"), arg("expanded_idx_mapping_ptr"), arg("temperature_ptr"),
             arg("vocab_size"), arg("BLOCK_SIZE"));
  module.def("_min_p_kernel", &min_p, arg("grid"), arg("logits_ptr"), arg("logits_stride"),
             arg("expanded_idx_mapping_ptr"), arg("min_p_ptr"), arg("vocab_size"),
             arg("BLOCK_SIZE"));
  module.def("_penalties_kernel", &penalties, arg("grid"), arg("logits_ptr"), arg("logits_stride"),
             arg("expanded_idx_mapping_ptr"), arg("token_ids_ptr"), arg("expanded_local_pos_ptr"),
             arg("repetition_penalty_ptr"), arg("frequency_penalty_ptr"),
             arg("presence_penalty_ptr"), arg("prompt_bin_mask_ptr"), arg("prompt_bin_mask_stride"),
             arg("output_bin_counts_ptr"), arg("output_bin_counts_stride"), arg("vocab_size"),
             arg("BLOCK_SIZE"));
  module.def("_bincount_kernel", &bincount, arg("grid"), arg("expanded_idx_mapping_ptr"),
             arg("all_token_ids_ptr"), arg("all_token_ids_stride"), arg("prompt_len_ptr"),
             arg("prefill_len_ptr"), arg("prompt_bin_mask_ptr"), arg("prompt_bin_mask_stride"),
             arg("output_bin_counts_ptr"), arg("output_bin_counts_stride"), arg("BLOCK_SIZE"));
  module.def("_bias_kernel", &bias, arg("grid"), arg("logits_ptr"), arg("logits_stride"),
             arg("vocab_size"), arg("expanded_idx_mapping_ptr"), arg("num_allowed_token_ids_ptr"),
             arg("allowed_token_ids_ptr"), arg("allowed_token_ids_stride"),
             arg("num_logit_bias_ptr"), arg("bias_token_ids_ptr"), arg("bias_token_ids_stride"),
             arg("bias_ptr"), arg("bias_stride"), arg("pos_ptr"), arg("min_lens_ptr"),
             arg("num_stop_token_ids_ptr"), arg("restore_when_all_masked_ptr"),
             arg("stop_token_ids_ptr"), arg("stop_token_ids_stride"), arg("BLOCK_SIZE"),
             arg("LOGITS_BLOCK_SIZE"), arg("CHECK_ALL_MASKED_ROWS"));
  module.def("_bad_words_kernel", &bad_words, arg("grid"), arg("logits_ptr"), arg("logits_stride"),
             arg("expanded_idx_mapping_ptr"), arg("bad_word_token_ids_ptr"),
             arg("bad_word_token_ids_stride"), arg("bad_word_offsets_ptr"),
             arg("bad_word_offsets_stride"), arg("num_bad_words_ptr"), arg("all_token_ids_ptr"),
             arg("all_token_ids_stride"), arg("prompt_len_ptr"), arg("total_len_ptr"),
             arg("input_ids_ptr"), arg("expanded_local_pos_ptr"));
  module.def("_apply_grammar_bitmask_kernel", &apply_grammar_bitmask, arg("grid"),
             arg("logits_ptr"), arg("logits_stride"), arg("logits_indices_ptr"),
             arg("cu_num_logits_ptr"), arg("bitmask_ptr"), arg("bitmask_stride"), arg("vocab_size"),
             arg("MASK_STRIDE"), arg("BLOCK_SIZE"));
}

}  // namespace pyvllm_pp::bindings
