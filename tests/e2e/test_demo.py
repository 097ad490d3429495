"""The command that a newcomer runs first."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(420)
def test_demo_pp2_pcp2_equals_its_control(tmp_path: Path) -> None:
    report = tmp_path / "demo.json"
    kept = tmp_path / "kept"
    options = ["--json", str(report), "--keep", str(kept)]
    command = [sys.executable, "-m", "pyvllm_pp.cli", "demo", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert "PP2+PCP2" in done.stdout

    content = json.loads(report.read_text())
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
    assert (kept / "PP2+PCP2" / "engine.log").stat().st_size > 0
    assert (kept / "model" / "config.json").exists()
