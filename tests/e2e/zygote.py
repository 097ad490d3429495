"""Starts engines by forking a process that has vLLM imported.

Importing vLLM takes longer than all else that a small engine does, and each process of
an engine imports it. Here one process imports it once; an engine's first process is its
fork, and vLLM forks the others (its default on GPUs). So an engine starts in seconds.
"""

import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Self

import setproctitle

# Names a function ``module:name`` that is called in the engine's first process, before
# anything is started: what it changes, all processes of the engine have.
HOOK_ENV = "PYVLLM_PP_TEST_HOOK"
_START_METHOD_ENV = "VLLM_WORKER_MULTIPROC_METHOD"
_INTERPRET_ENV = "TRITON_INTERPRET"
_READY = b"ready\n"
# Only this thread survives a fork: torch must not have made a pool of others.
_ENV = {"OMP_NUM_THREADS": "1", "VLLM_LOGGING_LEVEL": "INFO"}
# What engines import lazily, and each of its processes again.
_MODULES = (
    "vllm",
    "vllm.v1.engine.core",
    "vllm.v1.executor.multiproc_executor",
    "pyvllm_pp.cli.child",
    "pyvllm_pp.host.cpu.platform",
    "pyvllm_pp.host.cpu.worker",
    "vllm.model_executor.models.deepseek_v2",
)


class ForkedEngine:
    """A fork, as :class:`pyvllm_pp.cli.engine.Launched`."""

    def __init__(self, pid: int, answers: IO[bytes]) -> None:
        self.pid = pid
        self._answers = answers
        self._code: int | None = None

    def poll(self) -> int | None:
        return self._read(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._read(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("forked engine", timeout or 0.0)
        return code

    def _read(self, timeout: float | None) -> int | None:
        if self._code is None and select.select([self._answers], [], [], timeout)[0]:
            self._code = int(self._answers.readline())
        return self._code


class Zygote:
    """The process that is forked, for one engine at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            env={**os.environ, **_ENV},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._process.stdin
        assert self._process.stdout
        self._requests, self._answers = self._process.stdin, self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.close()
        self._process.wait(30)
        self._answers.close()

    def launch(self, directory: Path, env: dict[str, str], log: Path) -> ForkedEngine:
        """As :data:`pyvllm_pp.cli.engine.Launch`."""
        request = {"directory": str(directory), "env": env, "log": str(log)}
        self._requests.write(json.dumps(request).encode() + b"\n")
        answer = self._answers.readline()
        while answer == _READY:
            answer = self._answers.readline()
        return ForkedEngine(int(answer), self._answers)


def _serve() -> None:
    # Nothing but answers may reach the pipe.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    for name in _MODULES:
        importlib.import_module(name)
    # Finds the place of the title, which a changed environment hides.
    setproctitle.getproctitle()
    # What is imported stays: forks need not look at it again.
    gc.freeze()
    answers.write(_READY)
    for line in sys.stdin.buffer:
        pid = os.fork()
        if pid == 0:
            answers.close()
            _run(**json.loads(line))
        answers.write(b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        answers.write(b"%d\n" % os.waitstatus_to_exitcode(status))
    # Without exit handlers, which would look at all that was frozen.
    os._exit(0)


def _run(directory: str, env: dict[str, str], log: str) -> None:
    os.setsid()
    for source, flags, number in (
        (os.devnull, os.O_RDONLY, (0,)),
        (log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, (1, 2)),
    ):
        fd = os.open(source, flags, 0o600)
        for target in number:
            os.dup2(fd, target)
        os.close(fd)
    # Set when Triton was imported; modules with kernels, imported later, read it.
    interpret = os.environ.get(_INTERPRET_ENV)
    os.environ.clear()
    os.environ.update(env, **{_START_METHOD_ENV: "fork"})
    if interpret is not None:
        os.environ.setdefault(_INTERPRET_ENV, interpret)
    tempfile.tempdir = None
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = 1
    try:
        from pyvllm_pp.cli import child

        if hook := os.environ.get(HOOK_ENV):
            module, _, name = hook.partition(":")
            getattr(importlib.import_module(module), name)()
        child.main(Path(directory))
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Exit handlers are vLLM's way to end its other processes.
        import atexit

        atexit._run_exitfuncs()
        os._exit(code)


if __name__ == "__main__":
    _serve()
