"""Views of the manager's captured buffers, and local batches made of a global one."""

from collections.abc import Callable
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from vllm.v1.worker.gpu.input_batch import InputBatch, InputBuffers

from pyvllm_pp.tables import LocalRows, LocalTokens

# Sizes repeat from step to step; a view costs as much as a small operation.
_NUM_SIZES = 512


class TokenViews(NamedTuple):
    """The first rows of the token buffers."""

    input_ids: torch.Tensor  # int32 [padded_num_tokens]
    positions: torch.Tensor  # int64 [padded_num_tokens]
    is_padding: torch.Tensor  # bool [padded_num_tokens]
    host: LocalTokens | None  # the same memory, where it is the host's


class RowViews(NamedTuple):
    """The first rows of the request buffers."""

    query_start_loc: torch.Tensor  # int32 [padded_num_reqs + 1]
    seq_lens: torch.Tensor  # int32 [padded_num_reqs]
    host: LocalRows | None


class LocalViews:
    """Views by size of buffers whose addresses never change (CUDA graphs)."""

    def __init__(self, buffers: InputBuffers) -> None:
        on_host = torch.device(buffers.device).type == "cpu"
        # int32 [max_num_reqs + 1], where it is the host's
        self.query_start_loc_np: Any = None
        if on_host:
            self.query_start_loc_np = buffers.query_start_loc.numpy()
        zeros = torch.zeros(
            buffers.max_num_reqs, dtype=torch.int32, device=buffers.device
        )

        def tokens(padded_num_tokens: int) -> TokenViews:
            views = (
                buffers.input_ids[:padded_num_tokens],
                buffers.positions[:padded_num_tokens],
                buffers.is_padding[:padded_num_tokens],
            )
            host = None
            if on_host:
                ids, positions, is_padding = views
                flags = is_padding.view(torch.uint8).numpy()
                host = LocalTokens(ids.numpy(), positions.numpy(), flags)
            return TokenViews(*views, host)

        def rows(padded_num_reqs: int) -> RowViews:
            seq_lens = buffers.seq_lens[:padded_num_reqs]
            return RowViews(
                buffers.query_start_loc[: padded_num_reqs + 1],
                seq_lens,
                LocalRows(seq_lens.numpy()) if on_host else None,
            )

        self.tokens = lru_cache(_NUM_SIZES)(tokens)
        self.rows = lru_cache(_NUM_SIZES)(rows)
        self.zeros = lru_cache(_NUM_SIZES)(lambda num_reqs: zeros[:num_reqs])


def picker(rows: list[int]) -> Callable[[list[Any]], list[Any]]:
    """What makes a list of the items at `rows`, one or more, of a list."""
    if len(rows) == 1:
        (row,) = rows
        return lambda items: [items[row]]
    pick = itemgetter(*rows)
    return lambda items: list(pick(items))


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
