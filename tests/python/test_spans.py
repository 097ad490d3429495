"""Times of ranges that nest, read from a trace as torch.profiler writes it."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pyvllm_pp.cli.spans import Span, range_times, read_trace, worker_profile
from pyvllm_pp.ranges import Range

# Two steps: preparation holds the tables; sampling is a call of its own.
SPANS = [
    Span(Range.execute_model, 0, 100),
    Span(Range.prepare_inputs, 10, 40),
    Span(Range.tables, 20, 35),
    Span(Range.forward, 50, 90),
    Span(Range.sample_tokens, 120, 150),
    Span(Range.sample, 125, 145),
    Span(Range.execute_model, 200, 260),
    Span(Range.forward, 210, 250),
]


def test_time_of_a_range_is_without_those_inside_it() -> None:
    own = {time.name: (time.calls, time.own_us) for time in range_times(SPANS)}
    assert own == {
        "execute_model": (2, 30 + 20),
        "prepare_inputs": (1, 15),
        "tables": (1, 15),
        "forward": (2, 80),
        "sample_tokens": (1, 10),
        "sample": (1, 20),
    }


def test_own_times_add_up_to_the_time_inside_any_range() -> None:
    assert sum(time.own_us for time in range_times(SPANS)) == 100 + 30 + 60


def test_steps_are_the_calls_of_execute_model() -> None:
    profile = worker_profile("rank 0", SPANS)
    assert (profile.num_steps, profile.wall_us) == (2, 260)


def test_a_process_without_ranges_has_no_steps() -> None:
    profile = worker_profile("rank 0", [])
    assert (profile.num_steps, profile.wall_us, profile.ranges) == (0, 0, [])


def event(name: str, **values: Any) -> dict[str, Any]:
    span = {"ph": "X", "cat": "user_annotation", "name": name, "ts": 5.0, "dur": 2.0}
    return span | values


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_only_our_ranges_are_read_from_a_trace(tmp_path: Path, suffix: str) -> None:
    events = [
        event("pyvllm_pp.forward", ts=9.5),
        event("pyvllm_pp.execute_model", ts=1.0, dur=20.0),
        event("aten::add"),
        event("pyvllm_pp.sample", cat="gpu_user_annotation"),
        {"ph": "M", "name": "process_name"},
    ]
    path = tmp_path / f"trace{suffix}"
    opened = gzip.open if suffix.endswith("gz") else open
    with opened(path, "wt") as file:
        json.dump({"traceEvents": events}, file)
    assert read_trace(path) == [
        Span(Range.execute_model, 1.0, 21.0),
        Span(Range.forward, 9.5, 11.5),
    ]
