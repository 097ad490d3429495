"""Two runs of the same calls, side by side: what was equal and what was not."""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict
from rich.table import Table

from pyvllm_pp.cli.runs import EngineResult, EngineRun, Output


class RunReport(BaseModel):
    """One engine run, as the JSON report shows it; a list has an item a prompt."""

    model_config = ConfigDict(frozen=True)

    name: str
    pp: int
    pcp: int
    token_ids: list[list[int]]
    output_logprob_counts: list[int]
    prompt_logprob_counts: list[int]
    seconds: float  # from the start of the engine's processes to the last token
    vllm: str
    runner: str  # class that ran, as its workers say
    pcp_manager: str | None


class Comparison(BaseModel):
    """A control run and the runs that are compared with it."""

    model_config = ConfigDict(frozen=True)

    equal: bool
    max_logprob_diff: float  # nats, over the positions before a first other token
    runs: list[RunReport]


class Finished(NamedTuple):
    """A run, and what came of it."""

    run: EngineRun
    result: EngineResult

    def outputs(self) -> list[Output]:
        """Answers of all calls, in order."""
        return [output for call in self.result.calls for output in call.outputs]


def compare(finished: Sequence[Finished]) -> Comparison:
    """Compare runs with the first of them, the control.

    Equal means equal token ids and equal counts of prompt and output logprobs.

    Raises:
        ValueError: `finished` is empty, or workers of a run do not agree on the classes
            that ran.
    """
    if not finished:
        raise ValueError("[compare] no runs, expected a control and at least one more")
    control, *others = finished
    reports = [_report(one) for one in finished]
    answers = [_answer(report) for report in reports]
    differences = [diff for other in others for diff in _differences(control, other)]
    return Comparison(
        equal=all(answer == answers[0] for answer in answers),
        max_logprob_diff=max(differences, default=0.0),
        runs=reports,
    )


def comparison_table(comparison: Comparison) -> Table:
    """The table that ends a command: a row a run."""
    equal = "[green]equal[/]" if comparison.equal else "[bold red]NOT equal[/]"
    table = Table(
        title=f"Tokens and logprob counts: {equal}",
        caption=f"largest logprob difference: {comparison.max_logprob_diff:.2e}",
    )
    for heading in ("topology", "tokens", "output logprobs", "prompt logprobs"):
        table.add_column(heading, overflow="fold")
    table.add_column("seconds", justify="right")
    table.add_column("runner, PCP manager", overflow="fold")
    for run in comparison.runs:
        table.add_row(
            run.name,
            "\n".join(_short(tokens) for tokens in run.token_ids),
            _short(run.output_logprob_counts),
            _short(run.prompt_logprob_counts),
            f"{run.seconds:.1f}",
            f"{run.runner}\n{run.pcp_manager or '-'}",
        )
    return table


def _short(numbers: Sequence[int], most: int = 16) -> str:
    text = " ".join(map(str, numbers[:most]))
    return text if len(numbers) <= most else f"{text} ... ({len(numbers)})"


def _answer(report: RunReport) -> tuple[list[list[int]], list[int], list[int]]:
    return (
        report.token_ids,
        report.output_logprob_counts,
        report.prompt_logprob_counts,
    )


def _report(finished: Finished) -> RunReport:
    run, result = finished
    outputs = finished.outputs()
    samples = [sample for output in outputs for sample in output.samples]
    return RunReport(
        name=run.name,
        pp=run.pp,
        pcp=run.pcp,
        token_ids=[sample.token_ids for sample in samples],
        output_logprob_counts=[len(sample.logprobs) for sample in samples],
        prompt_logprob_counts=[output.num_prompt_logprobs for output in outputs],
        seconds=result.start_seconds + sum(call.seconds for call in result.calls),
        vllm=result.vllm,
        runner=_one_of(run.name, [worker.runner for worker in result.workers]) or "",
        pcp_manager=_one_of(run.name, [w.pcp_manager for w in result.workers]),
    )


def _one_of(name: str, values: Sequence[str | None]) -> str | None:
    found = set(values)
    if len(found) != 1:
        raise ValueError(
            f"[compare] workers of {name} report {sorted(map(str, found))}, expected "
            "the same class from all"
        )
    return found.pop()


def _differences(control: Finished, other: Finished) -> Iterator[float]:
    """Absolute logprob differences of two runs, where they speak of the same text."""
    pairs = zip(control.outputs(), other.outputs(), strict=True)
    for output, other_output in pairs:
        yield from _absolute(output.prompt_logprobs, other_output.prompt_logprobs)
        samples = zip(output.samples, other_output.samples, strict=True)
        for sample, other_sample in samples:
            same = _common_prefix(sample.token_ids, other_sample.token_ids)
            yield from _absolute(sample.logprobs[:same], other_sample.logprobs[:same])


def _absolute(first: Sequence[float], second: Sequence[float]) -> Iterator[float]:
    for a, b in zip(first, second, strict=False):
        yield abs(a - b)


def _common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = zip(first, second, strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
