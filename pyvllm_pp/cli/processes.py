"""The processes of an engine: all of one session, found in ``/proc``."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

# vLLM's title of a worker process; the rest says its ranks.
_WORKER_TITLE = "VLLM::Worker"
# Shared memory of multiprocessing and of vLLM, which killed processes leave behind.
_SHARED_MEMORY = re.compile(r"/dev/shm/(?:psm_|vllm_)\S+")


class Process(NamedTuple):
    """A process as ``/proc`` shows it."""

    pid: int
    session: int
    state: str  # one letter; Z for a zombie
    title: str

    @property
    def is_worker(self) -> bool:
        """Whether it is one of vLLM's workers."""
        return self.title.startswith(_WORKER_TITLE)


def session_processes(session: int) -> list[Process]:
    """Live processes of a session; zombies, which wait for a parent only, are not."""
    found = [_read(int(path.name)) for path in Path("/proc").glob("[0-9]*")]
    return [p for p in found if p and p.session == session and p.state != "Z"]


def _read(pid: int) -> Process | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        title = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # The command's name may hold spaces and brackets; the last bracket ends it.
    state, _parent, _group, session, *_ = stat.rpartition(")")[2].split()
    text = title.replace(b"\0", b" ").decode(errors="replace").strip()
    return Process(pid, int(session), state, text)


def end_session(session: int, grace_s: float) -> None:
    """End every process of a session: asked first, killed `grace_s` seconds later."""
    _signal(session_processes(session), signal.SIGTERM)
    if not _wait(lambda: not session_processes(session), grace_s):
        _signal(session_processes(session), signal.SIGKILL)
        _wait(lambda: not session_processes(session), 5.0)


def shared_memory(session: int) -> set[Path]:
    """Files of shared memory that the processes of a session have mapped."""
    maps = [_read_maps(process.pid) for process in session_processes(session)]
    return {Path(name) for text in maps for name in _SHARED_MEMORY.findall(text)}


def _read_maps(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""


def _signal(processes: Iterable[Process], number: int) -> None:
    for process in processes:
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            continue


def _wait(is_done: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if is_done():
            return True
        time.sleep(0.05)
    return is_done()
