"""Plans of the core: equal to the reference, and the rules of every policy."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given

from pyvllm_pp import reference
from pyvllm_pp.batch import Batch
from pyvllm_pp.plan import Partition, Planner, partition_names
from tests.python.steps import (
    MAX_REQS,
    Request,
    Topology,
    batch_of,
    batches,
    bools,
    decode,
    int32,
    plan_of,
    prompt,
    reference_plan,
    topologies,
)


def core_plan(topology: Topology, batch: Batch) -> reference.Plan:
    return reference.plan_of(plan_of(Planner(topology.config()), batch))


@given(topologies.filter(lambda t: t.partition is Partition.dual_chunk_swap), batches())
def test_dual_chunk_swap_equals_the_reference(topology: Topology, batch: Batch) -> None:
    ours = core_plan(topology, batch)
    expected = reference_plan(topology, batch)
    assert ours.segments == expected.segments
    assert ours.num_tokens == expected.num_tokens
    for row in np.flatnonzero(batch.num_scheduled_tokens):
        assert ours.is_replicated[row] == expected.is_replicated[row]


@given(topologies, batches())
def test_each_token_is_on_one_rank_or_on_all(topology: Topology, batch: Batch) -> None:
    made = core_plan(topology, batch)
    on = Counter(t for rank in range(made.pcp_size) for t in made.rank_tokens(rank))
    for row, count in enumerate(batch.num_scheduled_tokens):
        start = int(batch.query_start_loc[row])
        expected = made.pcp_size if made.is_replicated[row] else 1
        assert all(on[token] == expected for token in range(start, start + int(count)))
    assert len(on) == made.num_tokens == batch.num_scheduled_tokens.sum()


@given(topologies, batches())
def test_rows_are_decodes_first_in_token_order(
    topology: Topology, batch: Batch
) -> None:
    for rows in core_plan(topology, batch).segments:
        keys = [(bool(batch.is_prefilling[r.req_idx]), r.token_start) for r in rows]
        assert keys == sorted(keys)


@given(topologies, batches())
def test_counts_are_those_of_the_segments(topology: Topology, batch: Batch) -> None:
    planner = Planner(topology.config())
    count = planner.max_rank_tokens(batch.num_scheduled_tokens, batch.is_prefilling)
    made = plan_of(planner, batch)
    counts = [int(made.segments(rank)[:, 2].sum()) for rank in range(topology.pcp_size)]
    assert counts == [made.num_rank_tokens(rank) for rank in range(topology.pcp_size)]
    assert count == made.max_rank_tokens == max(counts)
    assert made.num_reqs == len(batch.num_scheduled_tokens)
    assert made.has_prefill == batch.is_prefilling.any()


@given(topologies, batches(), batches())
def test_a_plan_does_not_depend_on_the_one_before(
    topology: Topology, first: Batch, second: Batch
) -> None:
    planner = Planner(topology.config())
    plan_of(planner, first)
    assert reference.plan_of(plan_of(planner, second)) == core_plan(topology, second)


def test_c1_two_token_prompt() -> None:
    assert core_plan(Topology(2), batch_of([prompt(2)])).rank_tokens(1) == [1]
    assert core_plan(Topology(2, 2), batch_of([prompt(2)])).rank_tokens(1) == [0, 1]


@pytest.mark.parametrize("pcp_size", [2, 4, 8])
def test_c2_one_token_prompt_is_on_rank_0(pcp_size: int) -> None:
    made = core_plan(Topology(pcp_size), batch_of([prompt(1)]))
    idle = [[]] * (pcp_size - 1)
    assert [made.rank_tokens(rank) for rank in range(pcp_size)] == [[0], *idle]


@pytest.mark.parametrize(("pcp_size", "length"), [(2, 6), (2, 9), (4, 10), (8, 18)])
def test_c3_every_token_once(pcp_size: int, length: int) -> None:
    made = core_plan(Topology(pcp_size), batch_of([prompt(length)]))
    tokens = [token for rank in range(pcp_size) for token in made.rank_tokens(rank)]
    assert sorted(tokens) == list(range(length))


def test_c4_decode_owners_alternate_over_decodes_alone() -> None:
    rows = [decode(), prompt(7), Request(0, 5, 9), decode(), decode()]
    made = core_plan(Topology(2), batch_of(rows))
    assert [s.req_idx for s in made.segments[0]] == [0, 4, 1, 1]
    assert [s.req_idx for s in made.segments[1]] == [3, 1, 1]


def test_c5_one_decode_leaves_three_ranks_idle() -> None:
    made = core_plan(Topology(4), batch_of([decode()]))
    assert [len(rows) for rows in made.segments] == [1, 0, 0, 0]
    assert made.max_rank_tokens == 1


@pytest.mark.parametrize("length", [5, 6, 7, 9, 607])
def test_c8_a_length_not_divisible_by_four_keeps_its_tokens(length: int) -> None:
    made = core_plan(Topology(2), batch_of([prompt(length)]))
    assert sum(len(made.rank_tokens(rank)) for rank in range(2)) == length


def test_the_revision_tells_plans_apart() -> None:
    planner = Planner(Topology(2).config())
    first = planner.plan(int32([1, 7]), bools([0, 1])).revision
    assert first > 0
    assert planner.plan(int32([1, 7]), bools([0, 1])).revision == first
    assert planner.plan(int32([1, 8]), bools([0, 1])).revision > first


def test_a_failed_call_leaves_the_last_plan() -> None:
    planner = Planner(Topology(2).config())
    made = planner.plan(int32([1, 7]), bools([0, 1]))
    before = (made.revision, made.segments(1).tolist())
    with pytest.raises(ValueError, match="expected 0 or more"):
        planner.plan(int32([1, -7]), bools([0, 1]))
    assert (made.revision, made.segments(1).tolist()) == before


def test_segments_are_a_copy() -> None:
    made = Planner(Topology(2).config()).plan(int32([7]), bools([1]))
    made.segments(0)[:] = 99
    assert made.segments(0).tolist() == [[0, 0, 2, 0], [0, 6, 1, 2]]


def test_a_plan_keeps_its_planner_alive() -> None:
    made = Planner(Topology(2).config()).plan(int32([1] * MAX_REQS), bools([0] * 16))
    assert made.num_rank_tokens(1) == MAX_REQS // 2


def test_partitions_have_the_names_of_the_setting() -> None:
    assert partition_names() == ["dual_chunk_swap", "balanced"]
