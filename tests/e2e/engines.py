"""Engines of the session: each runs once, whatever number of tests look at it."""

import time
from collections.abc import Callable
from pathlib import Path

from pyvllm_pp.cli.compare import Finished, compare
from pyvllm_pp.cli.engine import EngineError, run_engine
from pyvllm_pp.cli.model import ModelSpec, make_model
from pyvllm_pp.cli.processes import Process, session_processes
from pyvllm_pp.cli.runs import CallResult, EngineResult, EngineRun, Output
from tests.e2e.models import decode, make_with_tokenizer
from tests.e2e.rows import Row
from tests.e2e.scenarios import Group, Topology
from tests.e2e.zygote import ForkedEngine, Zygote

# For an engine; most take a tenth of it on two idle cores.
LIMIT_S = 400.0


class Engines:
    """Runs engines, keeps their results, and knows their processes."""

    def __init__(self, directory: Path, save: Callable[[Row], None]) -> None:
        self._directory = directory
        self._runs_kept = 0
        self._save = save
        self._zygote: Zygote | None = None
        self._models: dict[object, Path] = {}
        self._runs: dict[tuple[str, str], Finished | EngineError] = {}
        self.sessions: list[int] = []

    def close(self) -> None:
        """End the process that engines are forked from."""
        if self._zygote is not None:
            with self._zygote:
                self._zygote = None

    def model(self, spec: ModelSpec, *, needs_tokenizer: bool = False) -> Path:
        """The directory of a model, made once."""
        key = (spec, needs_tokenizer)
        if key not in self._models:
            make = make_with_tokenizer if needs_tokenizer else make_model
            directory = self._directory / f"model{len(self._models)}"
            self._models[key] = make(directory, spec)
        return self._models[key]

    def launch(self, directory: Path, env: dict[str, str], log: Path) -> ForkedEngine:
        """As :data:`pyvllm_pp.cli.engine.Launch`."""
        if self._zygote is None:
            self._zygote = Zygote()
        engine = self._zygote.launch(directory, env, log)
        self.sessions.append(engine.pid)
        return engine

    def run(self, run: EngineRun) -> EngineResult:
        """Run an engine, forked, and see that nothing of it is left."""
        self._runs_kept += 1
        try:
            return run_engine(
                run, limit_s=LIMIT_S, launch=self.launch, keep=self._kept()
            )
        finally:
            assert left_after(self.sessions[-1:]) == []

    def log(self) -> str:
        """What the engine that ran last wrote."""
        return (self._kept() / "engine.log").read_text()

    def finished(self, group: Group, topology: Topology) -> Finished:
        """All calls of a group in a topology; a failure is raised at every look."""
        key = (group.name, topology.name)
        if key not in self._runs:
            model = self.model(group.spec, needs_tokenizer=group.needs_tokenizer)
            run = topology.run(group, model)
            try:
                self._runs[key] = Finished(run, self.run(run))
            except EngineError as error:
                self._runs[key] = error
        found = self._runs[key]
        if isinstance(found, EngineError):
            raise found
        return found

    def call(self, group: Group, topology: Topology, name: str) -> CallResult:
        """The answers to one call."""
        index = list(group.calls).index(name)
        return self.finished(group, topology).result.calls[index]

    def check(
        self, group: Group, name: str, topology: Topology, control: Topology
    ) -> CallResult:
        """Compare a call with its control, keep the row for the table, assert equality.

        Returns:
            The answers in `topology`.
        """
        ours = self._one(group, topology, name)
        theirs = self._one(group.control or group, control, name)
        comparison = compare([theirs, ours])
        row = Row(
            scenario=name,
            engine=group.text,
            topology=topology.name,
            control=control.name,
            tokens_equal=_tokens(ours) == _tokens(theirs),
            counts_equal=_counts(ours) == _counts(theirs),
            max_logprob_diff=comparison.max_logprob_diff,
            seconds=ours.result.calls[0].seconds,
            vllm=ours.result.vllm,
        )
        self._save(row)
        assert _tokens(ours) == _tokens(theirs)
        assert _counts(ours) == _counts(theirs)
        assert comparison.equal
        # Of float32 sums in another order; a wrong token or context costs far more.
        assert comparison.max_logprob_diff < 1e-3
        return ours.result.calls[0]

    def _kept(self) -> Path:
        """Request, result and log of the engine that ran last."""
        return self._directory / f"run{self._runs_kept}"

    def text(self, group: Group, token_ids: list[int]) -> str:
        """The text of tokens of a group with a tokenizer."""
        return decode(self.model(group.spec, needs_tokenizer=True), token_ids)

    def refused(self, run: EngineRun, scenario: str, topology: str) -> EngineError:
        """Run what must be refused, and keep the message for the table."""
        try:
            result = self.run(run)
        except EngineError as error:
            message = error.error.partition("\n")[0]
            self._save(Row(scenario=scenario, topology=topology, refusal=message))
            return error
        raise AssertionError(f"{scenario} was not refused: {result.calls}")

    def _one(self, group: Group, topology: Topology, name: str) -> Finished:
        """A run as if it had that call alone, aborted answers cut to a known length."""
        run, result = self.finished(group, topology)
        index = list(group.calls).index(name)
        limits = group.calls[name].abort_after
        call = result.calls[index]
        outputs = [
            _cut(output, limits.get(position))
            for position, output in enumerate(call.outputs)
        ]
        call = call.model_copy(update={"outputs": outputs})
        return Finished(run, result.model_copy(update={"calls": [call]}))


def left_after(sessions: list[int], limit_s: float = 30.0) -> list[Process]:
    """Processes of sessions that are over; killed ones take a moment to go."""
    deadline = time.monotonic() + limit_s
    while True:
        left = [process for pid in sessions for process in session_processes(pid)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def _cut(output: Output, num_tokens: int | None) -> Output:
    """An aborted answer as far as it is sure: the abort takes effect at some step."""
    if num_tokens is None:
        return output
    assert output.is_aborted
    sample = output.samples[0]
    update = {
        "token_ids": sample.token_ids[:num_tokens],
        "logprobs": sample.logprobs[:num_tokens],
    }
    return output.model_copy(update={"samples": [sample.model_copy(update=update)]})


def _tokens(finished: Finished) -> list[list[tuple[list[int], object, object]]]:
    return [
        [(s.token_ids, s.finish_reason, s.stop_reason) for s in output.samples]
        for output in finished.outputs()
    ]


def _counts(finished: Finished) -> list[tuple[int, list[int]]]:
    return [
        (output.num_prompt_logprobs, [len(s.logprobs) for s in output.samples])
        for output in finished.outputs()
    ]
