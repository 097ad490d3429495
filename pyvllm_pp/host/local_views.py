"""Views of the manager's captured buffers, and local batches made of a global one."""

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from vllm.v1.worker.gpu.input_batch import InputBatch, InputBuffers

# Sizes repeat from step to step; a view costs as much as a small operation.
_NUM_SIZES = 512


class TokenViews(NamedTuple):
    """The first rows of the token buffers."""

    input_ids: torch.Tensor  # int32 [padded_num_tokens]
    positions: torch.Tensor  # int64 [padded_num_tokens]
    is_padding: torch.Tensor  # bool [padded_num_tokens]


class RowViews(NamedTuple):
    """The first rows of the request buffers."""

    query_start_loc: torch.Tensor  # int32 [padded_num_reqs + 1]
    seq_lens: torch.Tensor  # int32 [padded_num_reqs]


class LocalViews:
    """Views by size of buffers whose addresses never change (CUDA graphs)."""

    def __init__(self, buffers: InputBuffers) -> None:
        zeros = torch.zeros(
            buffers.max_num_reqs, dtype=torch.int32, device=buffers.device
        )

        def tokens(padded_num_tokens: int) -> TokenViews:
            return TokenViews(
                buffers.input_ids[:padded_num_tokens],
                buffers.positions[:padded_num_tokens],
                buffers.is_padding[:padded_num_tokens],
            )

        def rows(padded_num_reqs: int) -> RowViews:
            return RowViews(
                buffers.query_start_loc[: padded_num_reqs + 1],
                buffers.seq_lens[:padded_num_reqs],
            )

        self.tokens = lru_cache(_NUM_SIZES)(tokens)
        self.rows = lru_cache(_NUM_SIZES)(rows)
        self.zeros = lru_cache(_NUM_SIZES)(lambda num_reqs: zeros[:num_reqs])


def changed(batch: InputBatch, **values: Any) -> InputBatch:
    """A copy of `batch` with other values: ``dataclasses.replace`` without its cost.

    ``dataclasses.replace`` runs ``__init__`` over all forty fields at every step.

    Raises:
        AttributeError: the batch has no field of that name.
    """
    merged = {**batch.__dict__, **values}
    if len(merged) != len(batch.__dict__):
        unknown = sorted(values.keys() - batch.__dict__.keys())
        raise AttributeError(f"InputBatch has no {', '.join(unknown)}")
    copy = object.__new__(type(batch))
    copy.__dict__ = merged
    return copy
