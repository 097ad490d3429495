"""Restore: the last stage's hidden rows, from all PCP ranks, for sampling.

Dense, as vLLM does it: every rank's rows are gathered and put in global order.
Selected: each rank packs the rows that sampling reads, one a request, and only those
travel.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from vllm.distributed.parallel_state import get_pcp_group
from vllm.v1.worker.gpu.input_batch import InputBatch


@dataclass
class RestoreCounts:
    """What a manager restored since it was built."""

    dense_steps: int = 0
    selected_steps: int = 0
    dense_rows: int = 0  # rows gathered in dense steps, padding included
    selected_rows: int = 0

    def add_dense(self, num_rows: int) -> None:
        """Count a step that gathered all rows."""
        self.dense_steps += 1
        self.dense_rows += num_rows

    def add_selected(self, num_rows: int) -> None:
        """Count a step that gathered the rows that sampling reads."""
        self.selected_steps += 1
        self.selected_rows += num_rows


class Selection(NamedTuple):
    """The rows of one step that sampling reads, as the plan has them."""

    rank: int
    num_rows: Sequence[int]  # [pcp_size] rows that each rank packs
    local_idx: torch.Tensor  # int64 [num_reqs] this rank's, the first num_rows[rank]
    restore_idx: torch.Tensor  # int64 [num_reqs] request -> packed row
    padded_num_tokens: int  # rows of each rank that dense restore gathers

    @property
    def saves(self) -> bool:
        """Whether fewer rows travel than in a dense restore.

        False for a batch of decodes without graph padding: there each row is sampled.
        """
        return max(self.num_rows) < self.padded_num_tokens

    def restore(self, hidden_states: torch.Tensor, batch: InputBatch) -> "SampledRows":
        """Pack, gather and order the rows; all ranks of the PCP group take part.

        Args:
            hidden_states: this rank's rows ``[padded_num_tokens, hidden_size]``.
            batch: the global batch.
        """
        local_idx = self.local_idx[: self.num_rows[self.rank]]
        own = hidden_states.index_select(0, local_idx)
        packed = gather_rows(own, self.num_rows)
        return SampledRows(packed.index_select(0, self.restore_idx), batch)


def gather_rows(own: torch.Tensor, num_rows: Sequence[int]) -> torch.Tensor:
    """Gather the rows of all PCP ranks, rank by rank, without padding.

    Args:
        own: this rank's rows ``[num_rows[rank], hidden_size]``, on every rank.
        num_rows: ``[pcp_size]``, equal on all ranks.
    """
    group: Any = get_pcp_group()
    if len(set(num_rows)) == 1:
        return group.all_gather(own, dim=0)
    if own.device.type != "cpu":
        return group.all_gatherv(own, dim=0, sizes=list(num_rows))
    # vLLM's CPU build has no gather of unequal parts.
    packed = own.new_empty(sum(num_rows), *own.shape[1:])
    parts = packed.split(list(num_rows))
    parts[group.rank_in_group].copy_(own)
    for rank, part in enumerate(parts):
        if part.shape[0] > 0:
            group.broadcast(part, src=rank)
    return packed


class SampledRows:
    """Stands for the restored hidden states where only sampled rows were restored.

    It answers the one question of sampling, the rows at the batch's ``logits_indices``,
    in the batch's order or in the order of the ranks that sample (batch-sharded
    sampling). Any other use is an error, never a row that was not restored.

    Args:
        rows: ``[num_reqs, hidden_size]`` in the order of `batch`.
        batch: the global batch, with one logit a request.
    """

    def __init__(self, rows: torch.Tensor, batch: InputBatch) -> None:
        self._rows = rows
        self._indices = batch.logits_indices

    def __getitem__(self, index: object) -> torch.Tensor:
        """The rows of `index`, the batch's ``logits_indices`` in any order.

        Raises:
            TypeError: `index` is anything else.
        """
        if index is self._indices:
            return self._rows
        if not isinstance(index, torch.Tensor) or index.shape != self._indices.shape:
            given = list(index.shape) if isinstance(index, torch.Tensor) else index
            raise TypeError(
                f"[restore] hidden states indexed with {given!r}, expected the "
                f"{self._indices.shape[0]} logits_indices of the batch: this step "
                'restored only the rows that sampling reads; "restore": "dense" '
                "restores all"
            )
        # A request's logit is its last token, so the indices ascend.
        return self._rows.index_select(
            0, torch.searchsorted(self._indices, index.to(self._indices.dtype))
        )


class Readers:
    """Who reads the restored hidden states of a run, beside sampling.

    Args:
        runner: the last stage's runner, complete when a step is asked about.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def read_all_rows(self, batch: InputBatch) -> bool:
        """Whether a step reads more hidden states than its requests' last rows.

        Args:
            batch: the global batch of the step.
        """
        runner = self._runner
        return (
            runner.speculator is not None
            or runner.num_speculative_steps > 0
            or runner.use_aux_hidden_state_outputs
            or runner.is_pooling_model
            or int(batch.cu_num_logits_np[-1]) != batch.num_reqs
            or _wants_prompt_logprobs(runner.prompt_logprobs_worker, batch)
        )


def _wants_prompt_logprobs(worker: Any, batch: InputBatch) -> bool:
    """Whether a request of the batch has prompt rows left to score."""
    wanted = worker.uses_prompt_logprobs[batch.idx_mapping_np]
    if (wanted & (batch.num_computed_prefill_tokens_np < batch.prefill_len_np)).any():
        return True
    scored = worker.token_id_scores
    return bool(scored) and any(req_id in scored for req_id in batch.req_ids)
