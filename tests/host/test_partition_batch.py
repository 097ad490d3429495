"""Our manager against vLLM's own: the same local batch, field by field."""

import numpy as np
import pytest
import torch
from vllm.config import CUDAGraphMode

from pyvllm_pp.host.pcp import NativePCPManager
from pyvllm_pp.host.settings import Settings
from tests.host.batches import (
    Descriptor,
    Request,
    Topology,
    global_batch,
    random_requests,
    scheduled_arrays,
)
from tests.host.compare import compare
from tests.host.parity import (
    NO_GRAPH,
    assert_same_step,
    make_both,
    make_manager,
)


@pytest.mark.parametrize("pcp_size", [2, 3, 4, 8])
@pytest.mark.parametrize("dcp", ["none", "pcp", "tp_pcp"])
def test_local_batch_equals_stock(pcp_size: int, dcp: str) -> None:
    dcp_size = {"none": 1, "pcp": pcp_size, "tp_pcp": 2 * pcp_size}[dcp]
    topology = Topology(pcp_size, dcp_size)
    rng = np.random.default_rng([pcp_size, dcp_size])
    managers = [make_both(topology, rank) for rank in range(pcp_size)]
    num_steps = 0
    for _ in range(12):
        requests = random_requests(rng, int(rng.integers(1, 24)), 2000)
        if sum(r.num_scheduled for r in requests) == 0:
            continue
        batch = global_batch(rng, requests)
        for stock, ours in managers:
            assert_same_step(stock, ours, requests, batch, NO_GRAPH)
            num_steps += 1
    assert num_steps > 8 * pcp_size


@pytest.mark.parametrize("pcp_size", [2, 4])
def test_more_than_a_thousand_requests(pcp_size: int) -> None:
    topology = Topology(pcp_size, max_num_reqs=1500, max_num_tokens=8192)
    rng = np.random.default_rng(3)
    requests = random_requests(rng, 1400, 8000)
    batch = global_batch(rng, requests)
    for rank in range(pcp_size):
        assert_same_step(*make_both(topology, rank), requests, batch, NO_GRAPH)


def test_random_steps_in_a_row_on_one_manager() -> None:
    """Tables of the last step are never taken for this one's."""
    assert compare(200, seed=1)["batches"] == 200


def test_piecewise_graph_padding() -> None:
    topology = Topology(2)
    rng = np.random.default_rng(5)
    for _ in range(50):
        requests = random_requests(rng, int(rng.integers(1, 12)), 1000)
        if sum(r.num_scheduled for r in requests) == 0:
            continue
        for rank in range(2):
            stock, ours = make_both(topology, rank)
            arrays = scheduled_arrays(requests)
            padded = stock.get_num_tokens_for_dispatch(*arrays) + int(rng.integers(9))
            batch = global_batch(rng, requests, padded)
            descriptor = Descriptor(CUDAGraphMode.PIECEWISE, padded, None)
            assert_same_step(stock, ours, requests, batch, descriptor)


def test_full_graph_padding_of_decodes() -> None:
    rng = np.random.default_rng(6)
    for num_reqs in (1, 2, 3, 8, 17):
        requests = [Request(1, 10 + i, 10) for i in range(num_reqs)]
        for rank in range(2):
            stock, ours = make_both(Topology(2), rank)
            batch = global_batch(rng, requests, 24)
            descriptor = Descriptor(CUDAGraphMode.FULL, 24, 24)
            assert_same_step(stock, ours, requests, batch, descriptor)


def test_full_graph_refuses_prefills() -> None:
    _, ours = make_both(Topology(2), 0)
    requests = [Request(5, 0, 5)]
    batch = global_batch(np.random.default_rng(0), requests)
    with pytest.raises(RuntimeError, match="decode-only batch"):
        ours.partition_batch(batch, Descriptor(CUDAGraphMode.FULL, 8, 8))


def test_block_tables_and_slot_mappings_equal_stock() -> None:
    """vLLM's kernels fill them from the tables of each manager."""
    topology = Topology(2, max_num_reqs=16, max_num_tokens=256)
    rng = np.random.default_rng(11)
    managers = [make_both(topology, rank) for rank in range(2)]
    for _ in range(4):
        requests = random_requests(rng, 6, 200)
        batch = global_batch(rng, requests, slots=rng.permutation(16)[:6].tolist())
        for stock, ours in managers:
            stock._block_tables.runs_kernels = True
            assert_same_step(stock, ours, requests, batch, NO_GRAPH)


def test_a_step_in_flight_keeps_its_tables() -> None:
    """On CPU the tables are views of the ring: deep enough for all steps in flight."""
    _, ours = make_both(Topology(2), 0)
    rng = np.random.default_rng(2)
    kept = []
    for _ in range(ours.ring_depth - 1):
        batch = global_batch(rng, random_requests(rng, 9, 500))
        local = ours.partition_batch(batch, NO_GRAPH)
        kept.append((ours._hidden_restore_idx, ours._hidden_restore_idx.clone()))
        kept.append((local.idx_mapping, local.idx_mapping.clone()))
    for view, copy in kept:
        assert torch.equal(view, copy)


def test_dummy_batch_leaves_no_state_behind() -> None:
    """C9: a dummy or warm-up batch between real ones."""
    stock, ours = make_both(Topology(2), 1)
    rng = np.random.default_rng(4)
    # vLLM's name for it, up to 0.32 and since.
    names = ("prepare_inputs_to_capture", "prepare_inputs_for_capture_or_profile")
    (name,) = [name for name in names if hasattr(stock, name)]
    for _ in range(3):
        requests = random_requests(rng, 5, 300)
        batch = global_batch(rng, requests)
        assert_same_step(stock, ours, requests, batch, NO_GRAPH)
        dummy = global_batch(rng, [Request(4, 0, 4), Request(4, 0, 4)])
        for manager in (stock, ours):
            captured = getattr(manager, name)(dummy)
            assert torch.equal(captured.input_ids, dummy.input_ids)


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([Request(5000, 0, 5000)], "5000 tokens scheduled, the buffers hold 4096"),
        ([Request(-1, 3, 3)], r"num_scheduled_tokens\[0\] is -1"),
    ],
)
def test_bad_batches_are_refused(requests: list[Request], message: str) -> None:
    _, ours = make_both(Topology(2), 0)
    with pytest.raises(ValueError, match=message):
        ours.get_num_tokens_for_dispatch(*scheduled_arrays(requests))


def test_pcp_size_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="pcp_size is 0, expected 1 or more"):
        make_manager(NativePCPManager.configured(Settings(), 2), Topology(0), 0)
