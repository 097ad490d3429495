"""Medians of interleaved calls, in CPU time of this thread."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

# A sample shorter than this is made of several calls: reading the clock costs too.
_SHORTEST_SAMPLE_NS = 50_000
NUM_SAMPLES = 200


class Times(NamedTuple):
    """Microseconds of one call; the ratio is that of the medians."""

    stock: float
    ours: float

    @property
    def ratio(self) -> float:
        """How many times faster ours is."""
        return self.stock / self.ours


def interleaved(
    *sides: Callable[[int], object], num_samples: int = NUM_SAMPLES
) -> list[float]:
    """Median microseconds of a call of each side, one sample of each in turn.

    Args:
        sides: called with the number of the step, from 0.
        num_samples: samples a side, each of one call or more.
    """
    calls = [_calls_per_sample(side) for side in sides]
    samples: list[list[float]] = [[] for _ in sides]
    step = 0
    for _ in range(num_samples):
        for side, count, times in zip(sides, calls, samples, strict=True):
            times.append(_sample(side, step, count))
            step += count
    return [statistics.median(times) for times in samples]


def compare(stock: Callable[[int], object], ours: Callable[[int], object]) -> Times:
    """Medians of both sides."""
    return Times(*interleaved(stock, ours))


def _calls_per_sample(side: Callable[[int], object]) -> int:
    warm = [_sample(side, step, 1) for step in range(10)]
    return max(1, int(_SHORTEST_SAMPLE_NS / 1e3 / statistics.median(warm)))


def _sample(side: Callable[[int], object], first: int, count: int) -> float:
    steps: Sequence[int] = range(first, first + count)
    begin = time.thread_time_ns()
    for step in steps:
        side(step)
    return (time.thread_time_ns() - begin) / count / 1e3
