"""What a step costs in plans, torch operations and copies: counted, never timed."""

from typing import Any

import numpy as np
import pytest

from tests.host.batches import Request, Topology, global_batch, scheduled_arrays
from tests.host.op_counts import count_steps, managers_on_meta, on_meta
from tests.host.parity import NO_GRAPH, make_both

MIXED = [Request(1, 40, 20)] * 9 + [Request(50, 0, 50), Request(30, 60, 200)]
DECODES = [Request(1, 40, 20)] * 20


def steps_of(batches: list[tuple[list[Request], int]]) -> list[tuple[Any, Any]]:
    """Steps of requests and the seed of their slots."""
    return [
        (requests, on_meta(global_batch(np.random.default_rng(seed), requests)))
        for requests, seed in batches
    ]


def advanced(requests: list[Request], by: int = 1) -> list[Request]:
    return [r._replace(num_computed=r.num_computed + by) for r in requests]


@pytest.mark.parametrize("requests", [DECODES, MIXED], ids=["decodes", "mixed"])
@pytest.mark.parametrize("pcp_size", [2, 4])
@pytest.mark.parametrize("dcp_size", [1, 4])
def test_one_packed_copy_where_stock_makes_several(
    requests: list[Request], pcp_size: int, dcp_size: int
) -> None:
    steps = steps_of([(requests, seed) for seed in range(3)])
    topology = Topology(pcp_size, dcp_size)
    stock, ours = (count_steps(m, steps) for m in managers_on_meta(topology, 0))
    assert [counts.host_to_device_copies for counts in ours] == [1, 1, 1]
    assert [counts.host_to_device_copies for counts in stock] == [5, 5, 5]
    for stock_counts, our_counts in zip(stock, ours, strict=True):
        assert our_counts.torch_operations < stock_counts.torch_operations
        assert our_counts.kernels < stock_counts.kernels / 2


def test_a_decode_batch_like_the_last_one_copies_nothing() -> None:
    steps = steps_of([(advanced(DECODES, step), 0) for step in range(4)])
    _, ours = managers_on_meta(Topology(2), 1)
    first, *others = count_steps(ours, steps)
    assert first.host_to_device_copies == 1
    assert [counts.host_to_device_copies for counts in others] == [0, 0, 0]
    assert others[0].torch_operations < first.torch_operations


def test_the_number_of_operations_does_not_grow_with_the_batch() -> None:
    counted = []
    for num_reqs in (4, 60):
        steps = steps_of([([Request(1, 40, 20)] * num_reqs, seed) for seed in (0, 1)])
        _, ours = managers_on_meta(Topology(2), 0)
        counted.append(count_steps(ours, steps))
    assert counted[0] == counted[1]


def test_the_plan_is_made_once_a_step() -> None:
    """Each plan made has the next revision; a step that repeats the last makes none."""
    _, ours = make_both(Topology(2), 0)
    rng = np.random.default_rng(0)
    revisions = []
    for requests in (DECODES, MIXED, MIXED, advanced(MIXED), DECODES):
        arrays = scheduled_arrays(requests)
        ours.get_num_tokens_for_dispatch(*arrays)
        planned = ours._planner.plan(*arrays).revision
        ours.partition_batch(global_batch(rng, requests), NO_GRAPH)
        assert ours._planner.plan(*arrays).revision == planned
        revisions.append(planned)
    assert np.diff(revisions).tolist() == [1, 0, 0, 1]
