"""The command that a newcomer runs first."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from pyvllm_pp.cli.processes import session_processes
from pyvllm_pp.host.cpu.binding import share_cores

pytestmark = pytest.mark.timeout(420)
COMMAND = [sys.executable, "-m", "pyvllm_pp.cli", "demo"]


class Demo(NamedTuple):
    """What the command left."""

    stdout: str
    report: Path
    kept: Path


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    directory = tmp_path_factory.mktemp("demo")
    report, kept = directory / "demo.json", directory / "kept"
    options = ["--json", str(report), "--keep", str(kept)]
    done = subprocess.run(
        [*COMMAND, *options], capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr
    return Demo(done.stdout, report, kept)


def test_demo_pp2_pcp2_equals_its_control(demo: Demo) -> None:
    assert "PP2+PCP2" in demo.stdout
    content = json.loads(demo.report.read_text())
    assert content["equal"] is True
    assert content["max_logprob_diff"] < 1e-4
    control, other = content["runs"]
    assert (control["name"], control["pp"], control["pcp"]) == ("PCP2", 1, 2)
    assert (other["name"], other["pp"], other["pcp"]) == ("PP2+PCP2", 2, 2)
    for run in content["runs"]:
        assert [len(tokens) for tokens in run["token_ids"]] == [8, 8]
        assert run["token_ids"] == control["token_ids"]
        assert run["output_logprob_counts"] == [8, 8]
        assert run["prompt_logprob_counts"] == [607, 7]
        assert run["vllm"] == "0.32.0"
        assert run["runner"] == "PipelineCPUModelRunner"
        assert run["pcp_manager"] == "NativePCPManager"
    assert (demo.kept / "PP2+PCP2" / "engine.log").stat().st_size > 0
    assert (demo.kept / "model" / "config.json").exists()


def test_c18_cores_are_shared_by_themselves(demo: Demo) -> None:
    """Four workers on one NUMA node, started as a user's: nothing says which cores."""
    log = (demo.kept / "PP2+PCP2" / "engine.log").read_text()
    said = re.findall(r"\d+ workers share .*", log)
    cores = sorted(os.sched_getaffinity(0))
    expected = f"worker by worker: {share_cores(cores, 4)}"
    assert said == [f"4 workers share {len(cores)} cores, {expected}"]


def test_demo_told_to_end_leaves_no_process() -> None:
    with subprocess.Popen(COMMAND, stdout=subprocess.DEVNULL) as demo:
        session = session_of_workers(demo.pid)
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(timeout=30) == 128 + signal.SIGTERM
    assert session_processes(session) == []


def session_of_workers(parent: int, limit_s: float = 120.0) -> int:
    """The session of a program's engine, once its workers run."""
    children = Path(f"/proc/{parent}/task/{parent}/children")
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        for session in map(int, children.read_text().split()):
            if any(each.is_worker for each in session_processes(session)):
                return session
        time.sleep(0.2)
    raise AssertionError(f"no worker within {limit_s} s")
