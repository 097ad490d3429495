"""Our manager against vLLM's own, field by field, on the vLLM that is importable.

``python -m tests.host.parity COUNT SEED`` compares that many random steps and prints
how many were equal, by kind. Run with another version's folder first on PYTHONPATH to
compare with that version.
"""

# Patches torch for CPU; vLLM's runner modules must come after it.
import vllm.v1.worker.cpu.shm  # isort: skip

import inspect
import sys
from collections import Counter
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import vllm
from vllm.config import CUDAGraphMode
from vllm.v1.worker.gpu.pcp_manager import PCPManager

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

NO_GRAPH = Descriptor(CUDAGraphMode.NONE, 0, None)
_TABLES = (
    "_hidden_restore_idx",
    "_padded_gather_idx",
    "_gathered_kv_write_mask",
    "_local_gather_idx",
)
_STOCK_ARGUMENTS = inspect.signature(PCPManager.__init__).parameters


def make_manager(cls: type, topology: Topology, rank: int, **kwargs: Any) -> Any:
    values: dict[str, Any] = {
        "pcp_world_size": topology.pcp_size,
        "pcp_rank": rank,
        "device": torch.device("cpu"),
        "shard_decode_requests": topology.shard_decode_requests,
        "max_num_reqs": topology.max_num_reqs,
        "max_num_tokens": topology.max_num_tokens,
        "dcp_world_size": topology.dcp_size,
        "dcp_rank": rank % topology.dcp_size,
        "moe_gathers_tokens": topology.dcp_size == 1,
        **kwargs,
    }
    return cls(**{k: v for k, v in values.items() if k in _STOCK_ARGUMENTS})


def make_both(topology: Topology, rank: int, **kwargs: Any) -> tuple[Any, Any]:
    native = NativePCPManager.configured(Settings(), 2)
    return (
        make_manager(PCPManager, topology, rank, **kwargs),
        make_manager(native, topology, rank, **kwargs),
    )


def same(stock: Any, ours: Any) -> bool:
    """Equal in type, dtype, shape and every value."""
    if isinstance(stock, torch.Tensor):
        return stock.dtype == ours.dtype and torch.equal(stock, ours)
    if isinstance(stock, np.ndarray):
        return stock.dtype == ours.dtype and np.array_equal(stock, ours)
    if is_dataclass(stock):
        return type(stock) is type(ours) and all(
            same(getattr(stock, field.name), getattr(ours, field.name))
            for field in fields(stock)
        )
    return type(stock) is type(ours) and bool(stock == ours)


def assert_same_step(
    stock: Any, ours: Any, requests: list[Request], batch: Any, descriptor: Descriptor
) -> None:
    arrays = scheduled_arrays(requests)
    stock_count = stock.get_num_tokens_for_dispatch(*arrays)
    assert stock_count == ours.get_num_tokens_for_dispatch(*arrays)
    expected = stock.partition_batch(batch, descriptor)
    local = ours.partition_batch(batch, descriptor)
    for field in fields(expected):
        stock_value = getattr(expected, field.name)
        our_value = getattr(local, field.name)
        assert same(stock_value, our_value), (field.name, stock_value, our_value)
    for name in _TABLES:
        assert same(getattr(stock, name), getattr(ours, name)), name
    assert ours.global_batch is batch
    slots = torch.arange(batch.num_tokens, dtype=torch.int64).repeat(2, 1) + 7
    assert same(
        stock._convert_to_gathered_slot_mappings(slots),
        ours._convert_to_gathered_slot_mappings(slots),
    )


class Step(NamedTuple):
    kind: str
    topology: Topology
    requests: list[Request]
    descriptor: Descriptor
    padded_num_tokens: int


def random_topology(rng: np.random.Generator) -> Topology:
    pcp_size = int(rng.integers(2, 9))
    dcp_size = int(rng.choice([1, 1, pcp_size, 2 * pcp_size]))
    return Topology(pcp_size, dcp_size)


def random_step(rng: np.random.Generator, topology: Topology) -> Step:
    """A batch, and a graph descriptor that fits it: none, piecewise or decode-only."""
    full = bool(rng.random() < 0.15)
    num_reqs = int(rng.integers(1, 30))
    if full:
        requests = [
            Request(1, int(rng.integers(1, 99)), 1)
            for _ in range(min(num_reqs, topology.max_num_reqs))
        ]
    else:
        requests = random_requests(rng, num_reqs, 1500)
        if sum(request.num_scheduled for request in requests) == 0:
            requests.append(Request(3, 0, 5))
    num_tokens = sum(request.num_scheduled for request in requests)
    if full:
        size = num_tokens + int(rng.integers(0, 9))
        descriptor = Descriptor(CUDAGraphMode.FULL, size, size)
    elif rng.random() < 0.3:
        size = num_tokens + int(rng.integers(0, 9))
        descriptor = Descriptor(CUDAGraphMode.PIECEWISE, size, None)
    else:
        size, descriptor = 0, NO_GRAPH
    kind = f"{descriptor.cg_mode.name}, {'DCP' if topology.dcp_size > 1 else 'PCP'}"
    return Step(kind, topology, requests, descriptor, size)


def compare(count: int, seed: int, steps_each: int = 50) -> Counter[str]:
    """Compare `count` random steps, each of a few managers seeing many in a row."""
    rng = np.random.default_rng(seed)
    compared: Counter[str] = Counter()
    while compared.total() < count:
        topology = random_topology(rng)
        managers = make_both(topology, int(rng.integers(topology.pcp_size)))
        for _ in range(min(steps_each, count - compared.total())):
            step = random_step(rng, topology)
            batch = global_batch(rng, step.requests, step.padded_num_tokens)
            try:
                assert_same_step(*managers, step.requests, batch, step.descriptor)
            except AssertionError as error:
                error.add_note(f"seed {seed}, after {compared.total()}: {step}")
                raise
            compared[step.kind] += 1
    return compared


def main() -> None:
    torch.set_num_threads(1)
    compared = compare(int(sys.argv[1]), int(sys.argv[2]))
    for kind, number in sorted(compared.items()):
        print(f"{number:>9,}  {kind}")
    print(f"{compared.total():,} batches equal to vLLM {vllm.__version__}")


if __name__ == "__main__":
    main()
