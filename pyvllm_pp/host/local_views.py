"""Views of the manager's captured buffers, and local batches made of a global one."""

from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch
from vllm.v1.worker.gpu.input_batch import InputBatch, InputBuffers

from pyvllm_pp.batch import Int64Array
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


class LocalBatch(InputBatch):
    """A PCP-local batch whose ``req_ids`` are made when they are first read.

    A forward of text reads none, and each one is an object somewhere in memory.
    """

    @cached_property
    def req_ids(self) -> list[str]:
        """``[num_local_reqs]`` the request of each local row."""
        return [self._global_req_ids[row] for row in self._req_idx.tolist()]


def local_batch(
    batch: InputBatch, req_idx: Int64Array, values: dict[str, Any]
) -> LocalBatch:
    """A local batch: the fields of the global one, but for those given.

    ``dataclasses.replace`` would run ``__init__`` over forty fields at every step.

    Args:
        batch: the global batch.
        req_idx: int64 ``[num_local_reqs]`` local row -> global row.
        values: fields of the local batch.

    Raises:
        AttributeError: the batch has no field of a name in `values`.
    """
    fields = batch.__dict__
    merged = {**fields, **values}
    if len(merged) != len(fields):
        unknown = sorted(values.keys() - fields.keys())
        raise AttributeError(f"InputBatch has no {', '.join(unknown)}")
    del merged["req_ids"]
    merged["_global_req_ids"] = batch.req_ids
    merged["_req_idx"] = req_idx
    local = object.__new__(LocalBatch)
    local.__dict__ = merged
    return local
