"""Runs one engine in processes of its own, and always ends them.

An engine that fails ends within seconds, with the error of the worker that failed
first: vLLM itself may wait for minutes in a collective whose peer is gone.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from pyvllm_pp.cli import child
from pyvllm_pp.cli.blame import is_fatal, root_cause, unexpected_death
from pyvllm_pp.cli.processes import (
    Process,
    end_session,
    session_processes,
    shared_memory,
)
from pyvllm_pp.cli.runs import EngineResult, EngineRun
from pyvllm_pp.cli.termination import raise_at_termination

_POLL_S = 0.2
# From the first sign of a failure to the end: time for its text to be written.
_SETTLE_S = 3.0
# vLLM's own shutdown gives its workers 5 seconds, then kills them.
_STOP_S = 20.0
_LOG = "engine.log"

_ENV = {
    "HF_HUB_OFFLINE": "1",
    "PYTHONFAULTHANDLER": "1",
    "PYTHONUNBUFFERED": "1",
    "VLLM_LOGGING_LEVEL": "INFO",
    "VLLM_NO_USAGE_STATS": "1",
    # All on one machine, with or without a network.
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
}


class EngineError(RuntimeError):
    """An engine failed; the text is the error of the process that failed first.

    Attributes:
        error: that error alone, with the process in front.
        log: everything that the engine wrote.
    """

    def __init__(self, name: str, error: str, detail: str, log: str) -> None:
        super().__init__(f"{name}: {error}" + (f"\n{detail}" if detail else ""))
        self.error = error
        self.log = log


class Progress(NamedTuple):
    """What an engine is doing now."""

    phase: str
    seconds: float
    workers: list[Process]


OnProgress = Callable[[Progress], None]


class Launched(Protocol):
    """What is used of a ``subprocess.Popen`` that leads a session of its own."""

    @property
    def pid(self) -> int:
        """Its process id, which is also its session's."""

    def poll(self) -> int | None:
        """The exit code, negative for a signal, once it has ended."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, or raise ``subprocess.TimeoutExpired``."""


# Starts the program of ``child`` for a directory, with an environment and a log file.
Launch = Callable[[Path, dict[str, str], Path], Launched]


def spawn(directory: Path, env: dict[str, str], log: Path) -> Launched:
    """Start an engine in a new interpreter, as a user's is started."""
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "pyvllm_pp.cli.child", str(directory)],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def run_engine(
    run: EngineRun,
    *,
    limit_s: float = 300.0,
    on_progress: OnProgress = lambda _: None,
    keep: Path | None = None,
    launch: Launch = spawn,
) -> EngineResult:
    """Run an engine to its end.

    Args:
        run: what to run.
        limit_s: seconds after which the engine is killed.
        on_progress: called a few times a second.
        keep: where the request, the result and the log are left; nowhere if None.
        launch: how the engine's first process is started.

    Returns:
        The result. No process of the engine is left.

    Raises:
        EngineError: the engine failed or took too long. No process is left either.
        SystemExit: SIGTERM or SIGHUP came. No process is left either.
    """
    with (
        raise_at_termination(),
        # A short path: sockets are made below it, and their names are limited.
        tempfile.TemporaryDirectory(prefix="pyvllm-pp-") as temporary,
    ):
        directory = Path(temporary)
        try:
            return _Engine(run, directory, launch).wait(limit_s, on_progress)
        finally:
            if keep is not None:
                _keep(directory, keep)


class _Engine:
    """A running engine and the files that it writes."""

    def __init__(self, run: EngineRun, directory: Path, launch: Launch) -> None:
        self._run, self._directory = run, directory
        (directory / child.REQUEST).write_text(run.model_dump_json())
        env = {**_ENV, **os.environ, "TMPDIR": str(directory), **run.env}
        # Read from the first moment on, whenever the engine comes to open it.
        (directory / _LOG).touch()
        self._process = launch(directory, env, directory / _LOG)
        self._begin = time.monotonic()
        self._workers: dict[int, Process] = {}

    def wait(self, limit_s: float, on_progress: OnProgress) -> EngineResult:
        try:
            problem = self._watch(limit_s, on_progress)
            # Read before the end: those that are killed then complain too.
            error = None if problem is None else self._error(problem)
        finally:
            self._end()
        if error is not None:
            raise error
        text = (self._directory / child.RESULT).read_text()
        return EngineResult.model_validate_json(text)

    def _watch(self, limit_s: float, on_progress: OnProgress) -> str | None:
        """Wait for the result or the first sign of a failure, which is returned."""
        while not (self._directory / child.RESULT).exists():
            seconds = time.monotonic() - self._begin
            on_progress(Progress(self._phase(), seconds, list(self._workers.values())))
            if seconds > limit_s:
                return f"took longer than {limit_s:.0f} s ({self._phase()})"
            problem = self._first_problem()
            if problem is not None:
                self._await_exit(_SETTLE_S)
                return problem
            time.sleep(_POLL_S)
        return None

    def _end(self) -> None:
        session = self._process.pid
        left_behind = shared_memory(session)
        if (self._directory / child.RESULT).exists():
            self._await_exit(_STOP_S)
        end_session(session, grace_s=_SETTLE_S)
        # The session is over; this collects its first process.
        self._process.wait()
        for path in left_behind:
            path.unlink(missing_ok=True)

    def _first_problem(self) -> str | None:
        if self._process.poll() is not None:
            # The result may have come since the caller looked.
            done = (self._directory / child.RESULT).exists()
            return None if done else f"ended with {_exit_text(self._process)}"
        running = {p.pid: p for p in session_processes(self._process.pid)}
        lost = [p for pid, p in self._workers.items() if pid not in running]
        self._workers |= {pid: p for pid, p in running.items() if p.is_worker}
        if (self._directory / child.RESULT).exists():
            return None
        if lost:
            return f"{lost[0].title} (pid {lost[0].pid}) died without an error"
        return "a process failed" if is_fatal(self._log()) else None

    def _await_exit(self, seconds: float) -> None:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return

    def _error(self, problem: str) -> EngineError:
        log = self._log()
        cause = root_cause(log)
        if cause is not None:
            error = f"{cause.process}: {cause.error}"
            return EngineError(self._run.name, error, cause.traceback, log)
        tail = "\n".join(log.splitlines()[-15:])
        problem = unexpected_death(log) or problem
        return EngineError(self._run.name, problem, tail, log)

    def _phase(self) -> str:
        try:
            return (self._directory / child.PHASE).read_text()
        except FileNotFoundError:
            return "starting"

    def _log(self) -> str:
        return (self._directory / _LOG).read_text(errors="replace")


def _exit_text(process: Launched) -> str:
    code = process.poll() or 0
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _keep(directory: Path, keep: Path) -> None:
    keep.mkdir(parents=True, exist_ok=True)
    for name in (child.REQUEST, child.RESULT, _LOG):
        if (directory / name).exists():
            shutil.copy(directory / name, keep / name)
