"""Runs engines one after the other with a progress display, and ends a command."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console
from rich.progress import Progress as Display
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from pyvllm_pp.cli.compare import Comparison, Finished, compare, comparison_table
from pyvllm_pp.cli.engine import EngineError, Progress, run_engine
from pyvllm_pp.cli.runs import EngineResult, EngineRun

# Exit codes; 2 is also what Typer ends with for wrong options.
DIFFERENT, FAILED = 1, 2

_FULL_WIDTH = 120


def console(*, stderr: bool = False) -> Console:
    """A console that keeps tables whole where the output is no terminal."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else _FULL_WIDTH)


def run_and_compare(
    runs: Sequence[EngineRun], *, limit_s: float, keep: Path | None, json: Path | None
) -> None:
    """Run a control and others, print the table, write `json`; exit 0 only if equal.

    Raises:
        typer.Exit: with 1 when results differ, with 2 when an engine failed.
    """
    comparison = compare(_run_all(runs, limit_s, keep))
    console().print(comparison_table(comparison))
    _write(comparison, json)
    if not comparison.equal:
        raise typer.Exit(DIFFERENT)


def fail(message: str) -> NoReturn:
    """End a command with an error.

    Raises:
        typer.Exit: with code 2, always.
    """
    console(stderr=True).print(message, style="bold red", markup=False)
    raise typer.Exit(FAILED)


def run_one(run: EngineRun, *, limit_s: float, keep: Path | None) -> EngineResult:
    """Run one engine under a progress display.

    Raises:
        typer.Exit: with 2 when it failed.
    """
    return _run_all([run], limit_s, keep)[0].result


def _run_all(
    runs: Sequence[EngineRun], limit_s: float, keep: Path | None
) -> list[Finished]:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.fields[phase]}"),
        TimeElapsedColumn(),
    )
    with Display(*columns, console=console(stderr=True)) as display:
        return [_run_one(run, display, limit_s, keep) for run in runs]


def _run_one(
    run: EngineRun, display: Display, limit_s: float, keep: Path | None
) -> Finished:
    title = f"{run.name} ({run.num_workers} workers)"
    task = display.add_task(title, phase="starting", total=1)

    def show(progress: Progress) -> None:
        display.update(task, phase=progress.phase)

    try:
        result = run_engine(
            run, limit_s=limit_s, on_progress=show, keep=keep and keep / run.name
        )
    except EngineError as error:
        display.stop()
        fail(str(error))
    display.update(task, phase="done", completed=1)
    return Finished(run, result)


def _write(comparison: Comparison, path: Path | None) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(comparison.model_dump_json(indent=2) + "\n")
