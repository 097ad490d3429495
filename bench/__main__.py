"""``python -m bench``: measure, write the page, and say which targets are met."""

# Patches torch for CPU; vLLM's runner modules must come after it.
import vllm.v1.worker.cpu.shm  # noqa: F401  # isort: skip

import importlib
import time
from typing import Annotated

import torch
import typer
from rich.console import Console

from bench.machine import Machine
from bench.report import Measured, Results

# In the order of the page: each a module of this folder with ``measure()``.
SECTIONS = [
    "core",
    "scaling",
    "step",
    "feedback",
    "memory",
    "engine",
    "overlap",
    "cpu_engine",
    "restore",
    "balance",
    "kernels",
]


def main(
    only: Annotated[
        list[str] | None, typer.Option(help="Measure this section alone.")
    ] = None,
) -> None:
    """Measure against stock vLLM; ends with 0 only when every target is met."""
    unknown = sorted(set(only or []) - set(SECTIONS))
    if unknown:
        raise typer.BadParameter(
            f"no section {', '.join(unknown)}; sections: {', '.join(SECTIONS)}"
        )
    torch.set_num_threads(1)
    console = Console()
    results, machine = Results.load(), Machine.this()
    missed = 0
    for name in only or SECTIONS:
        begin = time.monotonic()
        with console.status(f"{name} ..."):
            section = importlib.import_module(f"bench.{name}").measure()
        console.print(f"{section.title} ({time.monotonic() - begin:.0f} s)")
        for target in section.targets:
            word = "[green]PASS" if target.is_met else "[bold red]FAIL"
            console.print(f"  {word}[/] {target}", highlight=False)
            missed += not target.is_met
        results.sections[name] = Measured(machine=machine, section=section)
        results.write(SECTIONS)
    if missed:
        console.print(f"[bold red]{missed} targets missed")
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
