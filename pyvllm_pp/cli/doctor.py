"""``pyvllm-pp doctor``: what this machine has, and what of it the backend can use."""

import importlib
import importlib.metadata
import os
import platform
from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple

import typer
from rich.table import Table

from pyvllm_pp.cli.session import DIFFERENT, console


class Verdict(Enum):
    """How a check ended; its value is the colour."""

    ok = "green"
    note = "yellow"
    problem = "red"


class Check(NamedTuple):
    """One line of the report."""

    name: str
    verdict: Verdict
    found: str


def doctor() -> None:
    """Say what is installed and whether the backend can run; exit 1 if it cannot."""
    checks = list(run_checks())
    table = Table("check", "verdict", "found", title="pyvllm-pp doctor")
    for check in checks:
        verdict = f"[{check.verdict.value}]{check.verdict.name}[/]"
        table.add_row(check.name, verdict, check.found)
    console().print(table)
    if any(check.verdict is Verdict.problem for check in checks):
        raise typer.Exit(DIFFERENT)


def run_checks() -> Iterator[Check]:
    """All checks; a check that raises is a problem with its error."""
    for name, check in _CHECKS.items():
        try:
            verdict, found = check()
        except Exception as error:  # a report shows any cause
            verdict, found = Verdict.problem, f"{type(error).__name__}: {error}"
        yield Check(name, verdict, found)


_Found = tuple[Verdict, str]


def _machine() -> _Found:
    cores = len(os.sched_getaffinity(0))
    system = f"{platform.system()} {platform.machine()}"
    return Verdict.ok, f"Python {platform.python_version()}, {system}, {cores} cores"


def _core() -> _Found:
    core = importlib.import_module("pyvllm_pp._core")
    return Verdict.ok, f"pyvllm_pp {_version('pyvllm-pp')}, {core.__name__} loads"


def _torch() -> _Found:
    torch = importlib.import_module("torch")
    gpus = torch.cuda.device_count()
    return Verdict.ok, f"torch {torch.__version__}, {gpus} GPUs"


def _vllm() -> _Found:
    from pyvllm_pp.host.compat import SUPPORTED, check_version

    check_version()
    vllm = importlib.import_module("vllm")
    return Verdict.ok, f"vLLM {vllm.__version__} (supported: {', '.join(SUPPORTED)})"


def _switch() -> _Found:
    from pyvllm_pp.host.settings import is_disabled

    if is_disabled():
        return Verdict.note, "PYVLLM_PP=0: the backend is switched off"
    return Verdict.ok, "the backend is on"


def _triton() -> _Found:
    backends = importlib.import_module("triton.backends").backends
    return Verdict.ok, f"Triton {_version('triton')}, backends: {', '.join(backends)}"


def _platform() -> _Found:
    current = importlib.import_module("vllm.platforms").current_platform
    return Verdict.ok, f"{type(current).__name__}: {_selection(current.is_cpu())}"


def _selection(is_cpu: bool) -> str:
    if is_cpu:
        return "a run with PP or PCP takes this backend by itself"
    return "select it with --worker-cls pyvllm_pp.GPUWorker"


def _version(distribution: str) -> str:
    return importlib.metadata.version(distribution)


_CHECKS: dict[str, Callable[[], _Found]] = {
    "machine": _machine,
    "core": _core,
    "switch": _switch,
    "torch": _torch,
    "vLLM": _vllm,
    "Triton": _triton,
    "platform": _platform,
}
