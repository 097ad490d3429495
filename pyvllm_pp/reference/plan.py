"""The plan, from lists of tokens."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pyvllm_pp.batch import BoolArray, Int32Array


class Segment(NamedTuple):
    """A contiguous run of one request's tokens on one rank."""

    req_idx: int
    token_start: int
    num_tokens: int
    local_start: int

    @property
    def tokens(self) -> range:
        """The run's tokens, in global batch order."""
        return range(self.token_start, self.token_start + self.num_tokens)


class Plan(NamedTuple):
    """The segments of all ranks for one step."""

    segments: tuple[tuple[Segment, ...], ...]  # [pcp_size][num_segments]
    is_replicated: tuple[bool, ...]  # [num_reqs] whole on every rank
    num_tokens: int

    @property
    def pcp_size(self) -> int:
        """Number of ranks."""
        return len(self.segments)

    def rank_tokens(self, rank: int) -> list[int]:
        """The rank's tokens in its local order, as global token numbers."""
        return [token for segment in self.segments[rank] for token in segment.tokens]

    @property
    def max_rank_tokens(self) -> int:
        """The largest rank's token count."""
        return max(len(self.rank_tokens(rank)) for rank in range(self.pcp_size))


class _Run(NamedTuple):
    is_prefilling: bool  # first, so that sorted runs have decodes first
    tokens: range
    req_idx: int


def plan(
    num_scheduled_tokens: Sequence[int] | Int32Array,
    is_prefilling: Sequence[bool] | BoolArray,
    *,
    pcp_size: int,
    dcp_size: int = 1,
    shard_decode_requests: bool = True,
) -> Plan:
    """The plan of the policy ``dual_chunk_swap``.

    A prompt is cut into ``2 * pcp_size`` chunks of equal length, the last ones shorter
    or empty; rank r takes the r-th from the front and the r-th from the back. A decode
    is whole: on the ranks in turn when sharded, else on every rank. Under DCP so is a
    prompt that leaves a chunk empty.

    Args:
        num_scheduled_tokens: ``[num_reqs]``
        is_prefilling: ``[num_reqs]``
        pcp_size: number of PCP ranks.
        dcp_size: number of DCP ranks.
        shard_decode_requests: whether a decode is on one rank alone.
    """
    runs: list[list[_Run]] = [[] for _ in range(pcp_size)]
    replicated: list[bool] = []
    num_tokens = num_decodes = 0
    for req_idx, count in enumerate(int(count) for count in num_scheduled_tokens):
        tokens = range(num_tokens, num_tokens + count)
        num_tokens += count
        is_prefill = bool(is_prefilling[req_idx])
        chunks = _chunks(tokens, 2 * pcp_size)
        is_whole = not is_prefill or (dcp_size > 1 and not all(chunks))
        is_owned = is_whole and shard_decode_requests and count > 0
        owners = [num_decodes % pcp_size] if is_owned else range(pcp_size)
        num_decodes += is_owned
        replicated.append(is_whole and not is_owned)
        for rank in owners:
            share = [tokens] if is_whole else [chunks[rank], chunks[-1 - rank]]
            runs[rank] += [_Run(is_prefill, run, req_idx) for run in share if run]
    return Plan(
        tuple(_in_local_order(rank_runs) for rank_runs in runs),
        tuple(replicated),
        num_tokens,
    )


def _chunks(tokens: range, num_chunks: int) -> list[range]:
    """Chunks of equal length; the last ones are shorter or empty."""
    length = -(-len(tokens) // num_chunks)
    return [tokens[i * length : (i + 1) * length] for i in range(num_chunks)]


def _in_local_order(runs: list[_Run]) -> tuple[Segment, ...]:
    """Decodes first, then prefills; each in the order of their tokens."""
    segments: list[Segment] = []
    local_start = 0
    for run in sorted(runs, key=lambda run: (run.is_prefilling, run.tokens.start)):
        segments.append(
            Segment(run.req_idx, run.tokens.start, len(run.tokens), local_start)
        )
        local_start += len(run.tokens)
    return tuple(segments)


class _CorePlan(Protocol):
    """What :func:`plan_of` reads of a plan of the core."""

    def segments(self, rank: int) -> NDArray[np.int32]: ...
    def is_replicated(self, req_idx: int) -> bool: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def num_reqs(self) -> int: ...
    @property
    def pcp_size(self) -> int: ...


def plan_of(made: _CorePlan) -> Plan:
    """A plan of the core, of whatever policy, as a value."""
    return Plan(
        tuple(
            tuple(Segment(*map(int, row)) for row in made.segments(rank))
            for rank in range(made.pcp_size)
        ),
        tuple(made.is_replicated(req_idx) for req_idx in range(made.num_reqs)),
        made.num_tokens,
    )
