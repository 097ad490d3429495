"""Host memory that the core writes a step's device tables into, and its one copy."""

from collections.abc import Callable
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray

from pyvllm_pp.tables import ArenaRing


class Event(Protocol):
    """What the ring needs of a ``torch.cuda.Event``."""

    def record(self) -> None:
        """Mark the present end of the current stream."""

    def query(self) -> bool:
        """Whether the stream has passed the mark."""


class Staging:
    """A ring of staging buffers, pinned on a GPU, each one step's memory.

    On CPU the device tensor *is* the buffer, so the ring alone keeps a step in flight
    from being overwritten. On a GPU a buffer is not reused before its copy is done: a
    buffer still being copied is left alone and fresh pinned memory used for that step,
    so that the host never waits for the device.

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
        self._buffers = [self._new_buffer(num_bytes) for _ in range(depth)]
        self._ring = ArenaRing([buffer.numpy() for buffer in self._buffers])
        self._events: list[Event | None] = [None] * depth
        self._make_event: Callable[[], Event] = make_event or torch.cuda.Event
        self._current = 0
        self._buffer = self._buffers[0]
        self.num_fresh = 0

    def _new_buffer(self, num_bytes: int) -> torch.Tensor:
        pinned = self._device.type != "cpu"
        return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=pinned)

    def next(self) -> NDArray[np.uint8]:
        """Rotate to the next buffer and return it for the core to write into."""
        self._current, arena = self._ring.next()
        event = self._events[self._current]
        if event is not None and not event.query():
            self.num_fresh += 1
            fresh = self._new_buffer(arena.nbytes)
            self._buffer, self._events[self._current] = fresh, None
            # The ring keeps its own buffer; this one dies with the step's last use.
            return cast("NDArray[np.uint8]", fresh.numpy())
        self._buffer = self._buffers[self._current]
        return arena

    def to_device(self, num_bytes: int) -> torch.Tensor:
        """Copy the first `num_bytes` in one piece; uint8 ``[num_bytes]`` on the device.

        On CPU the result is a view of the buffer, which is not written again before
        ``depth - 1`` further steps.
        """
        host = self._buffer[:num_bytes]
        if self._on_host:
            return host
        device_bytes = host.to(self._device, non_blocking=True)
        if self._buffer is self._buffers[self._current]:
            event = self._events[self._current] or self._make_event()
            event.record()
            self._events[self._current] = event
        return device_bytes


def split_tables(
    packed: torch.Tensor, sizes: Any, dtypes: tuple[torch.dtype, ...]
) -> tuple[torch.Tensor, ...]:
    """Views of the tables that lie one after the other in `packed`, uint8."""
    return tuple(
        part.view(dtype)
        for part, dtype in zip(packed.split(sizes), dtypes, strict=True)
    )
