"""What the two stages of PP2 do at the same time, with stock's feedback and with ours.

Both handlers answer the same calls in one engine, in turn. Wall time: overlap is what
is measured.
"""

import statistics
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bench.report import ROOT
from bench.section import Section, Table, Target
from bench.workers import HANDLERS
from pyvllm_pp.cli.engine import run_engine
from pyvllm_pp.cli.model import ModelSpec, make_model
from pyvllm_pp.cli.runs import Call, CallResult, EngineResult, EngineRun

PLOT = "overlap.svg"
_NUM_REQS = 64
_NUM_INPUT = _NUM_OUTPUT = 32
# Of each handler; the first one of each warms up.
_NUM_CALLS = 4
_NUM_STEPS_SHOWN = 20
_WANTED = 1.3
_LIMIT_S = 550.0
# Batches differ from call to call; in float32 the tokens do not depend on them.
_MODEL = ModelSpec(num_layers=4, dtype="float32")
_COLOURS = {
    "forward": "tab:blue",
    "sample": "tab:orange",
    "receive": "tab:red",
    "wait for tokens": "tab:red",
    "wait for the other stage": "lightgrey",
}


class Throughput(NamedTuple):
    """Output tokens a second, the median call of each handler."""

    stock: float
    ours: float

    @property
    def ratio(self) -> float:
        """How much more ours makes."""
        return self.ours / self.stock


def measure() -> Section:
    """Throughput of both handlers, and the picture."""
    with tempfile.TemporaryDirectory() as directory:
        model = make_model(Path(directory) / "model", _MODEL)
        runs = {run.name: run for run in (_run(model, pcp) for pcp in (1, 2))}
    speeds = {name: _throughput(run) for name, run in runs.items()}
    _plot(runs["PP2"])
    return Section(
        title="Feedback that does not block",
        parts=[
            f"{_NUM_REQS} requests, {_NUM_INPUT} tokens in and {_NUM_OUTPUT} out, "
            f"{_MODEL.num_layers} layers, float32. Stock's handler waits on the CPU "
            "in a broadcast until the last stage has sampled; ours posts it and waits "
            "where the tokens are needed. One engine answers calls with either handler "
            f"in turn; medians of {_NUM_CALLS - 1} calls. Output tokens a second.",
            Table(
                header=["topology", "stock", "ours", "ours / stock"],
                rows=[[name, *each, each.ratio] for name, each in speeds.items()],
            ),
            "PP2 with PCP2 has four workers for the machine's cores, so what the "
            "stages could do at the same time they do in turn there.",
            f"![What both stages do over {_NUM_STEPS_SHOWN} steps]({PLOT})",
        ],
        targets=[
            Target(
                what="PP2, ours over stock", value=speeds["PP2"].ratio, limit=_WANTED
            ),
        ],
        data={
            "tokens_per_s": {name: each._asdict() for name, each in speeds.items()},
        },
    )


def _run(model: Path, pcp: int) -> EngineResult:
    rng = np.random.default_rng(0)
    prompts = rng.integers(3, _MODEL.vocab_size, size=(_NUM_REQS, _NUM_INPUT)).tolist()
    sampling = {"max_tokens": _NUM_OUTPUT, "temperature": 0.0, "ignore_eos": True}
    calls = [Call(prompts=prompts, sampling=sampling)] * (_NUM_CALLS * len(HANDLERS))
    run = EngineRun(
        model=model,
        calls=calls,
        pp=2,
        pcp=pcp,
        dtype=_MODEL.dtype,
        max_num_seqs=_NUM_REQS,
        # Half of the requests a step: two batches to be in flight.
        max_num_batched_tokens=_NUM_REQS * _NUM_INPUT // 2,
        engine_args={"worker_cls": "bench.workers.SwitchingWorker"},
    )
    result = run_engine(run, limit_s=_LIMIT_S)
    tokens = [call.token_ids() for call in result.calls]
    assert all(each == tokens[0] for each in tokens), "the handlers differ in tokens"
    return result


def _throughput(result: EngineResult) -> Throughput:
    return Throughput(
        *(
            _NUM_REQS * _NUM_OUTPUT / statistics.median(c.seconds for c in calls)
            for calls in _calls_of_handlers(result)
        )
    )


def _calls_of_handlers(result: EngineResult) -> list[list[CallResult]]:
    """The calls of each handler but its first."""
    number = len(HANDLERS)
    return [result.calls[i + number :: number] for i in range(number)]


class Lane(NamedTuple):
    """Spans of a stage under one handler: what, begin and end in seconds."""

    handler: str
    pp_rank: int
    spans: list[tuple[str, float, float]]


def _lanes(result: EngineResult) -> list[Lane]:
    lanes = []
    for worker in result.workers:
        timelines: dict[str, Any] = worker.model_dump()["timelines"]
        for handler in HANDLERS:
            lanes.append(Lane(handler, worker.pp_rank, timelines[handler]))
    return sorted(lanes)


def _starts(lane: Lane) -> list[float]:
    return [begin for name, begin, _ in lane.spans if name == "forward"]


def _plot(result: EngineResult) -> None:
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    panels = figure.subplots(len(HANDLERS), sharex=True)
    for handler, axes in zip(HANDLERS, panels, strict=True):
        lanes = [lane for lane in _lanes(result) if lane.handler == handler]
        # From the middle of the call, where all requests decode.
        starts = _starts(lanes[0])
        first = starts[(len(starts) - _NUM_STEPS_SHOWN) // 2]
        last = starts[(len(starts) + _NUM_STEPS_SHOWN) // 2]
        for lane in lanes:
            # Waits are parts of a step and lie over it.
            for kind, colour in _COLOURS.items():
                bars = [
                    (1e3 * (begin - first), 1e3 * (end - begin))
                    for name, begin, end in lane.spans
                    if name == kind and begin < last and end > first
                ]
                axes.broken_barh(bars, (lane.pp_rank - 0.4, 0.8), color=colour)
        axes.set_yticks([lane.pp_rank for lane in lanes], ["stage 0", "stage 1"])
        axes.invert_yaxis()
        axes.set_title(f"{handler}: {1e3 * (last - first):.0f} ms", loc="left")
    panels[-1].set_xlabel(f"milliseconds, {_NUM_STEPS_SHOWN} steps of the first stage")
    figure.legend(
        handles=[
            Patch(color="tab:blue", label="step up to the hidden states"),
            Patch(color="tab:orange", label="sample"),
            Patch(color="tab:red", label="wait for tokens"),
            Patch(color="lightgrey", label="wait for the other stage"),
        ],
        loc="outside lower center",
        ncols=4,
    )
    # No date and no random ids: the same figures make the same file.
    figure.savefig(ROOT / "docs" / PLOT, metadata={"Date": None, "Creator": None})
