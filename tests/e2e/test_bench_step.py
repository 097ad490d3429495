"""The command that shows where the time of a step goes, in real vLLM."""

import subprocess
import sys
from pathlib import Path

import pytest

from pyvllm_pp.cli.breakdown import Breakdown
from pyvllm_pp.ranges import Range

SIZES = {"--requests": "4", "--input-len": "16", "--output-len": "8"}
# On every worker of PP2+PCP2; restore and sampling are the last stage's.
EVERYWHERE = {
    *("execute_model", "sample_tokens", "request_state", "feedback", "plan"),
    *("prepare_inputs", "tables", "block_tables", "attention_metadata", "forward"),
}
LAST_STAGE = {"restore", "sample", "post_update"}


@pytest.mark.long
@pytest.mark.timeout(180)
def test_bench_step_of_pp2_pcp2(tmp_path: Path) -> None:
    report = tmp_path / "step.json"
    options = [word for option in SIZES.items() for word in option]
    command = [sys.executable, "-m", "pyvllm_pp.cli", "bench", "step", *options]
    command += ["--json", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    for name in (Range.plan, Range.tables, Range.feedback, Range.forward):
        assert name.title in done.stdout

    shares = Breakdown.model_validate_json(report.read_text())
    assert shares.name == "PP2+PCP2"
    scheduler, *workers = shares.workers
    assert set(scheduler.us) == {"scheduler"}
    titles = [worker.title for worker in workers]
    assert titles == [f"PP{pp} PCP{pcp}" for pp in (0, 1) for pcp in (0, 1)]
    for worker in workers:
        is_last = worker.title.startswith("PP1")
        assert set(worker.us) >= EVERYWHERE | (LAST_STAGE if is_last else set())
        assert is_last or not set(worker.us) & {"restore", "sample"}
        assert worker.num_steps >= int(SIZES["--output-len"])
        assert all(us >= 0 for us in worker.us.values())
        assert sum(worker.us.values()) <= worker.step_us
