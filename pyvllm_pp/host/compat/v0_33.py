"""vLLM 0.33: metadata of the global batch, a gathered MoE mask, drafts by step."""

from typing import Any

import torch
from vllm.v1.worker.gpu.pcp_manager import PCPBatchMetadata

from pyvllm_pp.host.compat.v0_32 import RunnerFace, WorkerFace, validation_view

__all__ = ["HandlerFace", "ManagerFace", "RunnerFace", "WorkerFace", "validation_view"]


class ManagerFace:
    """What this version's local batch carries beside 0.32's."""

    def local_extras(
        self: Any, input_batch: Any, tables: Any, dcp_upper_bound: torch.Tensor | None
    ) -> dict[str, Any]:
        """Fields of the local batch whose name or place differs between versions."""
        rows = tables.host.req_idx
        seq_lens = input_batch.seq_lens_cpu_upper_bound.numpy()
        return {
            "pcp": PCPBatchMetadata(
                global_num_tokens=input_batch.num_tokens,
                global_query_lens_np=input_batch.num_scheduled_tokens[rows],
                global_seq_lens_cpu_upper_bound_np=seq_lens[rows],
                dcp_local_seq_lens_cpu_upper_bound=dcp_upper_bound,
            )
        }

    def local_is_padding(
        self: Any, is_padding: torch.Tensor, gathered_is_padding: torch.Tensor
    ) -> Any:
        """Padding mask of the rows that the MoE routes: gathered, where it gathers."""
        if self._moe_is_padding is None:
            return is_padding
        out = self._moe_is_padding[: gathered_is_padding.shape[0]]
        return out.copy_(gathered_is_padding)


class HandlerFace:
    """The handler's methods as this version's runner calls them."""

    def get_prev_sampled_outputs(self: Any) -> dict[str, Any] | None:
        """Begin a step and consume the feedback that is due; see ``consume_due``."""
        due = self.consume_due()
        if due is None:
            return None
        return {
            **due.posted.outputs,
            "idx_mapping": due.idx_mapping,
            "draft_tokens": due.posted.draft_tokens if due.with_drafts else None,
        }

    def receive(self: Any, input_batch: Any, recv_drafts: bool) -> bool:
        """Post the receive of this step's tokens; see ``post_receive``."""
        return bool(self.post_receive(input_batch, recv_drafts))

    def broadcast_drafts(self: Any, draft_tokens: torch.Tensor) -> None:
        """Send the drafts of this step's requests."""
        self.send_drafts(lambda: draft_tokens)
