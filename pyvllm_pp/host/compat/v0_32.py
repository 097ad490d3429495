"""vLLM 0.32: the version that the backend is written for."""

from typing import Any

import torch


class RunnerFace:
    """Nothing is missing in this version's runner."""


def validation_view(vllm_config: Any) -> Any:
    """The configuration as vLLM's own check of PCP sees it."""
    return vllm_config


class ManagerFace:
    """What the local batch carries in this version."""

    def local_extras(
        self, input_batch: Any, tables: Any, dcp_upper_bound: torch.Tensor | None
    ) -> dict[str, Any]:
        """Fields of the local batch whose name or place differs between versions."""
        return {"dcp_local_seq_lens_cpu_upper_bound": dcp_upper_bound}

    def local_is_padding(
        self, is_padding: torch.Tensor, gathered_is_padding: torch.Tensor
    ) -> torch.Tensor:
        """Padding mask of the local batch: of its own rows."""
        return is_padding


class HandlerFace:
    """The handler's methods as this version's runner calls them."""

    def get_prev_sampled_outputs(
        self: Any, draft_tokens_to_update: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor] | None:
        """Begin a step and consume the feedback that is due; see ``consume_due``."""
        due = self.consume_due()
        if due is None:
            return None
        if due.with_drafts and draft_tokens_to_update is not None:
            due.update_drafts(draft_tokens_to_update)
        return {**due.posted.outputs, "idx_mapping": due.idx_mapping}

    def receive(self: Any, input_batch: Any) -> bool:
        """Post the receive of this step's tokens; see ``post_receive``."""
        return bool(self.post_receive(input_batch, self.num_speculative_steps > 0))

    def broadcast_drafts(
        self: Any, draft_tokens: torch.Tensor, input_batch: Any
    ) -> None:
        """Send the drafts of this step's requests, `draft_tokens` being all slots'."""
        self.send_drafts(lambda: draft_tokens[input_batch.idx_mapping])


class WorkerFace:
    """vLLM's worker has ``_make_model_runner`` for subclasses."""
