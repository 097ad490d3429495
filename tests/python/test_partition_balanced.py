"""The policy ``balanced`` through the Python face: its promises, and its tables."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyvllm_pp import reference
from pyvllm_pp.batch import Batch
from pyvllm_pp.plan import (
    Partition,
    Plan,
    PlanConfig,
    Planner,
    largest_over_equal,
    partition_names,
    rank_loads,
)
from pyvllm_pp.tables import TableWriter, device_arena_bytes, device_tables

MAX_NUM_REQS, MAX_NUM_TOKENS = 64, 1 << 16


def config(
    pcp_size: int,
    partition: Partition = Partition.balanced,
    *,
    shard_decode_requests: bool = True,
) -> PlanConfig:
    return PlanConfig(
        pcp_size=pcp_size,
        dcp_size=1,
        shard_decode_requests=shard_decode_requests,
        partition=partition,
        max_num_reqs=MAX_NUM_REQS,
        max_num_tokens=MAX_NUM_TOKENS,
    )


def batch_of(requests: list[tuple[int, int, bool]]) -> Batch:
    """A batch of ``(num_scheduled, num_computed, is_prefilling)``."""
    scheduled = np.array([r[0] for r in requests], dtype=np.int32)
    computed = np.array([r[1] for r in requests], dtype=np.int32)
    prefilling = np.array([r[2] for r in requests], dtype=np.bool_)
    return Batch(
        num_scheduled_tokens=scheduled,
        is_prefilling=prefilling,
        query_start_loc=np.concatenate([[0], np.cumsum(scheduled)]).astype(np.int32),
        num_computed_tokens=computed,
        prefill_len=computed + np.where(prefilling, scheduled, 0).astype(np.int32),
        idx_mapping=np.arange(len(requests), dtype=np.int64)[::-1].copy(),
    )


def plan_balanced(planner: Planner, batch: Batch) -> Plan:
    return planner.plan(
        batch.num_scheduled_tokens, batch.is_prefilling, batch.num_computed_tokens
    )


CONTEXTS = st.one_of(st.just(0), st.integers(1, 20_000))
DECODES = st.tuples(st.just(1), CONTEXTS, st.just(False))
DRAFTS = st.tuples(st.integers(0, 5), CONTEXTS, st.just(False))
TINY = st.tuples(st.integers(0, 40), CONTEXTS, st.just(True))
PROMPTS = st.tuples(st.integers(1, 1000), CONTEXTS, st.just(True))
LONG = st.tuples(st.integers(1024, 6000), CONTEXTS, st.just(True))
BATCHES = st.one_of(
    st.lists(st.one_of(DECODES, DRAFTS, TINY, PROMPTS, LONG), min_size=1, max_size=10),
    st.lists(LONG, min_size=1, max_size=6),
    st.lists(st.one_of(DECODES, TINY), min_size=1, max_size=30),
).map(batch_of)
# The reference of the tables looks each token up in a list: quadratic.
SMALL_BATCHES = st.lists(
    st.one_of(
        DECODES, DRAFTS, TINY, st.tuples(st.integers(1, 200), CONTEXTS, st.just(True))
    ),
    min_size=1,
    max_size=8,
).map(batch_of)
PCP_SIZES = st.integers(1, 8)


@given(BATCHES, PCP_SIZES, st.booleans())
@example(batch_of([(1, 0, True)]), 8, True)
@example(batch_of([(3, 641, True), (12, 0, True)]), 8, True)
@settings(max_examples=300, deadline=None)
def test_promises(batch: Batch, pcp_size: int, shard: bool) -> None:
    planner = Planner(config(pcp_size, shard_decode_requests=shard))
    arrays = (batch.num_scheduled_tokens, batch.is_prefilling)
    before = planner.max_rank_tokens(*arrays)
    made = plan_balanced(planner, batch)
    assert made.max_rank_tokens == before == planner.max_rank_tokens(*arrays)
    assert not reference.broken_promises(
        reference.plan_of(made),
        *arrays,
        batch.num_computed_tokens,
        shard_decode_requests=shard,
    )


@given(SMALL_BATCHES, st.integers(1, 4), st.booleans(), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_tables_equal_the_reference(
    batch: Batch, pcp_size: int, shard: bool, padding: int
) -> None:
    """Rules 2 to 4 on the plan: the reference reads restore and mask off its tokens."""
    the_config = config(pcp_size, shard_decode_requests=shard)
    made = plan_balanced(Planner(the_config), batch)
    plan = reference.plan_of(made)
    padded = made.max_rank_tokens + padding
    arena = np.zeros(device_arena_bytes(the_config), dtype=np.uint8)
    restore = None
    for rank in range(pcp_size):
        written = TableWriter(the_config, rank).write(
            made, batch, arena, padded_num_tokens=padded
        )
        expected = reference.tables(
            plan,
            batch,
            rank,
            max_num_reqs=MAX_NUM_REQS,
            padded_num_tokens=padded,
        )
        device = device_tables(arena, written.device_sizes)
        for ours, truth in (
            *zip(device, expected.device, strict=True),
            *zip(written.host, expected.host, strict=True),
        ):
            np.testing.assert_array_equal(ours, truth)
        # Rule 4, and the same on every rank.
        gathered = device.padded_gather_idx
        tokens = np.arange(made.num_tokens)
        np.testing.assert_array_equal(gathered[device.hidden_restore_idx], tokens)
        restore = device.hidden_restore_idx if restore is None else restore
        np.testing.assert_array_equal(device.hidden_restore_idx, restore)
        assert device.gathered_kv_write_mask.sum() == made.num_tokens


@given(BATCHES, PCP_SIZES)
@settings(max_examples=50, deadline=None)
def test_rank_loads_equal_the_sum_over_tokens(batch: Batch, pcp_size: int) -> None:
    made = plan_balanced(Planner(config(pcp_size)), batch)
    loads = rank_loads(made, batch.num_scheduled_tokens, batch.num_computed_tokens)
    plan = reference.plan_of(made)
    assert [load.attention_work for load in loads] == reference.attention_work(
        plan, batch.num_scheduled_tokens, batch.num_computed_tokens
    )
    for rank, load in enumerate(loads):
        assert load.num_tokens == made.num_rank_tokens(rank)
        assert load.num_segments == len(plan.segments[rank])


@pytest.mark.parametrize("pcp_size", [2, 4, 8])
@pytest.mark.parametrize("length", [17, 100])
def test_it_mends_what_the_default_leaves_uneven(length: int, pcp_size: int) -> None:
    batch = batch_of([(length, 0, True)] * 64)
    loads = {
        policy: rank_loads(
            plan_balanced(Planner(config(pcp_size, policy)), batch),
            batch.num_scheduled_tokens,
            batch.num_computed_tokens,
        )
        for policy in Partition
    }
    tokens = {p: largest_over_equal([x.num_tokens for x in loads[p]]) for p in loads}
    assert tokens[Partition.balanced] == 1
    assert tokens[Partition.dual_chunk_swap] >= 1
    assert all(x.num_segments == 64 // pcp_size for x in loads[Partition.balanced])


def test_the_judge_sees_broken_plans() -> None:
    """Each promise, broken by hand, is named."""
    segment = reference.Segment
    arrays = ([4, 1], [True, False], [0, 9])

    def judge(*ranks: tuple[reference.Segment, ...]) -> str:
        made = reference.Plan(ranks, (False, False), 5)
        return "\n".join(reference.broken_promises(made, *arrays))

    good = (segment(1, 4, 1, 0), segment(0, 0, 1, 1)), (segment(0, 1, 3, 0),)
    assert judge(*good) == ""
    assert "has the tokens" in judge(good[0], (segment(0, 1, 2, 0),))
    assert "has the tokens" in judge(good[0], (segment(0, 0, 3, 0),))
    assert "rank tokens" in judge(good[0][:1], (segment(0, 0, 4, 0),))
    many = tuple(segment(0, i, 1, i) for i in range(3))
    assert "more than two" in judge((*many,), (segment(0, 3, 1, 0), good[0][0]))
    long = ([1024], [True], [0])
    halves = (segment(0, 0, 512, 0),), (segment(0, 512, 512, 0),)
    made = reference.Plan(halves, (False,), 1024)
    assert "attention work" in reference.broken_promises(made, *long)[0]


def test_largest_over_equal() -> None:
    assert largest_over_equal([3, 1]) == 1.5
    assert largest_over_equal([0, 0]) == 1


def test_the_policies_by_name() -> None:
    assert partition_names() == ["dual_chunk_swap", "balanced"]


def test_wrong_contexts_are_refused() -> None:
    planner = Planner(config(2))
    arrays = (np.array([3], np.int32), np.array([True]))
    with pytest.raises(TypeError, match="num_computed_tokens is int64, expected int32"):
        planner.plan(*arrays, np.array([3]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"num_computed_tokens\[0\] is -1"):
        planner.plan(*arrays, np.array([-1], np.int32))
    with pytest.raises(ValueError, match="has 2 entries, expected 1"):
        planner.plan(*arrays, np.array([1, 1], np.int32))
    with pytest.raises(ValueError, match="balanced with dcp_size 2: expected dcp_size"):
        Planner(
            PlanConfig(
                pcp_size=2,
                dcp_size=2,
                shard_decode_requests=False,
                partition=Partition.balanced,
                max_num_reqs=1,
                max_num_tokens=1,
            )
        )
