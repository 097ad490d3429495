"""Dense and selected restore on every rank of a real PCP group, over gloo.

Run as ``python -m tests.host.restore_ranks RANK INIT_FILE SIZE HIDDEN_SIZE``: prints
one line of JSON, what each step moved by either way, measured where the group's
collectives are called. The model is a stand-in that gives each token a random row.
"""

# Patches torch for CPU; vLLM's runner modules must come after it.
import vllm.v1.worker.cpu.shm  # noqa: F401  # isort: skip

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from vllm.config import CUDAGraphMode, VllmConfig, set_current_vllm_config
from vllm.distributed.parallel_state import (
    get_pcp_group,
    init_distributed_environment,
    initialize_model_parallel,
)
from vllm.v1.worker.gpu.model_runner import GPUModelRunner
from vllm.v1.worker.gpu.sample.prompt_logprob import PromptLogprobsWorker

from pyvllm_pp.host.pcp import NativePCPManager
from pyvllm_pp.host.restore import Readers, SampledRows
from pyvllm_pp.host.settings import Settings
from tests.host.batches import Descriptor, Request, Topology, global_batch
from tests.host.parity import NO_GRAPH, make_manager
from tests.host.processes import run_ranks


@dataclass
class Moved:
    """What came to this rank in one step, its own rows included."""

    calls: int = 0
    rows: int = 0
    num_bytes: int = 0

    def add(self, rows: int, row: torch.Tensor) -> None:
        self.calls += 1
        self.rows += rows
        self.num_bytes += rows * row[:1].numel() * row.element_size()


@dataclass(frozen=True)
class Step:
    name: str
    requests: list[Request]
    descriptor: Descriptor = NO_GRAPH
    dtype: torch.dtype = torch.bfloat16


STEPS = [
    Step("4 prompts of 512", [Request(512, 0, 512)] * 4),
    Step("one prompt of 2", [Request(2, 0, 2)]),
    Step("one prompt of 1", [Request(1, 0, 1)]),
    Step("a chunk in the middle", [Request(256, 256, 1024), Request(1, 9, 3)]),
    Step("64 decodes and a prompt", [Request(1, 20, 3)] * 64 + [Request(200, 0, 200)]),
    Step("63 decodes", [Request(1, 20 + i, 3) for i in range(63)]),
    Step("1 decode", [Request(1, 7, 3)]),
    Step(
        "3 decodes in a graph of 8",
        [Request(1, 5, 5)] * 3,
        Descriptor(CUDAGraphMode.FULL, 8, 8),
    ),
    Step("rows without tokens", [Request(0, 3, 9), Request(5, 0, 5), Request(0, 2, 2)]),
    Step("float32", [Request(30, 0, 30), Request(7, 0, 7)], dtype=torch.float32),
    Step("many short prompts", [Request(n, 0, n) for n in range(1, 40)]),
]


def nothing_else_reads() -> Readers:
    """A run whose steps read nothing but sampled rows."""
    return Readers(
        SimpleNamespace(
            speculator=None,
            num_speculative_steps=0,
            use_aux_hidden_state_outputs=False,
            is_pooling_model=False,
            prompt_logprobs_worker=SimpleNamespace(
                uses_prompt_logprobs=np.zeros(4096, dtype=bool), token_id_scores={}
            ),
        )
    )


@contextmanager
def counted(group: Any) -> Iterator[Moved]:
    """Count what the group's collectives bring."""
    moved = Moved()
    world, all_gather, broadcast = group.world_size, group.all_gather, group.broadcast

    def counted_all_gather(rows: torch.Tensor, dim: int = -1) -> torch.Tensor:
        moved.add(rows.shape[dim] * world, rows)
        return all_gather(rows, dim)

    def counted_broadcast(rows: torch.Tensor, src: int = 0) -> torch.Tensor:
        moved.add(rows.shape[0], rows)
        return broadcast(rows, src)

    group.all_gather, group.broadcast = counted_all_gather, counted_broadcast
    try:
        yield moved
    finally:
        del group.all_gather, group.broadcast


def restore(
    settings: Settings, step: Step, rank: int, size: int, hidden_size: int
) -> tuple[Any, Moved]:
    """The rows that sampling reads, in request order, and what they cost."""
    cls = NativePCPManager.configured(settings, 2, nothing_else_reads())
    manager = make_manager(cls, Topology(size, max_num_reqs=128), rank)
    rng = np.random.default_rng(len(step.name))
    padded = step.descriptor.num_tokens
    batch = global_batch(rng, step.requests, padded_num_tokens=padded)
    local = manager.partition_batch(batch, step.descriptor)
    generator = torch.Generator().manual_seed(7)
    rows = torch.randn(batch.num_tokens, hidden_size, generator=generator)
    rows = rows.to(step.dtype)
    hidden = rows[manager._local_gather_idx]
    assert hidden.shape[0] == local.num_tokens_after_padding
    with counted(get_pcp_group()) as moved:
        restored, aux, restored_batch = manager.restore_for_sampling(hidden, None)
    assert aux is None
    assert restored_batch is batch
    if isinstance(restored, SampledRows):
        check_other_orders(restored, batch)
        assert manager.restore_counts.selected_rows == moved.rows
    else:
        assert torch.equal(restored, rows)
        assert manager.restore_counts.dense_rows == moved.rows
    return restored[batch.logits_indices], moved


def check_other_orders(rows: SampledRows, batch: Any) -> None:
    """Batch-sharded sampling asks in the order of the ranks that own requests."""
    order = torch.argsort(batch.idx_mapping % 2, stable=True)
    expected = rows[batch.logits_indices][order]
    indices = batch.logits_indices.to(torch.int64)
    assert torch.equal(rows[indices[order]], expected)
    assert torch.equal(rows[indices], rows[batch.logits_indices])


def check_names() -> None:
    """What decides about a step is asked by names that this vLLM has."""
    runner = nothing_else_reads()._runner
    worker = PromptLogprobsWorker(4, torch.device("cpu"))
    assert vars(runner.prompt_logprobs_worker).keys() <= vars(worker).keys()
    assert vars(runner).keys() <= set(GPUModelRunner.__init__.__code__.co_names)


def run(
    size: int, hidden_size: int, env: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """What each rank of a PCP group of that size says of every step."""
    outputs = run_ranks(
        "tests.host.restore_ranks", size, str(size), str(hidden_size), env=env
    )
    lines = [output.splitlines()[-1] for output in outputs]
    if not all(line.startswith("{") for line in lines):
        raise RuntimeError("\n".join(outputs))
    return [json.loads(line) for line in lines]


def main() -> None:
    rank, init_file = int(sys.argv[1]), sys.argv[2]
    size, hidden_size = int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    check_names()
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(size, rank, f"file://{init_file}", rank, "gloo")
        initialize_model_parallel(prefill_context_model_parallel_size=size)
        results: dict[str, dict[str, Any]] = {}
        for step in STEPS:
            rows = {}
            moved = {}
            for name in ("dense", "selected"):
                settings = Settings(restore=name)
                rows[name], counts = restore(settings, step, rank, size, hidden_size)
                moved[name] = asdict(counts)
            is_equal = torch.equal(rows["dense"], rows["selected"])
            results[step.name] = {"bit_equal": is_equal, **moved}
        torch.distributed.barrier()
        print(json.dumps(results), flush=True)


if __name__ == "__main__":
    main()
