"""The rows that sampling reads: packed by their owners, equal to a dense restore."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyvllm_pp import reference
from pyvllm_pp.batch import Batch, Int64Array
from pyvllm_pp.plan import Partition, PlanConfig, Planner
from pyvllm_pp.tables import (
    DeviceTables,
    StepTables,
    TableWriter,
    device_arena_bytes,
    device_tables,
)

MAX_REQS, MAX_TOKENS = 24, 2048


class Topology(NamedTuple):
    pcp_size: int
    dcp_size: int


def batch_of(requests: list[tuple[int, bool]]) -> Batch:
    counts = np.array([count for count, _ in requests], dtype=np.int32)
    return Batch(
        num_scheduled_tokens=counts,
        is_prefilling=np.array([prefill for _, prefill in requests], dtype=np.bool_),
        query_start_loc=np.append(np.int32(0), counts.cumsum(dtype=np.int32)),
        num_computed_tokens=np.zeros_like(counts),
        prefill_len=np.zeros_like(counts),
        idx_mapping=np.arange(len(counts), dtype=np.int64),
    )


class Rank(NamedTuple):
    tables: StepTables
    device: DeviceTables

    def packed(self, rank: int, rows: Int64Array) -> Int64Array:
        """The rows that this rank packs, of its local ones."""
        count = self.tables.num_selected_rows[rank]
        return rows[self.device.selected_local_idx[:count]]


def all_ranks(topology: Topology, batch: Batch, padded_num_tokens: int) -> list[Rank]:
    config = PlanConfig(
        pcp_size=topology.pcp_size,
        dcp_size=topology.dcp_size,
        shard_decode_requests=topology.dcp_size == 1,
        partition=Partition.dual_chunk_swap,
        max_num_reqs=MAX_REQS,
        max_num_tokens=MAX_TOKENS,
    )
    plan = Planner(config).plan(batch.num_scheduled_tokens, batch.is_prefilling)
    padded = padded_num_tokens and padded_num_tokens + plan.max_rank_tokens
    ranks = []
    for rank in range(topology.pcp_size):
        arena = np.full(-(-device_arena_bytes(config) // 8), -1, dtype=np.int64)
        bytes_ = arena.view(np.uint8)
        tables = TableWriter(config, rank).write(
            plan, batch, bytes_, padded_num_tokens=padded
        )
        ranks.append(Rank(tables, device_tables(bytes_, tables.device_sizes)))
    return ranks


topologies = st.tuples(st.integers(1, 8), st.booleans()).map(
    lambda drawn: Topology(drawn[0], drawn[0] if drawn[1] else 1)
)
requests_of_tokens = st.lists(
    st.tuples(st.sampled_from([0, 1, 1, 2, 3, 5, 8, 17, 40, 80]), st.booleans()),
    min_size=1,
    max_size=MAX_REQS,
).filter(lambda requests: any(count for count, _ in requests))


@given(topologies, requests_of_tokens, st.integers(0, 9))
def test_selected_rows_are_the_sampled_ones_of_a_dense_restore(
    topology: Topology, requests: list[tuple[int, bool]], padding: int
) -> None:
    batch = batch_of(requests)
    ranks = all_ranks(topology, batch, padding)
    first = ranks[0]
    length = first.tables.padded_num_tokens
    hidden = np.arange(batch.query_start_loc[-1], dtype=np.int64) * 7 + 1
    gathered = hidden[first.device.padded_gather_idx]
    dense = gathered[first.device.hidden_restore_idx]

    packed = np.concatenate(
        [
            step.packed(rank, gathered[rank * length : (rank + 1) * length])
            for rank, step in enumerate(ranks)
        ]
    )
    logits_indices = batch.query_start_loc[1:] - 1
    for step in ranks:
        assert step.tables.num_selected_rows == first.tables.num_selected_rows
        selected = packed[step.device.selected_restore_idx]
        assert np.array_equal(selected, dense[logits_indices])
    assert len(packed) == np.count_nonzero(batch.num_scheduled_tokens)
    # Never more on any rank than a dense gather takes from it.
    assert max(first.tables.num_selected_rows) <= length


@given(topologies, requests_of_tokens)
def test_selected_rows_equal_the_reference(
    topology: Topology, requests: list[tuple[int, bool]]
) -> None:
    batch = batch_of(requests)
    made = reference.plan(
        batch.num_scheduled_tokens,
        batch.is_prefilling,
        pcp_size=topology.pcp_size,
        dcp_size=topology.dcp_size,
        shard_decode_requests=topology.dcp_size == 1,
    )
    selected = reference.selected_tokens(made, batch)
    for rank, step in enumerate(all_ranks(topology, batch, 0)):
        expected = reference.tables(made, batch, rank, max_num_reqs=MAX_REQS).device
        ours = step.device
        assert ours.selected_local_idx.tolist() == expected.selected_local_idx.tolist()
        assert np.array_equal(ours.selected_restore_idx, expected.selected_restore_idx)
        assert step.tables.num_selected_rows == tuple(map(len, selected))


@pytest.mark.parametrize(
    ("pcp_size", "num_decodes", "counts"),
    [(2, 4, (2, 2)), (2, 5, (3, 2)), (4, 1, (1, 0, 0, 0))],
)
def test_decodes_alone_select_every_row(
    pcp_size: int, num_decodes: int, counts: tuple[int, ...]
) -> None:
    batch = batch_of([(1, False)] * num_decodes)
    tables = all_ranks(Topology(pcp_size, 1), batch, 0)[0].tables
    assert tables.num_selected_rows == counts
    assert max(counts) == tables.padded_num_tokens
