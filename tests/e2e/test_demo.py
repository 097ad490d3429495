"""The command that a newcomer runs first."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from pyvllm_pp.host.cpu.binding import share_cores

pytestmark = pytest.mark.timeout(420)


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
    command = [sys.executable, "-m", "pyvllm_pp.cli", "demo", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
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
