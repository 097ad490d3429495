from collections.abc import Callable

# Called with the grid, then with the parameters of vLLM's kernel of the same name.
# Tensors are torch's, on the CPU. Raises TypeError for another type, ValueError where
# an index leaves its tensor; nothing is written then.
_Kernel = Callable[..., None]

_apply_write_kernel: _Kernel
_combine_sampled_and_draft_tokens_kernel: _Kernel
_compute_slot_mappings_kernel: _Kernel
_dcp_local_seq_lens_kernel: _Kernel
_expand_idx_mapping_kernel: _Kernel
_gather_block_tables_kernel: _Kernel
_get_num_sampled_and_rejected_kernel: _Kernel
_post_update_kernel: _Kernel
_post_update_num_computed_tokens_kernel: _Kernel
_prepare_pos_seq_lens_kernel: _Kernel
_prepare_prefill_inputs_kernel: _Kernel
