"""Torch operations and host-to-device copies of a manager's step, counted.

The device is torch's ``meta``: every operation runs as it would on a GPU, without data,
and what crosses from the host to it is a copy as on a GPU.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, NamedTuple

import pytest
import torch
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from vllm.v1.worker.gpu import pcp_manager

from pyvllm_pp.host import staging
from pyvllm_pp.host.pcp import NativePCPManager
from pyvllm_pp.host.settings import Settings
from tests.host.batches import Request, Topology, scheduled_arrays
from tests.host.parity import NO_GRAPH, make_manager

META = torch.device("meta")


class Counts(NamedTuple):
    """Of one step."""

    torch_operations: int
    # Without views: what would be launched on a GPU.
    kernels: int
    host_to_device_copies: int


class Counter(TorchDispatchMode):
    """Counts what runs below it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.num_kernels = 0
        self.num_copies = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run and count one operation."""
        out = func(*args, **(kwargs or {}))
        self.names.append(str(func))
        given = _devices((args, kwargs))
        self.num_copies += "cpu" in given and _devices(out) == {"meta"}
        self.num_kernels += not _is_view(func) and "meta" in given | _devices(out)
        return out

    def counts(self) -> Counts:
        """What was counted since the last call."""
        counts = Counts(len(self.names), self.num_kernels, self.num_copies)
        self.names, self.num_kernels, self.num_copies = [], 0, 0
        return counts


def _devices(values: Any) -> set[str]:
    return {t.device.type for t in tree_leaves(values) if isinstance(t, torch.Tensor)}


def _is_view(func: Any) -> bool:
    return any(
        value.alias_info is not None and not value.alias_info.is_write
        for value in func._schema.returns
    ) or str(func).startswith(("aten.empty", "aten.detach"))


class _IdleEvent:
    """An event of a stream that is never behind."""

    def record(self) -> None:
        """Nothing to mark."""

    def query(self) -> bool:
        """Whether the stream has passed the mark."""
        return True


@contextmanager
def _as_on_a_gpu() -> Iterator[None]:
    """Undo what vLLM's CPU build puts in place of copies, and what needs a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pcp_manager, "async_tensor_h2d", _to_device)
        patch.setattr(torch.cuda, "Event", _IdleEvent)
        # Pinned memory does not exist without a GPU.
        patch.setattr(
            staging,
            "new_host_buffer",
            lambda num_bytes, _: torch.empty(num_bytes, dtype=torch.uint8),
        )
        yield


def _to_device(
    data: NDArray[Any],
    device: torch.device | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """``async_tensor_h2d`` as vLLM has it for GPUs, of an array."""
    host = torch.from_numpy(data)
    return host.to(device) if out is None else out.copy_(host, non_blocking=True)


def managers_on_meta(topology: Topology, rank: int) -> tuple[Any, Any]:
    """Stock's manager and ours, on a device that is not the host."""
    with _as_on_a_gpu():
        native = NativePCPManager.configured(Settings(), 2)
        return (
            make_manager(pcp_manager.PCPManager, topology, rank, device=META),
            make_manager(native, topology, rank, device=META),
        )


def on_meta(batch: Any) -> Any:
    """The batch with its device tensors on ``meta``; host arrays stay."""
    host = {"seq_lens_cpu_upper_bound"}
    return replace(
        batch,
        **{
            field.name: value.to(META)
            for field in fields(batch)
            if isinstance(value := getattr(batch, field.name), torch.Tensor)
            and field.name not in host
        },
    )


def count_steps(manager: Any, steps: list[tuple[list[Request], Any]]) -> list[Counts]:
    """Counts of each step, given as its requests and its batch on ``meta``."""
    counted = []
    with _as_on_a_gpu(), Counter() as counter:
        for requests, batch in steps:
            arrays = scheduled_arrays(requests)
            counter.counts()
            manager.get_num_tokens_for_dispatch(*arrays)
            manager.partition_batch(batch, NO_GRAPH)
            counted.append(counter.counts())
    return counted
