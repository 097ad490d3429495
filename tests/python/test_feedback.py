"""Feedback of the core: the cases, the mask and the digest against the reference."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyvllm_pp import reference
from pyvllm_pp.batch import Batch, Int32Array
from pyvllm_pp.errors import FeedbackOrderError
from pyvllm_pp.feedback import (
    Consumed,
    EntryState,
    FeedbackRing,
    need_sampled_mask,
)
from tests.python.steps import (
    Request,
    batch_of,
    batches,
    bools,
    decode,
    int32,
    prompt,
    slots,
)


def consume(ring: FeedbackRing) -> tuple[Consumed, list[int]]:
    consumed, idx_mapping = ring.consume()
    return consumed, idx_mapping.tolist()


def post(ring: FeedbackRing, requests: list[int]) -> None:
    """A posted step whose tokens have arrived."""
    assert ring.post(slots(requests), bools([1] * len(requests)))
    ring.mark_ready(ring.step)


def test_an_entry_goes_empty_posted_ready_empty() -> None:
    ring = FeedbackRing(depth=1, max_num_reqs=4)
    assert ring.begin_step() == 0
    assert ring.state(0) is EntryState.empty
    assert ring.post(slots([2, 0]), bools([1, 1]))
    assert ring.state(0) is EntryState.posted
    ring.mark_ready(0)
    assert ring.state(0) is EntryState.ready
    ring.begin_step()
    assert ring.due_num_reqs == 2
    assert consume(ring) == (Consumed.all, [2, 0])
    assert ring.state(0) is EntryState.empty


def test_c7_the_mapping_is_of_global_requests() -> None:
    ring = FeedbackRing(depth=2, max_num_reqs=8)
    ring.begin_step()
    assert ring.post(slots([6, 1, 3]), bools([1, 0, 1]))
    ring.mark_ready(0)
    ring.begin_step()
    ring.begin_step()
    assert consume(ring) == (Consumed.filtered, [6, -1, 3])


def test_c13_three_stages_consume_three_steps_later() -> None:
    ring = FeedbackRing(depth=3, max_num_reqs=4)
    for step in range(12):
        ring.begin_step()
        due = (Consumed.all, [(step - 3) % 4]) if step >= 3 else (Consumed.nothing, [])
        assert consume(ring) == due
        post(ring, [step % 4])


def test_c14_nobody_needs_a_token_after_the_only_one() -> None:
    alone = batch_of([prompt(4), prompt(9)])
    assert need_sampled_mask(alone, int32([5, 10])) is None
    mixed = need_sampled_mask(batch_of([prompt(4), decode()]), int32([5, 20]))
    assert mixed is not None
    assert mixed.tolist() == [False, True]


def test_c15_a_reused_slot_keeps_its_own_token() -> None:
    ring = FeedbackRing(depth=2, max_num_reqs=2)
    ring.begin_step()
    post(ring, [1])
    ring.free_slot(1)
    ring.begin_step()
    post(ring, [1])
    ring.begin_step()
    assert consume(ring) == (Consumed.none, [-1])
    ring.begin_step()
    assert consume(ring) == (Consumed.all, [1])


def test_c16_the_late_token_of_an_aborted_request_is_dropped() -> None:
    ring = FeedbackRing(depth=2, max_num_reqs=3)
    ring.begin_step()
    assert ring.post(slots([0, 2]), bools([1, 1]))
    ring.begin_step()
    ring.free_slot(2)
    ring.mark_ready(0)
    ring.begin_step()
    assert consume(ring) == (Consumed.filtered, [0, -1])


def test_an_order_fault_names_step_and_slots() -> None:
    ring = FeedbackRing(depth=1, max_num_reqs=8)
    ring.begin_step()
    ring.post(slots([4, 6]), bools([1, 1]))
    ring.begin_step()
    with pytest.raises(FeedbackOrderError, match=r"step 0 \(slots 4, 6\) is due at"):
        ring.consume()
    with pytest.raises(FeedbackOrderError, match=r"step 0 is still posted \(slots 4"):
        ring.begin_step()
    assert issubclass(FeedbackOrderError, RuntimeError)
    assert not issubclass(FeedbackOrderError, ValueError)


def test_a_prompt_ends_with_its_last_chunk_alone() -> None:
    rows = [decode(), Request(4, 3, 7), Request(4, 3, 8), Request(0, 3, 8)]
    mask = need_sampled_mask(batch_of(rows), int32([20] * 4))
    assert mask is not None
    assert mask.tolist() == [True, True, False, False]


@given(batches(), st.data())
def test_the_mask_equals_the_reference(batch: Batch, data: st.DataObject) -> None:
    num_reqs = len(batch.prefill_len)
    extra = data.draw(st.lists(st.integers(0, 3), min_size=num_reqs, max_size=num_reqs))
    given_limit: Int32Array | None = batch.prefill_len + int32(extra)
    if data.draw(st.booleans()):
        given_limit = None
    ours = need_sampled_mask(batch, given_limit)
    expected = reference.need_sampled_mask(batch, given_limit)
    assert (ours is None) == (expected is None)
    assert ours is None or np.array_equal(ours, expected)


@given(batches(), st.lists(st.integers(0, 15), max_size=20))
def test_the_digest_equals_the_reference(batch: Batch, freed: list[int]) -> None:
    ring = FeedbackRing(depth=2, max_num_reqs=16)
    model = reference.FeedbackRing(depth=2, max_num_reqs=16)
    for slot in freed:
        ring.free_slot(slot)
        model.free_slot(slot)
    digest = ring.digest(batch.idx_mapping, batch.num_scheduled_tokens)
    assert digest == model.digest(
        batch.idx_mapping.tolist(), batch.num_scheduled_tokens.tolist()
    )
    ring.free_slot(int(batch.idx_mapping[0]))
    assert ring.digest(batch.idx_mapping, batch.num_scheduled_tokens) != digest
