"""Starts the ranks of a gloo group, each in a process of its own."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_ranks(
    module: str,
    size: int,
    *args: str,
    limit_s: float = 100,
    env: Mapping[str, str] | None = None,
) -> list[str]:
    """Run ``python -m module RANK INIT_FILE ARGS`` on every rank.

    Args:
        module: the program.
        size: number of ranks.
        args: more arguments of each.
        limit_s: seconds after which all are killed.
        env: their environment, this process's if None.

    Returns:
        What each rank printed; on failure that is its traceback.

    Raises:
        subprocess.TimeoutExpired: a rank took too long. No process is left then either.
    """
    with tempfile.TemporaryDirectory(prefix="pyvllm-pp-") as directory:
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", module, str(rank), f"{directory}/init", *args],
                cwd=ROOT,
                env={
                    **(env or os.environ),
                    "OMP_NUM_THREADS": "1",
                    "GLOO_SOCKET_IFNAME": "lo",
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            for rank in range(size)
        ]
        try:
            return [process.communicate(timeout=limit_s)[0] for process in processes]
        finally:
            for process in processes:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
