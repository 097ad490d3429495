"""Steps of the core from plain values: batches, topologies, ranks, strategies."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from pyvllm_pp import reference
from pyvllm_pp.batch import Batch
from pyvllm_pp.plan import Partition, Plan, PlanConfig, Planner
from pyvllm_pp.tables import (
    DeviceTables,
    HostTables,
    StepTables,
    TableWriter,
    device_arena_bytes,
    device_tables,
)

MAX_REQS, MAX_TOKENS = 16, 2048


class Request(NamedTuple):
    num_scheduled: int
    num_computed: int = 0
    prefill_len: int = 0  # more than num_computed: the request is prefilling


def decode(num_computed: int = 9) -> Request:
    return Request(1, num_computed, num_computed)


def prompt(length: int) -> Request:
    return Request(length, 0, length)


class Topology(NamedTuple):
    pcp_size: int = 2
    dcp_size: int = 1
    partition: Partition = Partition.dual_chunk_swap

    def config(self, **changes: int | bool) -> PlanConfig:
        values = {
            "pcp_size": self.pcp_size,
            "dcp_size": self.dcp_size,
            "shard_decode_requests": self.dcp_size == 1,
            "max_num_reqs": MAX_REQS,
            "max_num_tokens": MAX_TOKENS,
        } | changes
        return PlanConfig(partition=self.partition, **values)


def int32(values: Sequence[int]) -> NDArray[np.int32]:
    return np.array(values, dtype=np.int32)


def slots(values: Sequence[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def bools(values: Sequence[int | bool]) -> NDArray[np.bool_]:
    return np.array(values, dtype=np.bool_)


def batch_of(requests: Sequence[Request], idx_mapping: Sequence[int] = ()) -> Batch:
    """The global batch; slots count down unless given, so that none is its row."""
    counts = int32([request.num_scheduled for request in requests])
    return Batch(
        num_scheduled_tokens=counts,
        is_prefilling=bools([r.num_computed < r.prefill_len for r in requests]),
        query_start_loc=np.append(np.int32(0), counts.cumsum(dtype=np.int32)),
        num_computed_tokens=int32([request.num_computed for request in requests]),
        prefill_len=int32([request.prefill_len for request in requests]),
        idx_mapping=slots(idx_mapping or range(len(requests), 0, -1)),
    )


def plan_of(planner: Planner, batch: Batch) -> Plan:
    return planner.plan(
        batch.num_scheduled_tokens, batch.is_prefilling, batch.num_computed_tokens
    )


def reference_plan(topology: Topology, batch: Batch) -> reference.Plan:
    return reference.plan(
        batch.num_scheduled_tokens,
        batch.is_prefilling,
        pcp_size=topology.pcp_size,
        dcp_size=topology.dcp_size,
        shard_decode_requests=topology.dcp_size == 1,
    )


def arena_for(config: PlanConfig) -> NDArray[np.uint8]:
    """8-byte aligned, holding no table's values."""
    words = np.full(-(-device_arena_bytes(config) // 8), -2, dtype=np.int64)
    return words.view(np.uint8)


class Rank:
    """One rank's planner and writer, as a runner has them."""

    def __init__(self, topology: Topology, rank: int = 0) -> None:
        self.config = topology.config()
        self.planner = Planner(self.config)
        self.writer = TableWriter(self.config, rank)
        self.arena = arena_for(self.config)

    def run(
        self, batch: Batch, *, tokens: int = 0, reqs: int = 0, reuse: bool = False
    ) -> StepTables:
        return self.writer.write(
            plan_of(self.planner, batch),
            batch,
            self.arena,
            padded_num_tokens=tokens,
            padded_num_reqs=reqs,
            reuse=reuse,
        )

    def device(self, step: StepTables) -> DeviceTables:
        return device_tables(self.arena, step.device_sizes)


def assert_same_arrays(
    ours: DeviceTables | HostTables, expected: DeviceTables | HostTables
) -> None:
    """Equal in field, dtype, length and every value."""
    assert ours._fields == expected._fields
    for name, array, other in zip(ours._fields, ours, expected, strict=True):
        assert array.dtype == other.dtype, name
        assert array.tolist() == other.tolist(), name


topologies = st.one_of(
    st.integers(1, 8).map(Topology),
    st.integers(2, 8).map(lambda size: Topology(size, size)),
    st.integers(2, 4).map(lambda size: Topology(size, 8)),
    st.integers(1, 8).map(lambda size: Topology(size, 1, Partition.balanced)),
)
lengths = st.one_of(st.integers(0, 20), st.integers(21, 120))
positions = st.integers(0, 300)
requests = st.one_of(
    st.builds(decode, st.integers(1, 300)),
    st.builds(prompt, lengths.filter(bool)),
    st.builds(Request, lengths, positions, positions),
)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Decodes, prompts, continued prompts, drafts and rows without tokens."""
    rows = draw(st.lists(requests, min_size=1, max_size=MAX_REQS))
    order = draw(st.permutations(range(MAX_REQS)))
    return batch_of(rows, order[: len(rows)])


class Step(NamedTuple):
    topology: Topology
    batch: Batch
    extra_tokens: int  # of graph padding; 0 for none
    extra_reqs: int

    def padded_num_tokens(self, made: reference.Plan) -> int:
        return self.extra_tokens and made.max_rank_tokens + self.extra_tokens

    def padded_num_reqs(self, made: reference.Plan, rank: int) -> int:
        num_rows = max(len(made.segments[rank]), 1)
        return self.extra_reqs and min(num_rows + self.extra_reqs, 2 * MAX_REQS)


steps = st.builds(Step, topologies, batches(), st.integers(0, 9), st.integers(0, 9))
