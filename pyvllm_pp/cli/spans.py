"""Where the time of a step went, read from the traces of ``torch.profiler``."""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyvllm_pp.cli.runs import RangeTime, WorkerProfile
from pyvllm_pp.ranges import PREFIX, Range


class Span(NamedTuple):
    """One range, entered once."""

    name: Range
    begin: float  # microseconds
    end: float


def read_trace(path: Path) -> list[Span]:
    """Our ranges of a trace file, in the order of their begin."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt") as file:
        events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return sorted(
        (
            Span(
                Range[event["name"].removeprefix(PREFIX)],
                float(event["ts"]),
                float(event["ts"]) + float(event["dur"]),
            )
            for event in events
            if event.get("ph") == "X"
            and event.get("cat") == "user_annotation"
            and event["name"].startswith(PREFIX)
        ),
        key=lambda span: (span.begin, -span.end),
    )


def range_times(spans: Sequence[Span]) -> list[RangeTime]:
    """Calls and time of each range, without that of the ranges inside it.

    Args:
        spans: those of one thread, ordered by begin; they nest.
    """
    calls: dict[Range, int] = defaultdict(int)
    own: dict[Range, float] = defaultdict(float)
    open_spans: list[Span] = []
    for span in spans:
        while open_spans and open_spans[-1].end <= span.begin:
            open_spans.pop()
        if open_spans:
            own[open_spans[-1].name] -= span.end - span.begin
        own[span.name] += span.end - span.begin
        calls[span.name] += 1
        open_spans.append(span)
    return [
        RangeTime(name=name.name, calls=calls[name], own_us=own[name])
        for name in Range
        if calls[name]
    ]


def worker_profile(worker: str, spans: Iterable[Span]) -> WorkerProfile:
    """The profile of one process; its steps are the calls of ``execute_model``."""
    ordered = list(spans)
    times = range_times(ordered)
    steps = {time.name: time.calls for time in times}
    num_steps = steps.get(Range.execute_model.name, steps.get(Range.scheduler.name, 0))
    wall = max(s.end for s in ordered) - ordered[0].begin if ordered else 0.0
    return WorkerProfile(worker=worker, num_steps=num_steps, wall_us=wall, ranges=times)
