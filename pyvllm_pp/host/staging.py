"""Host memory that the core writes a step's device tables into, and its one copy."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray

from pyvllm_pp.tables import ArenaRing, DeviceSizes

_LINE = 64
_NUM_SIZES = 64
_TABLE_DTYPES: tuple[torch.dtype, ...] = (
    torch.int64,  # hidden_restore_idx
    torch.int64,  # padded_gather_idx
    torch.int64,  # idx_mapping
    torch.int64,  # selected_local_idx
    torch.int64,  # selected_restore_idx
    torch.int32,  # query_start_loc
    torch.int32,  # cu_num_logits
    torch.int32,  # logits_indices
    torch.bool,  # gathered_kv_write_mask
    torch.bool,  # gathered_is_padding
)

_WIDTHS = [dtype.itemsize for dtype in _TABLE_DTYPES]


class DeviceTables(NamedTuple):
    """The tables of :class:`pyvllm_pp.tables.DeviceTables` as device tensors."""

    hidden_restore_idx: torch.Tensor
    padded_gather_idx: torch.Tensor
    idx_mapping: torch.Tensor
    selected_local_idx: torch.Tensor
    selected_restore_idx: torch.Tensor
    query_start_loc: torch.Tensor
    cu_num_logits: torch.Tensor
    logits_indices: torch.Tensor
    gathered_kv_write_mask: torch.Tensor
    gathered_is_padding: torch.Tensor


class Event(Protocol):
    """What the ring needs of a ``torch.cuda.Event``."""

    def record(self) -> None:
        """Mark the present end of the current stream."""

    def query(self) -> bool:
        """Whether the stream has passed the mark."""


class _Slot:
    """A host buffer, its device buffer, and the views that tables are cut from."""

    def __init__(self, num_bytes: int, device: torch.device, on_host: bool) -> None:
        self.host = new_host_buffer(num_bytes, device)
        self.arena = cast("NDArray[np.uint8]", self.host.numpy())
        self.device = (
            self.host if on_host else torch.empty_like(self.host, device=device)
        )
        views = {dtype: self.device.view(dtype) for dtype in set(_TABLE_DTYPES)}
        # Sizes repeat from step to step, and views cost more than what they show.
        self.tables = lru_cache(_NUM_SIZES)(lambda sizes: _cut(views, sizes))
        self.event: Event | None = None


def new_host_buffer(num_bytes: int, device: torch.device) -> torch.Tensor:
    """Host memory for tables, pinned where the device is not the host."""
    pinned = device.type != "cpu"
    return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=pinned)


class Staging:
    """A ring of staging buffers, pinned on a GPU, each one step's memory.

    On CPU the device tables *are* the host buffer, so the depth of the ring alone keeps
    a step in flight from being overwritten. On a GPU the tables are overwritten in
    stream order, and a host buffer is not reused before its copy is done: one that is
    still being copied is left alone and fresh pinned memory used for that step, so that
    the host never waits for the device.

    Args:
        num_bytes: bytes that any step fits into.
        depth: number of buffers, at least the steps in flight plus one.
        device: where the tables go.
        make_event: makes the events of the ring; none are used on CPU.
    """

    def __init__(
        self,
        num_bytes: int,
        depth: int,
        device: torch.device,
        make_event: Callable[[], Event] | None = None,
    ) -> None:
        self._device = device
        self._on_host = device.type == "cpu" and make_event is None
        self._make_event: Callable[[], Event] = make_event or torch.cuda.Event
        self._num_bytes = -(-num_bytes // _LINE) * _LINE
        self._slots = [
            _Slot(self._num_bytes, device, self._on_host) for _ in range(depth)
        ]
        self._ring = ArenaRing([slot.arena for slot in self._slots])
        self._index, _ = self._ring.next()
        self._fresh: torch.Tensor | None = None
        self.num_copies = 0
        self.num_fresh = 0

    def peek(self) -> NDArray[np.uint8]:
        """The memory of the next step, for the core to write into."""
        slot = self._slots[self._index]
        self._fresh = None
        if slot.event is None or slot.event.query():
            return slot.arena
        self.num_fresh += 1
        self._fresh = new_host_buffer(self._num_bytes, self._device)
        return cast("NDArray[np.uint8]", self._fresh.numpy())

    def commit(self, sizes: DeviceSizes) -> DeviceTables:
        """Copy what was written in one piece, and rotate.

        On CPU nothing is copied: the tables are views of the buffer, which is not
        written again before ``depth - 1`` further commits.
        """
        slot = self._slots[self._index]
        if not self._on_host:
            self._copy(slot, sum(sizes))
        tables: DeviceTables = slot.tables(sizes)
        self._index, _ = self._ring.next()
        return tables

    def _copy(self, slot: _Slot, num_bytes: int) -> None:
        source = slot.host if self._fresh is None else self._fresh
        slot.device[:num_bytes].copy_(source[:num_bytes], non_blocking=True)
        self.num_copies += 1
        if self._fresh is None:
            slot.event = slot.event or self._make_event()
            slot.event.record()


def _cut(views: dict[Any, torch.Tensor], sizes: DeviceSizes) -> DeviceTables:
    tables = []
    start = 0
    for dtype, width, num_bytes in zip(_TABLE_DTYPES, _WIDTHS, sizes, strict=True):
        end = start + num_bytes
        tables.append(views[dtype][start // width : end // width])
        start = end
    return DeviceTables(*tables)
