from collections.abc import Callable
from typing import Any

# Called with the grid, then with the parameters of vLLM's kernel of the same name.
# Tensors are torch's, on the CPU. Raises TypeError for another type, ValueError where
# an index leaves its tensor; nothing is written then.
_Kernel = Callable[..., None]

_apply_grammar_bitmask_kernel: _Kernel
_apply_write_kernel: _Kernel
_bad_words_kernel: _Kernel
_bias_kernel: _Kernel
_bincount_kernel: _Kernel
_combine_sampled_and_draft_tokens_kernel: _Kernel
_compact_sampling_mask_kernel: _Kernel
_compute_slot_mappings_kernel: _Kernel
_dcp_local_seq_lens_kernel: _Kernel
_expand_idx_mapping_kernel: _Kernel
_fill_logprob_token_ids_kernel: _Kernel
_gather_block_tables_kernel: _Kernel
_get_num_sampled_and_rejected_kernel: _Kernel
_gumbel_sample_kernel: _Kernel
_min_p_kernel: _Kernel
_num_nans_kernel: _Kernel
_penalties_kernel: _Kernel
_post_update_kernel: _Kernel
_post_update_num_computed_tokens_kernel: _Kernel
_prepare_pos_seq_lens_kernel: _Kernel
_prepare_prefill_inputs_kernel: _Kernel
_prompt_logprobs_token_ids_kernel: _Kernel
_ranks_kernel: _Kernel
_temperature_kernel: _Kernel
_thinking_budget_kernel: _Kernel
_topk_log_softmax_kernel: _Kernel
_trace_replay_kernel: _Kernel
_update_committed_marker_cache_kernel: _Kernel

def top_k_top_p(
    logits: Any,
    num_rows: int,
    vocab_size: int,
    stride: int,
    k: Any,
    p: Any,
    mask_value: float,
) -> None: ...
