"""Tables of every rank: equal to the reference, gather and restore inverse."""

import numpy as np
import pytest
from hypothesis import given

from pyvllm_pp import reference
from pyvllm_pp.batch import Batch
from pyvllm_pp.reference import Segment
from pyvllm_pp.tables import ArenaRing
from tests.python.steps import (
    MAX_REQS,
    Rank,
    Request,
    Step,
    Topology,
    assert_same_arrays,
    batch_of,
    batches,
    decode,
    plan_of,
    prompt,
    steps,
    topologies,
)


@given(steps)
def test_every_table_of_every_rank_equals_the_reference(step: Step) -> None:
    for index in range(step.topology.pcp_size):
        rank = Rank(step.topology, index)
        made = reference.plan_of(plan_of(rank.planner, step.batch))
        padded = {
            "padded_num_tokens": step.padded_num_tokens(made),
            "padded_num_reqs": step.padded_num_reqs(made, index),
        }
        ours = rank.run(
            step.batch,
            tokens=padded["padded_num_tokens"],
            reqs=padded["padded_num_reqs"],
        )
        expected = reference.tables(
            made, step.batch, index, max_num_reqs=MAX_REQS, **padded
        )
        assert_same_arrays(rank.device(ours), expected.device)
        assert_same_arrays(ours.host, expected.host)
        assert ours.num_local_tokens == len(made.rank_tokens(index))


@given(steps)
def test_gather_and_restore_are_inverse_on_values(step: Step) -> None:
    rank = Rank(step.topology)
    made = reference.plan_of(plan_of(rank.planner, step.batch))
    device = rank.device(rank.run(step.batch, tokens=step.padded_num_tokens(made)))
    hidden = np.arange(made.num_tokens) * 7 + 3
    gathered = hidden[device.padded_gather_idx] if made.num_tokens else hidden
    assert np.array_equal(gathered[device.hidden_restore_idx], hidden)
    written = device.padded_gather_idx[device.gathered_kv_write_mask]
    assert sorted(written.tolist()) == list(range(made.num_tokens))


@given(topologies, batches(), batches())
def test_memory_of_another_step_does_not_show(
    topology: Topology, first: Batch, second: Batch
) -> None:
    """c11: a long step, then a short one, in the same arena."""
    used, fresh = Rank(topology), Rank(topology)
    used.run(first)
    ours, expected = used.run(second), fresh.run(second)
    assert_same_arrays(used.device(ours), fresh.device(expected))
    assert_same_arrays(ours.host, expected.host)


@given(topologies, batches(), batches())
def test_reused_tables_are_this_steps(
    topology: Topology, first: Batch, second: Batch
) -> None:
    used, fresh = Rank(topology), Rank(topology)
    used.run(first)
    for batch in (second, first, first):
        ours, expected = used.run(batch, reuse=True), fresh.run(batch)
        assert_same_arrays(used.device(ours), fresh.device(expected))
        assert_same_arrays(ours.host, expected.host)


def test_tables_of_the_same_step_are_not_written_again() -> None:
    rank = Rank(Topology(2))
    assert rank.run(batch_of([decode(9), prompt(7)]), reuse=True).is_new
    later = batch_of([decode(10), Request(7, 8, 99)])
    assert not rank.run(later, reuse=True).is_new
    assert rank.run(later, tokens=9, reuse=True).is_new
    swapped = batch_of([decode(10), Request(7, 8, 99)], idx_mapping=[5, 6])
    assert rank.run(swapped, tokens=9, reuse=True).is_new


def test_a_short_idx_mapping_is_refused_where_tables_are_reused() -> None:
    rank = Rank(Topology(2))
    batch = batch_of([decode(), decode(), decode()])
    rank.run(batch, reuse=True)
    with pytest.raises(ValueError, match="idx_mapping has 1 entries, expected 3"):
        rank.run(batch._replace(idx_mapping=batch.idx_mapping[:1]), reuse=True)


def test_host_tables_are_safe_to_keep() -> None:
    rank = Rank(Topology(2))
    kept = rank.run(batch_of([prompt(7)])).host
    before = [array.tolist() for array in kept]
    rank.run(batch_of([decode()] * 9))
    del rank
    assert [array.tolist() for array in kept] == before


def test_c7_rows_are_keyed_by_global_request() -> None:
    batch = batch_of([Request(4, 8, 20), decode(), prompt(6)], [30, 10, 20])
    host = Rank(Topology(2)).run(batch).host
    assert host.req_idx.tolist() == [1, 0, 0, 2]
    assert host.idx_mapping.tolist() == [10, 30, 30, 20]


def test_c10_offsets_are_right_past_an_empty_rank_in_the_middle() -> None:
    """No policy leaves a middle rank empty; a plan of any other may."""
    batch = batch_of([prompt(3), prompt(2)])
    made = reference.Plan(
        ((Segment(0, 0, 3, 0),), (), (Segment(1, 3, 2, 0),)), (False, False), 5
    )
    device = reference.tables(made, batch, 2, max_num_reqs=2).device
    assert device.hidden_restore_idx.tolist() == [0, 1, 2, 6, 7]
    assert device.padded_gather_idx.tolist() == [0, 1, 2, 0, 0, 0, 3, 4, 0]


def test_c10_packed_rows_are_right_past_a_rank_without_any() -> None:
    """PCP3: last tokens of two prompts, on the first and on the last rank."""
    rank = Rank(Topology(3))
    step = rank.run(batch_of([prompt(60), prompt(8)]))
    assert step.num_selected_rows == (1, 0, 1)
    assert rank.device(step).selected_restore_idx.tolist() == [0, 1]


def test_c11_padding_holds_no_old_rows() -> None:
    rank = Rank(Topology(2))
    rank.run(batch_of([prompt(200), prompt(300), decode()]))
    step = rank.run(batch_of([decode()]), tokens=4, reqs=4)
    device = rank.device(step)
    assert device.gathered_kv_write_mask.tolist() == [True] + [False] * 7
    assert device.padded_gather_idx.tolist() == [0] * 8
    assert step.host.seq_lens_upper_bound.tolist() == [10, 0, 0, 0]
    assert step.host.is_prefilling.tolist() == [False] * 4


@pytest.mark.parametrize("pcp_size", [2, 4, 8])
def test_c2_c5_an_idle_rank_has_one_row_of_no_tokens(pcp_size: int) -> None:
    for batch in (batch_of([prompt(1)]), batch_of([decode()])):
        step = Rank(Topology(pcp_size), pcp_size - 1).run(batch)
        assert (step.num_local_reqs, step.num_local_tokens) == (1, 0)
        assert step.padded_num_tokens == 1
        assert step.host.num_scheduled_tokens.tolist() == [0]
        assert step.host.cu_num_logits.tolist() == [0, 0]


def test_the_ring_hands_out_its_own_arrays_in_turn() -> None:
    arenas = [np.zeros(16, dtype=np.uint8) for _ in range(3)]
    ring = ArenaRing(arenas)
    handed = [ring.next() for _ in range(6)]
    assert ring.depth == 3
    assert [index for index, _ in handed] == [1, 2, 0, 1, 2, 0]
    assert all(arena is arenas[index] for index, arena in handed)
