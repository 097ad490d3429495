"""The comparison of runs: what counts as equal, and what the report says."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyvllm_pp.cli.compare import Finished, compare
from pyvllm_pp.cli.demo import demo_prompts, demo_run
from pyvllm_pp.cli.main import app
from pyvllm_pp.cli.runs import (
    CallResult,
    EngineResult,
    Output,
    Sample,
    WorkerReport,
)
from pyvllm_pp.cli.topology import with_control


def finished(
    pp: int,
    token_ids: list[int],
    logprobs: list[float],
    *,
    prompt_logprobs: tuple[float, ...] = (-1.0, -2.0),
    managers: tuple[str | None, ...] = ("Manager", "Manager"),
) -> Finished:
    sample = Sample(
        token_ids=token_ids, logprobs=logprobs, finish_reason="length", stop_reason=None
    )
    output = Output(
        samples=[sample],
        num_prompt_logprobs=len(prompt_logprobs) + 1,
        prompt_logprobs=list(prompt_logprobs),
        num_cached_tokens=None,
    )
    workers = [
        WorkerReport(rank=i, pp_rank=0, pcp_rank=i, runner="Runner", pcp_manager=name)
        for i, name in enumerate(managers)
    ]
    run = demo_run(Path("model"), pp=pp, pcp=2)
    result = EngineResult(
        name=run.name,
        calls=[CallResult(outputs=[output], seconds=1.5)],
        workers=workers,
        start_seconds=2.0,
        vllm="0.32.0",
    )
    return Finished(run, result)


def test_equal_runs_report_their_difference_and_classes() -> None:
    report = compare(
        [finished(1, [5, 6], [-0.5, -0.25]), finished(2, [5, 6], [-0.5, -0.375])]
    )
    assert report.equal
    assert report.max_logprob_diff == 0.125
    assert report.model_dump()["runs"][1] == {
        "name": "PP2+PCP2",
        "pp": 2,
        "pcp": 2,
        "token_ids": [[5, 6]],
        "output_logprob_counts": [2],
        "prompt_logprob_counts": [3],
        "seconds": 3.5,
        "vllm": "0.32.0",
        "runner": "Runner",
        "pcp_manager": "Manager",
    }


def test_another_token_is_not_equal_and_ends_the_comparison_of_logprobs() -> None:
    report = compare(
        [finished(1, [5, 6], [-0.5, -0.25]), finished(2, [5, 7], [-0.5, -9.0])]
    )
    assert not report.equal
    assert report.max_logprob_diff == 0.0


@pytest.mark.parametrize(
    "other",
    [
        finished(2, [5], [-0.5, -0.25]),
        finished(2, [5, 6], [-0.5]),
        finished(2, [5, 6], [-0.5, -0.25], prompt_logprobs=(-1.0,)),
    ],
    ids=["fewer tokens", "fewer output logprobs", "fewer prompt logprobs"],
)
def test_every_count_counts(other: Finished) -> None:
    assert not compare([finished(1, [5, 6], [-0.5, -0.25]), other]).equal


def test_prompt_logprobs_are_compared() -> None:
    other = finished(2, [5], [-0.5], prompt_logprobs=(-1.0, -2.5))
    assert compare([finished(1, [5], [-0.5]), other]).max_logprob_diff == 0.5


def test_workers_that_disagree_are_named() -> None:
    mixed = finished(2, [5], [-0.5], managers=("Manager", None))
    with pytest.raises(ValueError, match=r"PP2\+PCP2 report \['Manager', 'None'\]"):
        compare([finished(1, [5], [-0.5]), mixed])


def test_no_runs() -> None:
    with pytest.raises(ValueError, match="no runs"):
        compare([])


@pytest.mark.parametrize(
    ("pp", "pcp", "control"), [(2, 2, "PCP2"), (1, 2, "PCP1"), (3, 1, "PCP1")]
)
def test_the_control_lacks_what_is_proved(pp: int, pcp: int, control: str) -> None:
    first, second = with_control(demo_run(Path("model"), pp=pp, pcp=pcp))
    assert first.name == control
    assert (second.pp, second.pcp) == (pp, pcp)


def test_demo_without_pp_and_pcp_ends_at_once() -> None:
    result = CliRunner().invoke(app, ["demo", "--pp", "1", "--pcp", "1"])
    assert result.exit_code == 2
    assert "pp=1, pcp=1: nothing to compare" in result.output


def test_demo_prompts_are_chunked_and_mixed() -> None:
    prompts = demo_prompts()
    assert [len(prompt) for prompt in prompts] == [607, 7]
    assert prompts == demo_prompts()


def test_verify_names_a_model_without_a_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    result = CliRunner().invoke(app, ["verify", str(tmp_path)])
    assert result.exit_code == 2
    assert "no vocab_size" in result.output
