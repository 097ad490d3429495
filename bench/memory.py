"""Memory of the host side of a step: a bound, and what is really allocated."""

import ctypes
import gc
from typing import NamedTuple

import numpy as np
import torch

from bench.section import Section, Table, Target
from bench.shapes import MEMORY
from pyvllm_pp.batch import Batch
from pyvllm_pp.feedback import FeedbackRing
from pyvllm_pp.host.staging import Staging
from pyvllm_pp.plan import Partition, PlanConfig, Planner
from pyvllm_pp.tables import TableWriter, device_arena_bytes, host_arena_bytes

# Ring buffers of a run without PP, and the ring of four stages' feedback.
_DEPTH = 3
_NUM_STAGES = 4
_MIB = 1 << 20


class _Mallinfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def heap_bytes() -> int:
    """Bytes that this process has from malloc, mapped blocks included."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    gc.collect()
    info = mallinfo()
    return int(info.uordblks) + int(info.hblkhd)


class Core(NamedTuple):
    """All that one rank keeps for its steps."""

    planner: Planner
    writer: TableWriter
    staging: Staging
    feedback: FeedbackRing

    @classmethod
    def make(cls, config: PlanConfig) -> "Core":
        """As a manager and a handler make them."""
        return cls(
            Planner(config),
            TableWriter(config, rank=0),
            Staging(device_arena_bytes(config), _DEPTH, torch.device("cpu")),
            FeedbackRing(depth=_NUM_STAGES, max_num_reqs=MEMORY["max_num_reqs"]),
        )

    def step(self, batch: Batch) -> tuple[int, int]:
        """A step padded to the most; bytes of its device and its host tables."""
        tables = self.writer.write(
            self.planner.plan(batch.num_scheduled_tokens, batch.is_prefilling),
            batch,
            self.staging.peek(),
            padded_num_tokens=MEMORY["max_num_tokens"],
            padded_num_reqs=2 * MEMORY["max_num_reqs"],
        )
        self.staging.commit(tables.device_sizes)
        return sum(tables.device_sizes), sum(array.nbytes for array in tables.host)


def measure() -> Section:
    """The bound of the configuration, against the heap before and after."""
    config = PlanConfig(
        pcp_size=MEMORY["pcp_size"],
        dcp_size=1,
        shard_decode_requests=True,
        partition=Partition.dual_chunk_swap,
        max_num_reqs=MEMORY["max_num_reqs"],
        max_num_tokens=MEMORY["max_num_tokens"],
    )
    device, host = device_arena_bytes(config), host_arena_bytes(config)
    Core.make(config)  # what torch and NumPy allocate once
    before = heap_bytes()
    core = Core.make(config)
    allocated = heap_bytes() - before
    used = [core.step(_batch(first)) for first in (64, 63, 64, 63)]
    grown = heap_bytes() - before - allocated
    assert all(d <= device and h <= host for d, h in used), (used, device, host)
    rows: list[list[str | float | int]] = [
        ["device tables of a step, bound", device],
        ["device tables of a full step padded to the most, written", used[0][0]],
        ["host tables of a step, bound", host],
        ["host tables of that step, written", used[0][1]],
        [f"allocated at start, with {_DEPTH} steps' device tables", allocated],
    ]
    return Section(
        title="Memory",
        parts=[
            f"{MEMORY['max_num_reqs']:,} requests, {MEMORY['max_num_tokens']:,} "
            f"tokens, PCP {MEMORY['pcp_size']}, one rank: planner, tables, staging "
            f"ring and feedback ring of {_NUM_STAGES} stages. Allocated is what malloc "
            "says. On a GPU the ring is pinned and exists on the device too.",
            Table(header=["what", "bytes"], rows=rows),
        ],
        targets=[
            Target(
                what="allocated beside the ring's bound",
                value=(allocated - _DEPTH * device) / _MIB,
                limit=1,
                kind="at most",
                unit=" MiB",
            ),
            Target(
                what="more on the heap after four full steps",
                value=grown / _MIB,
                limit=0.1,
                kind="at most",
                unit=" MiB",
            ),
        ],
        data={
            "device_bytes": device,
            "host_bytes": host,
            "allocated_bytes": allocated,
            "grown_bytes": grown,
        },
    )


def _batch(first: int) -> Batch:
    """Prompts that fill the limits; the first one's tokens tell batches apart."""
    num_reqs = MEMORY["max_num_reqs"]
    each = MEMORY["max_num_tokens"] // num_reqs
    scheduled = np.full(num_reqs, each, dtype=np.int32)
    scheduled[0] = first
    return Batch(
        num_scheduled_tokens=scheduled,
        is_prefilling=np.ones(num_reqs, dtype=np.bool_),
        query_start_loc=np.concatenate([[0], np.cumsum(scheduled)]).astype(np.int32),
        num_computed_tokens=np.zeros(num_reqs, dtype=np.int32),
        prefill_len=scheduled,
        idx_mapping=np.arange(num_reqs, dtype=np.int64),
    )
