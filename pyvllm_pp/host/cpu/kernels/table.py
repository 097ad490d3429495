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
)
