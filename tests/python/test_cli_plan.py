"""The command ``plan``: both policies' plans of a batch given on the command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from pyvllm_pp.cli.plan import Request, make_report, parse_request, plan

app = typer.Typer()
app.command()(plan)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_tables_of_both_policies() -> None:
    output = run("--pcp", "2", "607", "7", "1:300")
    dual, balanced = output.split("balanced")
    assert "dual_chunk_swap" in dual
    # The decode first, then each prompt's chunks; positions count from the request.
    assert "2[300:301] 0[0:152] 0[456:607] 1[0:2] 1[6:7]" in dual
    assert "largest over equal" in dual
    assert "2[300:301]" in balanced


def test_json_to_the_terminal_and_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "plan.json"
    arguments = ("--pcp", "2", "607", "7", "1:300")
    report = json.loads(run(*arguments, "--json", "-"))
    run(*arguments, "--json", str(path))
    assert json.loads(path.read_text()) == report
    assert report["pcp_size"] == 2
    assert [r["is_prefilling"] for r in report["requests"]] == [True, True, False]
    names = [policy["partition"] for policy in report["policies"]]
    assert names == ["dual_chunk_swap", "balanced"]
    for policy in report["policies"]:
        counts = [rank["num_tokens"] for rank in policy["ranks"]]
        assert sum(counts) == 615
        expected = max(counts) * 2 / 615
        assert policy["tokens_largest_over_equal"] == pytest.approx(expected)
        for rank in policy["ranks"]:
            lengths = [segment["num_tokens"] for segment in rank["segments"]]
            assert sum(lengths) == rank["num_tokens"]
            assert rank["attention_work"] == sum(
                segment["first_position"] + i + 1
                for segment in rank["segments"]
                for i in range(segment["num_tokens"])
            )


def test_the_balanced_plan_is_the_more_even_one() -> None:
    dual, balanced = make_report([parse_request("17")] * 64, pcp_size=4).policies
    assert balanced.tokens_largest_over_equal == 1
    assert dual.tokens_largest_over_equal > 1.4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("607", (607, 0, True)),
        ("1", (1, 0, True)),
        ("128:512", (128, 512, True)),
        ("1:300", (1, 300, False)),
    ],
)
def test_requests(text: str, expected: tuple[int, int, bool]) -> None:
    request = parse_request(text)
    assert request == Request(
        num_scheduled_tokens=expected[0],
        num_computed_tokens=expected[1],
        is_prefilling=expected[2],
    )


@pytest.mark.parametrize("text", ["0", "-3", "x", "4:", ":4", "4:x", "1:2:3", "9" * 11])
def test_other_requests_are_refused(text: str) -> None:
    result = CliRunner().invoke(app, ["--", text])
    assert result.exit_code == 2
    assert f"request {text!r}, expected N or N:C" in " ".join(result.stderr.split())


def test_more_tokens_than_a_step_has_are_refused() -> None:
    result = CliRunner().invoke(app, ["2000000000", "2000000000"])
    assert result.exit_code == 2
    assert "4000000000 tokens in one step" in " ".join(result.stderr.split())


def test_works_without_vllm_and_torch() -> None:
    program = (
        "import sys, typer\n"
        "sys.modules['vllm'] = sys.modules['torch'] = None\n"
        "from pyvllm_pp.cli.plan import plan\n"
        "typer.run(plan)\n"
    )
    command = [sys.executable, "-c", program, "7", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["pcp_size"] == 2
