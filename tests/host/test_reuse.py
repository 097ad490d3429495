"""Reused tables are never stale: a manager that saw other steps equals a new one."""

from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.config import CUDAGraphMode

from tests.host.batches import Descriptor, Request, Topology, global_batch
from tests.host.parity import NO_GRAPH, make_both, same

TABLES = ("_hidden_restore_idx", "_padded_gather_idx", "_gathered_kv_write_mask")


class Step(NamedTuple):
    """A batch as the reuse sees it."""

    requests: tuple[Request, ...]
    slots: tuple[int, ...]
    padding: int = 0  # rows beside the largest rank's, under a piecewise graph


def batch_of(step: Step) -> Any:
    total = sum(request.num_scheduled for request in step.requests)
    batch = global_batch(
        np.random.default_rng(0), list(step.requests), total + step.padding
    )
    batch.idx_mapping_np = np.array(step.slots, dtype=np.int64)
    batch.idx_mapping = torch.from_numpy(batch.idx_mapping_np.copy())
    batch.req_ids = [f"request-{slot}" for slot in step.slots]
    return batch


def run(manager: Any, step: Step) -> dict[str, Any]:
    """The local batch and the tables of a step, copied: buffers are written again."""
    batch = batch_of(step)
    descriptor = NO_GRAPH
    if step.padding:
        padded = sum(r.num_scheduled for r in step.requests) + step.padding
        descriptor = Descriptor(CUDAGraphMode.PIECEWISE, padded, None)
    local = manager.partition_batch(batch, descriptor)
    made = {field.name: getattr(local, field.name) for field in fields(local)}
    made |= {name: getattr(manager, name) for name in TABLES}
    return {
        name: value.clone() if isinstance(value, torch.Tensor) else value
        for name, value in made.items()
    }


def assert_equal(seen: dict[str, Any], fresh: dict[str, Any]) -> None:
    for name, value in fresh.items():
        assert same(value, seen[name]), (name, value, seen[name])


# One thing of the last step that is different in the next.
def advance(step: Step, _: int) -> Step:
    requests = [r._replace(num_computed=r.num_computed + 1) for r in step.requests]
    return step._replace(requests=tuple(requests))


def reorder(step: Step, by: int) -> Step:
    k = by % len(step.slots)
    return step._replace(
        requests=step.requests[k:] + step.requests[:k],
        slots=step.slots[k:] + step.slots[:k],
    )


def other_slot(step: Step, by: int) -> Step:
    row = by % len(step.slots)
    slots = list(step.slots)
    slots[row] = next(slot for slot in range(64) if slot not in slots)
    return step._replace(slots=tuple(slots))


def other_length(step: Step, by: int) -> Step:
    row = by % len(step.requests)
    requests = list(step.requests)
    request = requests[row]
    requests[row] = request._replace(num_scheduled=request.num_scheduled + 1 + by % 3)
    return step._replace(requests=tuple(requests))


def other_flag(step: Step, by: int) -> Step:
    row = by % len(step.requests)
    requests = list(step.requests)
    request = requests[row]
    prefill_len = request.num_computed + (0 if request.is_prefilling else 40)
    requests[row] = request._replace(prefill_len=prefill_len)
    return step._replace(requests=tuple(requests))


def other_padding(step: Step, by: int) -> Step:
    return step._replace(padding=by % 5)


def ended(step: Step, by: int) -> Step:
    if len(step.requests) == 1:
        return step
    row = by % len(step.requests)
    return step._replace(
        requests=step.requests[:row] + step.requests[row + 1 :],
        slots=step.slots[:row] + step.slots[row + 1 :],
    )


CHANGES = [
    advance,
    reorder,
    other_slot,
    other_length,
    other_flag,
    other_padding,
    ended,
]

request_kinds = st.builds(
    lambda scheduled, computed, rest: Request(scheduled, computed, computed + rest),
    st.integers(1, 20),
    st.integers(0, 50),
    st.sampled_from([0, 0, 30]),
)


@st.composite
def sequences(draw: st.DrawFn) -> list[Step]:
    requests = draw(st.lists(request_kinds, min_size=1, max_size=8))
    steps = [Step(tuple(requests), tuple(range(10, 10 + len(requests))))]
    changes = st.tuples(st.sampled_from(CHANGES), st.integers(0, 60))
    for change, by in draw(st.lists(changes, max_size=12)):
        steps.append(change(steps[-1], by))
        # Back and forth: what was current two steps ago is not any more.
        if draw(st.booleans()):
            steps.append(draw(st.sampled_from(steps)))
    return steps


@settings(max_examples=150, deadline=None)
@given(
    sequences(),
    st.sampled_from([(2, 1), (2, 2), (3, 1), (4, 8)]),
    st.integers(0, 7),
)
def test_steps_in_any_order_equal_a_new_manager_each(
    steps: list[Step], sizes: tuple[int, int], rank: int
) -> None:
    topology = Topology(*sizes, max_num_reqs=16, max_num_tokens=1024)
    rank %= topology.pcp_size
    _, used = make_both(topology, rank)
    for step in steps:
        _, new = make_both(topology, rank)
        assert_equal(run(used, step), run(new, step))


START = Step(
    tuple([Request(1, 30, 20)] * 6 + [Request(9, 0, 9), Request(9, 12, 100)]),
    tuple(range(8)),
)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("change", "is_rebuilt"),
    [
        (advance, False),
        (reorder, True),
        (other_slot, True),
        (other_length, True),
        (other_flag, True),
        (other_padding, True),
        (ended, True),
    ],
)
def test_what_rebuilds_the_tables(change: Any, is_rebuilt: bool, rank: int) -> None:
    _, manager = make_both(Topology(2), rank)
    run(manager, START)
    tables = manager._device_tables
    run(manager, START)
    assert manager._device_tables is tables, "the same step again must reuse"
    # Rows 0 and 1 are one on each rank; a prompt is on both.
    step = change(START, 1 if change is reorder else 6)
    run(manager, step)
    assert (manager._device_tables is not tables) == is_rebuilt


def test_a_slot_of_another_rank_s_request_leaves_this_rank_s_tables() -> None:
    """Device tables hold the slots of their own rank's rows alone."""
    _, manager = make_both(Topology(2), 0)
    run(manager, START)
    tables = manager._device_tables
    run(manager, other_slot(START, 1))
    assert manager._device_tables is tables
    run(manager, other_slot(START, 0))
    assert manager._device_tables is not tables


def test_a_refused_step_leaves_the_tables_of_the_last_one() -> None:
    _, manager = make_both(Topology(2), 0)
    run(manager, START)
    tables = manager._device_tables
    copies = [table.clone() for table in tables]
    bad = batch_of(START)
    bad.query_start_loc_np = bad.query_start_loc_np + 1
    with pytest.raises(ValueError, match="query_start_loc"):
        manager.partition_batch(bad, NO_GRAPH)
    assert all(torch.equal(a, b) for a, b in zip(tables, copies, strict=True))
    run(manager, START)
    assert manager._device_tables is tables


def test_a_dummy_batch_between_two_equal_steps_is_not_seen() -> None:
    """Dummy runs write the buffers that local batches are made in."""
    _, used = make_both(Topology(2), 0)
    run(used, START)
    dummy = global_batch(np.random.default_rng(1), [Request(4, 0, 4)] * 3)
    used.prepare_inputs_to_capture(dummy)
    _, new = make_both(Topology(2), 0)
    assert_equal(run(used, START), run(new, START))
