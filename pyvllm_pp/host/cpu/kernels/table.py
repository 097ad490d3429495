"""Which of vLLM's Triton kernels have a stand-in, and written for which source."""

import importlib
from typing import Any, NamedTuple

_GPU = "vllm.v1.worker.gpu"


class StandIn(NamedTuple):
    """One kernel; its stand-in has the same name in :mod:`pyvllm_pp._kernels`."""

    module: str  # below vllm.v1.worker.gpu
    kernel: str
    # Of each vLLM version whose kernel does the same; see `source_digest`.
    sources: tuple[str, ...]

    def load_module(self) -> Any:
        """The module of vLLM that holds the kernel."""
        return importlib.import_module(f"{_GPU}.{self.module}")


STAND_INS = (
    StandIn("block_table", "_compute_slot_mappings_kernel", ("c70c4f84d279",)),
    StandIn("block_table", "_gather_block_tables_kernel", ("977a296033b0",)),
    StandIn("buffer_utils", "_apply_write_kernel", ("6567cf5a7766",)),
    StandIn("cp_utils", "_dcp_local_seq_lens_kernel", ("7c3007d81a17",)),
    StandIn(
        "input_batch", "_combine_sampled_and_draft_tokens_kernel", ("757d13562755",)
    ),
    StandIn("input_batch", "_expand_idx_mapping_kernel", ("72eebc8ca45e",)),
    StandIn("input_batch", "_get_num_sampled_and_rejected_kernel", ("7705ef4522bf",)),
    StandIn("input_batch", "_post_update_kernel", ("39d5f0f51be4",)),
    StandIn(
        "input_batch", "_post_update_num_computed_tokens_kernel", ("b42560701a0d",)
    ),
    StandIn("input_batch", "_prepare_pos_seq_lens_kernel", ("930d45316455",)),
    StandIn("input_batch", "_prepare_prefill_inputs_kernel", ("0afba0f1c070",)),
    StandIn("metrics.logits", "_num_nans_kernel", ("dea28a8cf4da",)),
    StandIn("sample.bad_words", "_bad_words_kernel", ("af1265c86bff",)),
    StandIn("sample.gumbel", "_gumbel_sample_kernel", ("371f199f9cc6",)),
    StandIn("sample.gumbel", "_temperature_kernel", ("88dfbee4e98e",)),
    StandIn("sample.logit_bias", "_bias_kernel", ("7e259e42d7bb",)),
    StandIn("sample.logprob", "_fill_logprob_token_ids_kernel", ("0024f9954042",)),
    StandIn("sample.logprob", "_ranks_kernel", ("21179d402490",)),
    StandIn("sample.logprob", "_topk_log_softmax_kernel", ("4d92b685e377",)),
    StandIn("sample.min_p", "_min_p_kernel", ("d4457aada09e",)),
    StandIn("sample.output", "_compact_sampling_mask_kernel", ("dfaba414915c",)),
    StandIn("sample.penalties", "_bincount_kernel", ("7f2d11764695",)),
    StandIn("sample.penalties", "_penalties_kernel", ("e3eb8f6ce918",)),
    StandIn(
        "sample.prompt_logprob", "_prompt_logprobs_token_ids_kernel", ("13fa17193765",)
    ),
    StandIn("sample.thinking_budget", "_thinking_budget_kernel", ("ac4e1d8c2006",)),
    StandIn(
        "sample.thinking_budget",
        "_update_committed_marker_cache_kernel",
        ("e7d0bdd71210",),
    ),
    StandIn("sample.trace_replay", "_trace_replay_kernel", ("22628939887c",)),
    StandIn("structured_outputs", "_apply_grammar_bitmask_kernel", ("ef52b126f48d",)),
)
