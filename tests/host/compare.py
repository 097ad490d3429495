"""Random blocks of steps on both managers, up to the first difference.

``python -m tests.host.compare --batches COUNT --seed SEED --first BLOCK`` compares that
many steps with the importable vLLM and prints how many there were of each kind, as
JSON. It is one process of ``python -m tests.host.sweep``, which runs every version.
"""

# Patches torch for CPU; vLLM's runner modules must come after it.
import vllm.v1.worker.cpu.shm  # isort: skip

import gc
import json
import sys
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
import typer
import vllm
from vllm.config import CUDAGraphMode

from tests.host.batches import (
    Descriptor,
    Topology,
    global_batch,
    scheduled_arrays,
)
from tests.host.kinds import kinds
from tests.host.parity import (
    NO_GRAPH,
    assert_kernels_do_the_same,
    assert_refused,
    assert_same_step,
    make_both,
)
from tests.host.shrink import shrunk
from tests.host.steps import Block, Step, random_block

_BLOCK_STEPS = 20


def compare_step(stock: Any, ours: Any, topology: Topology, step: Step) -> bool:
    """Compare one step.

    Returns:
        Whether some rank has no tokens.
    """
    arrays = scheduled_arrays(step.requests)
    mode = CUDAGraphMode[step.cg_mode]
    descriptor, num_reqs = NO_GRAPH, 0
    if mode != CUDAGraphMode.NONE:
        if mode == CUDAGraphMode.FULL:
            most = topology.max_num_reqs
            num_reqs = min(most, len(step.requests) + step.extra_reqs)
        size = stock.get_num_tokens_for_dispatch(*arrays) + step.extra_tokens
        descriptor = Descriptor(mode, size, num_reqs or None)
    batch = global_batch(
        np.random.default_rng(step.seed),
        step.requests,
        descriptor.num_tokens,
        padded_num_reqs=num_reqs,
        slots=step.slots,
        draft_budget=step.draft_budget,
    )
    if step.budget_binds:
        assert_refused(stock, ours, batch, descriptor)
        return False
    stock._block_tables.runs_kernels = step.runs_kernels
    assert_same_step(stock, ours, step.requests, batch, descriptor)
    if step.runs_kernels:
        assert_kernels_do_the_same(stock)
    return 0 in stock.layout[1]


class Difference(NamedTuple):
    step: int  # in its block
    error: Exception


def compare_block(
    block: Block, count: Callable[[int, bool], None] = lambda *_: None
) -> Difference | None:
    """Compare a block on managers of its own, up to the first difference."""
    managers = make_both(block.topology, block.rank)
    for index, step in enumerate(block.steps):
        try:
            is_idle = compare_step(*managers, block.topology, step)
        except Exception as error:  # whatever is raised, vLLM's does not
            return Difference(index, error)
        count(index, is_idle)
    return None


class DifferenceError(AssertionError):
    """Two managers differ; the text has the seed and the smallest block found."""


def compare(num_batches: int, seed: int, first: int = 0) -> Counter[str]:
    """Compare random steps, block by block.

    Args:
        num_batches: steps in all.
        seed: of the sweep.
        first: number of the first block, so that a sweep can be shared out.

    Returns:
        How many steps were of each kind; ``"batches"`` counts them all.

    Raises:
        DifferenceError: names the seed, the block and a shrunk block.
    """
    found: Counter[str] = Counter()
    index = first
    while found["batches"] < num_batches:
        block = random_block(
            seed, index, min(_BLOCK_STEPS, num_batches - found["batches"])
        )

        def count(step: int, is_idle: bool, block: Block = block) -> None:
            found.update(("batches", *kinds(block, step, is_rank_idle=is_idle)))

        difference = compare_block(block, count)
        if difference is not None:
            raise DifferenceError(_report(seed, index, block, difference))
        index += 1
    return found


def _report(seed: int, index: int, block: Block, difference: Difference) -> str:
    seen = block._replace(steps=block.steps[: difference.step + 1])
    small = shrunk(seen, lambda candidate: compare_block(candidate) is not None)
    last = compare_block(small)
    error = difference.error if last is None else last.error
    steps = "\n  ".join(map(str, small.steps))
    return (
        f"vLLM {vllm.__version__}, seed {seed}, block {index}, step "
        f"{difference.step}: {type(error).__name__}: {error}\n"
        f"shrunk: {small.topology}, rank {small.rank}\n  {steps}"
    )


def main(
    batches: Annotated[int, typer.Option(help="Steps to compare.")],
    seed: Annotated[int, typer.Option(help="Seed of the sweep.")] = 0,
    first: Annotated[int, typer.Option(help="Number of the first block.")] = 0,
) -> None:
    """Compare random steps with the importable vLLM; print the counts as JSON."""
    torch.set_num_threads(1)
    # What was imported stays; looking through it again and again takes time.
    gc.freeze()
    try:
        print(json.dumps(compare(batches, seed, first)))
    except DifferenceError as error:
        sys.exit(f"error: {error}")
    finally:
        gc.unfreeze()


if __name__ == "__main__":
    typer.run(main)
