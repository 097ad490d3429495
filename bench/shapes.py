"""Shapes of ``shapes.json`` as batches of vLLM's, and both managers to run them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict
from vllm.v1.worker.gpu.pcp_manager import PCPManager

from pyvllm_pp.host.pcp import NativePCPManager
from pyvllm_pp.host.settings import Settings
from tests.host.batches import Request, Topology, global_batch, scheduled_arrays
from tests.host.parity import (
    NO_GRAPH,
    StockManager,
    assert_same_partition,
    make_manager,
)

HERE = Path(__file__).parent
_SHAPES = json.loads((HERE / "shapes.json").read_text())

PCP_SIZES: list[int] = _SHAPES["pcp_sizes"]
LIMITS: dict[str, int] = _SHAPES["limits"]
SCALING: dict[str, Any] = _SHAPES["scaling"]
MEMORY: dict[str, int] = _SHAPES["memory"]
# Steps that are made before measuring, and run in turn.
_NUM_STEPS = 8


class Shape(BaseModel):
    """A batch of equal requests."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    num_reqs: int
    tokens_each: int
    is_prefilling: bool

    def requests(self, step: int = 0) -> list[Request]:
        """The requests at a step: decodes one further, prompts a chunk further."""
        if not self.is_prefilling:
            return [Request(1, 100 + step, 100)] * self.num_reqs
        done = step * self.tokens_each
        return [Request(self.tokens_each, done, 1 << 20)] * self.num_reqs


BATCHES = [Shape(**shape) for shape in _SHAPES["batches"]]


class Step:
    """One step's inputs, as the runner hands them to a manager."""

    def __init__(self, requests: list[Request], seed: int) -> None:
        self.requests = requests
        self.batch = global_batch(np.random.default_rng(seed), requests)
        self.arrays = scheduled_arrays(requests)

    def run(self, manager: Any) -> Any:
        """What the runner does with its manager at a step."""
        manager.get_num_tokens_for_dispatch(*self.arrays)
        return manager.partition_batch(self.batch, NO_GRAPH)


def steady_steps(shape: Shape) -> list[Step]:
    """The same requests and slots at every step, each a step further."""
    return [Step(shape.requests(step), seed=0) for step in range(_NUM_STEPS)]


def changing_steps(shape: Shape) -> list[Step]:
    """Other slots, and another request with a token more or less, at every step."""
    steps = []
    for step in range(_NUM_STEPS):
        requests = shape.requests(step)
        row = step % shape.num_reqs
        count = shape.tokens_each - 1 if shape.is_prefilling else 2
        requests[row] = requests[row]._replace(num_scheduled=count)
        steps.append(Step(requests, seed=step))
    return steps


def _topology(pcp_size: int) -> Topology:
    """Buffers that hold every shape."""
    return Topology(
        pcp_size,
        max_num_reqs=LIMITS["max_num_reqs"],
        max_num_tokens=LIMITS["max_num_tokens"],
    )


def managers(pcp_size: int) -> tuple[Any, Any]:
    """Rank 0's manager, stock's and ours, as their runners make them."""
    return _pair(PCPManager, pcp_size, 0)


def check(pcp_size: int, steps: list[Step]) -> None:
    """Every rank's local batch and tables of every step equal stock's.

    Raises:
        AssertionError: names the field that differs.
    """
    for rank in range(pcp_size):
        stock, ours = _pair(StockManager, pcp_size, rank)
        for step in steps:
            assert_same_partition(stock, ours, step.requests, step.batch, NO_GRAPH)


def _pair(stock_class: type, pcp_size: int, rank: int) -> tuple[Any, Any]:
    """Without block tables: no block is looked up here."""
    topology = _topology(pcp_size)
    return (
        make_manager(stock_class, topology, rank),
        make_manager(NativePCPManager.configured(Settings(), 2), topology, rank),
    )
