"""PP2 x PCP2 over gloo in four processes; see :mod:`tests.host.stages`."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT_S = 100

SCENARIOS = [
    "feedback_reaches_requests",
    "freed_slot_is_left_out",
    "permuted_requests_are_caught",
    "swapped_steps_are_caught",
]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    init_file = tmp_path_factory.mktemp("stages") / "init"
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.host.stages", str(rank), str(init_file)],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        for rank in range(4)
    ]
    try:
        yield [process.communicate(timeout=LIMIT_S)[0] for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.timeout(LIMIT_S + 20)
def test_four_processes(scenario: str, outputs: list[str]) -> None:
    for rank, output in enumerate(outputs):
        assert f"{scenario}: done" in output.splitlines(), f"rank {rank}:\n{output}"
    if scenario.endswith("are_caught"):
        caught = [f"{scenario} caught: [feedback] received" in out for out in outputs]
        assert caught == [True, True, False, False], outputs
