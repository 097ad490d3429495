"""Profiles the workers and the scheduler of an engine while it answers calls."""

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pyvllm_pp.cli.runs import WorkerProfile
from pyvllm_pp.cli.spans import Span, read_trace, worker_profile
from pyvllm_pp.ranges import PREFIX, Range

Answer = TypeVar("Answer")

SCHEDULER = "scheduler"
_RANK = re.compile(r"rank(\d+)\.")


def profiler_config(directory: Path) -> dict[str, Any]:
    """VLLM's ``profiler_config`` for traces in `directory`."""
    return {
        "profiler": "torch",
        "torch_profiler_dir": str(directory),
        "torch_profiler_with_stack": False,
    }


def prepare() -> Path:
    """Prepare this process for a profiled engine, before vLLM is imported.

    Returns:
        A directory for its traces, inside the engine's own.
    """
    # The engine core must run in the process that profiles its scheduler.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    return Path(tempfile.mkdtemp(prefix="traces-"))


def profiled(
    llm: Any, directory: Path, answer: Callable[[], Answer]
) -> tuple[Answer, list[WorkerProfile]]:
    """Run `answer` under the profiler.

    Args:
        llm: an engine made after :func:`prepare`, with :func:`profiler_config`.
        directory: where its workers write their traces.
        answer: makes the engine work.

    Returns:
        What `answer` returned, and the scheduler's profile, then the workers' by rank.
    """
    from torch.profiler import ProfilerActivity, profile

    from pyvllm_pp.host.ranges import ranged

    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    for method in ("schedule", "update_from_output"):
        setattr(scheduler, method, ranged(getattr(scheduler, method), Range.scheduler))
    llm.start_profile()
    try:
        with profile(activities=[ProfilerActivity.CPU]) as own:
            answered = answer()
    finally:
        llm.stop_profile()
        for method in ("schedule", "update_from_output"):
            delattr(scheduler, method)
    workers = [
        worker_profile(f"rank {rank}", read_trace(path))
        for rank, path in sorted(_traces(directory))
    ]
    return answered, [worker_profile(SCHEDULER, _spans(own)), *workers]


def _traces(directory: Path) -> list[tuple[int, Path]]:
    found = []
    for path in directory.glob("*.pt.trace.json*"):
        match = _RANK.search(path.name)
        if match is not None:
            found.append((int(match.group(1)), path))
    return found


def _spans(profile: Any) -> list[Span]:
    spans = [
        Span(
            Range[event.name.removeprefix(PREFIX)],
            event.time_range.start,
            event.time_range.end,
        )
        for event in profile.events()
        if event.name.startswith(PREFIX)
    ]
    return sorted(spans, key=lambda span: (span.begin, -span.end))
