"""The manager under ``partition: balanced``: what vLLM needs of its local batches."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pyvllm_pp.host.pcp import NativePCPManager
from pyvllm_pp.host.settings import Settings
from tests.host.batches import (
    Request,
    Topology,
    global_batch,
    random_requests,
    scheduled_arrays,
)
from tests.host.parity import NO_GRAPH, make_manager

BALANCED = Settings(partition="balanced")
LONG = [Request(900, 0, 2000), Request(1, 300, 200), Request(700, 500, 1200)]


def managers(pcp_size: int) -> list[Any]:
    native = NativePCPManager.configured(BALANCED, 2)
    topology = Topology(pcp_size)
    return [make_manager(native, topology, rank) for rank in range(pcp_size)]


def check_step(ranks: list[Any], requests: list[Request], batch: Any) -> None:
    """Local batches of all ranks: together the global one, each as attention needs."""
    counts = {m.get_num_tokens_for_dispatch(*scheduled_arrays(requests)) for m in ranks}
    local = [manager.partition_batch(batch, NO_GRAPH) for manager in ranks]
    assert counts == {one.num_tokens_after_padding for one in local}
    for name in ("input_ids", "positions"):
        gathered = torch.cat([getattr(one, name) for one in local])
        for manager in ranks:
            restored = gathered[manager._hidden_restore_idx]
            assert torch.equal(restored, getattr(batch, name)[: batch.num_tokens])
    for one in local:
        check_rows(one)
        assert one.num_reqs <= 2 * len(requests)
    # Each token's KV is written once, whichever rank gathers.
    slots = torch.arange(batch.num_tokens, dtype=torch.int64).unsqueeze(0)
    for manager in ranks:
        mapped = manager._convert_to_gathered_slot_mappings(slots)
        assert sorted(mapped[mapped >= 0].tolist()) == list(range(batch.num_tokens))


def check_rows(local: Any) -> None:
    """A row is a run of positions that ends at its length; decodes come first."""
    ends = local.query_start_loc_np.tolist()
    for row in range(local.num_reqs):
        positions = local.positions[ends[row] : ends[row + 1]].tolist()
        if positions:
            first = positions[0]
            assert positions == list(range(first, first + len(positions)))
            # The host does not know of the last rejected drafts yet.
            assert int(local.num_computed_tokens_np[row]) >= first
            assert int(local.seq_lens[row]) == positions[-1] + 1
    prefilling = local.is_prefilling_np.tolist()
    assert prefilling == sorted(prefilling)


@pytest.mark.parametrize("pcp_size", [2, 3, 4, 8])
def test_local_batches_are_the_global_one(pcp_size: int) -> None:
    rng = np.random.default_rng(pcp_size)
    ranks = managers(pcp_size)
    num_steps = 0
    for _ in range(40):
        requests = random_requests(rng, int(rng.integers(1, 24)), 2000)
        if sum(request.num_scheduled for request in requests):
            check_step(ranks, requests, global_batch(rng, requests))
            num_steps += 1
    assert num_steps > 30


def test_long_prompts_beside_decodes() -> None:
    rng = np.random.default_rng(0)
    for pcp_size in (2, 4):
        check_step(managers(pcp_size), LONG, global_batch(rng, LONG))


def test_the_attention_work_of_ranks_is_equal() -> None:
    """Contexts reach the planner: the second chunk has many tokens behind it."""
    batch = global_batch(np.random.default_rng(0), LONG)
    work = []
    for manager in managers(2):
        local = manager.partition_batch(batch, NO_GRAPH)
        positions = local.positions[: local.num_tokens]
        work.append(int(positions.sum()) + local.num_tokens)
    assert max(work) * 2 <= 1.02 * sum(work)


def test_dcp_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.worker.gpu.pcp_manager import PCPManager

    monkeypatch.setattr(PCPManager, "validate_config", lambda *_: None)
    config = SimpleNamespace(
        parallel_config=SimpleNamespace(
            pipeline_parallel_size=1,
            prefill_context_parallel_size=2,
            decode_context_parallel_size=2,
        ),
        model_config=SimpleNamespace(runner_type="generate"),
        additional_config={"pyvllm_pp": {"partition": "balanced"}},
    )
    with pytest.raises(NotImplementedError, match="'balanced' does not support DCP"):
        NativePCPManager.validate_config(config, False)
    config.additional_config = {"pyvllm_pp": {"partition": "dual_chunk_swap"}}
    NativePCPManager.validate_config(config, False)
