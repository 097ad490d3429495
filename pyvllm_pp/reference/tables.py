"""The tables, by looking tokens up in lists."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyvllm_pp.batch import Batch, Int32Array, Int64Array
from pyvllm_pp.reference.plan import Plan
from pyvllm_pp.tables import DeviceTables, HostTables


class Tables(NamedTuple):
    """All index arrays of one rank for one step."""

    device: DeviceTables
    host: HostTables


def gathered_tokens(made: Plan, padded_num_tokens: int = 0) -> list[int | None]:
    """The global token of each row in padded gathered order; None on padding."""
    length = padded_num_tokens or made.max_rank_tokens
    rows: list[int | None] = []
    for rank in range(made.pcp_size):
        tokens = made.rank_tokens(rank)
        rows += [*tokens, *[None] * (length - len(tokens))]
    return rows


def sampled_tokens(batch: Batch) -> list[int]:
    """The global token whose row sampling reads, of each request.

    Its last one. A request without tokens reads the row before, the first ones the
    batch's last row: indices as vLLM makes and torch reads them. Empty for a batch
    without tokens.
    """
    counts = [int(count) for count in batch.num_scheduled_tokens]
    tokens = list(range(sum(counts)))
    if not tokens:
        return []
    return [tokens[sum(counts[: i + 1]) - 1] for i in range(len(counts))]


def selected_tokens(made: Plan, batch: Batch) -> list[list[int]]:
    """The tokens that each rank packs, in its local order; a replicated one rank 0."""
    left = set(sampled_tokens(batch))
    selected: list[list[int]] = []
    for rank in range(made.pcp_size):
        selected.append([token for token in made.rank_tokens(rank) if token in left])
        left -= set(selected[rank])
    return selected


def tables(
    made: Plan,
    batch: Batch,
    rank: int,
    *,
    max_num_reqs: int,
    padded_num_tokens: int = 0,
    padded_num_reqs: int = 0,
) -> Tables:
    """The tables that a rank's writer must give for a plan of `batch`.

    Args:
        made: the plan, of any policy.
        batch: the global batch.
        rank: the rank.
        max_num_reqs: requests that the runner's buffers hold.
        padded_num_tokens: rows of every rank in gathered order; 0 for no padding.
        padded_num_reqs: local rows after graph padding; 0 for no padding.
    """
    host = _host_tables(made, batch, rank, padded_num_reqs)
    rows = gathered_tokens(made, padded_num_tokens)
    # Of equal rows of a replicated request, the first in gathered order counts.
    first = [rows.index(token) for token in range(made.num_tokens)]
    selected = selected_tokens(made, batch)
    packed = [token for tokens in selected for token in tokens]
    own = [made.rank_tokens(rank).index(token) for token in selected[rank]]
    num_reqs = len(batch.num_scheduled_tokens)
    ends = host.query_start_loc
    device_ends = np.full(2 * max_num_reqs + 1, ends[-1], dtype=np.int32)
    device_ends[: len(ends)] = ends
    device = DeviceTables(
        hidden_restore_idx=np.array(first, dtype=np.int64),
        padded_gather_idx=np.array([token or 0 for token in rows], dtype=np.int64),
        idx_mapping=host.idx_mapping,
        selected_local_idx=_padded(own, num_reqs),
        selected_restore_idx=_padded(
            [packed.index(token) for token in sampled_tokens(batch)], num_reqs
        ),
        query_start_loc=device_ends,
        cu_num_logits=host.cu_num_logits,
        logits_indices=ends[1:] - np.int32(1),
        gathered_kv_write_mask=np.isin(np.arange(len(rows)), first),
        gathered_is_padding=np.array([token is None for token in rows], dtype=np.bool_),
    )
    return Tables(device, host)


class _Row(NamedTuple):
    req_idx: int
    start_pos: int
    num_tokens: int


def _local_rows(made: Plan, batch: Batch, rank: int) -> list[_Row]:
    """A row a segment; one row of no tokens on an idle rank."""
    rows: list[_Row] = []
    for segment in made.segments[rank]:
        req_idx = segment.req_idx
        first_token = int(batch.num_scheduled_tokens[:req_idx].sum())
        offset = segment.token_start - first_token
        start_pos = int(batch.num_computed_tokens[req_idx]) + offset
        rows.append(_Row(req_idx, start_pos, segment.num_tokens))
    return rows or [_Row(0, int(batch.num_computed_tokens[0]), 0)]


def _host_tables(
    made: Plan, batch: Batch, rank: int, padded_num_reqs: int
) -> HostTables:
    rows = _local_rows(made, batch, rank)
    padding = [0] * (max(padded_num_reqs, len(rows)) - len(rows))
    lengths = [row.num_tokens for row in rows]
    prefill_len = [int(batch.prefill_len[row.req_idx]) for row in rows]
    # An idle rank has no logits; otherwise one a row.
    has_logits = any(lengths)
    return HostTables(
        req_idx=_int64([row.req_idx for row in rows]),
        idx_mapping=_int64([int(batch.idx_mapping[row.req_idx]) for row in rows]),
        num_scheduled_tokens=_int32(lengths),
        start_pos=_int32([row.start_pos for row in rows]),
        prefill_len=_int32(prefill_len),
        num_computed_prefill_tokens=_int32(
            [min(row.start_pos, p) for row, p in zip(rows, prefill_len, strict=True)]
        ),
        query_start_loc=_int32(np.cumsum([0, *lengths, *padding])),
        seq_lens_upper_bound=_int32(
            [row.start_pos + row.num_tokens for row in rows] + padding
        ),
        cu_num_logits=_int32([i if has_logits else 0 for i in range(len(rows) + 1)]),
        is_prefilling=np.array(
            [row.start_pos < p for row, p in zip(rows, prefill_len, strict=True)]
            + padding,
            dtype=np.bool_,
        ),
    )


def _int32(values: Sequence[int] | NDArray[np.int_]) -> Int32Array:
    return np.array(values, dtype=np.int32)


def _padded(values: list[int], length: int) -> Int64Array:
    return _int64(values + [0] * (length - len(values)))


def _int64(values: Sequence[int]) -> Int64Array:
    return np.array(values, dtype=np.int64)
