"""Whole engines on a CPU: native kernels, Triton's interpreter, and vLLM's V1 runner.

Wall time of a call; each engine answers a short one first.
"""

import statistics
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.section import Section, Table, Target
from pyvllm_pp.cli.engine import run_engine
from pyvllm_pp.cli.model import ModelSpec, make_model
from pyvllm_pp.cli.runs import Call, EngineRun

_NUM_REQS = 64
_NUM_INPUT = _NUM_OUTPUT = 32
_NUM_CALLS = 4
# Engines of each runner at PP1, in turn: an engine can be fast or slow as a whole.
_NUM_ENGINES = 3
_LIMIT_S = 290.0
_MODEL = ModelSpec(dtype="float32")
_NATIVE = {"kernels": "native"}
_WANTED = 3.0


class Answer(NamedTuple):
    """Seconds of each call, and the tokens of the first."""

    seconds: list[float]
    token_ids: list[list[int]]


class Speeds(NamedTuple):
    """Output tokens a second."""

    interpreter: float
    native: float


def measure() -> Section:
    """Output tokens a second, and the targets."""
    with tempfile.TemporaryDirectory() as directory:
        model = make_model(Path(directory) / "model", _MODEL)
        v1, pp1 = _runners_in_turn(model)
        speeds = {
            "PP1": _speeds(model, 1, 1, pp1),
            "PP2+PCP2": _speeds(model, 2, 2, _run(model, 2, 2, settings=_NATIVE)),
        }
    rows: list[list[str | float | int]] = [
        [name, interpreter, native, native / interpreter]
        for name, (interpreter, native) in speeds.items()
    ]
    return Section(
        title="Engines on a CPU",
        parts=[
            f"{_NUM_REQS} requests, {_NUM_INPUT} tokens in and {_NUM_OUTPUT} out, "
            f"{_MODEL.num_layers} layers, float32, greedy; equal tokens on both sides."
            " Output tokens a second in wall time: one call with the interpreter, the "
            f"median of {_NUM_CALLS} an engine without it.",
            Table(
                header=["topology", "interpreter", "native", "native / interpreter"],
                rows=rows,
            ),
            f"vLLM's V1 runner, which needs no Triton, makes {v1:,.0f} at PP1; "
            f"{_NUM_ENGINES} engines of either runner answered in turn.",
        ],
        targets=[
            *(
                Target(
                    what=f"{name}, native over interpreter", value=n / i, limit=_WANTED
                )
                for name, (i, n) in speeds.items()
            ),
            Target(
                what="PP1, native over V1", value=speeds["PP1"].native / v1, limit=1.0
            ),
        ],
        data={
            "tokens_per_s": {name: each._asdict() for name, each in speeds.items()},
            "v1_tokens_per_s": v1,
        },
    )


def _runners_in_turn(model: Path) -> tuple[float, Answer]:
    """Output tokens a second of V1 at PP1, and what the native kernels answered."""
    v1, native = [], []
    for _ in range(_NUM_ENGINES):
        # Without settings this package does nothing: the runner is vLLM's own choice.
        v1.append(_run(model, settings=None, env={"PYVLLM_PP": "0"}))
        native.append(_run(model, settings=_NATIVE))
    return _tokens_per_s(_pooled(v1)), _pooled(native)


def _pooled(answers: list[Answer]) -> Answer:
    return Answer([s for each in answers for s in each.seconds], answers[0].token_ids)


def _speeds(model: Path, pp: int, pcp: int, native: Answer) -> Speeds:
    """Beside the interpreter, which must give the same tokens."""
    interpreter = _run(model, pp, pcp, 1, settings={"kernels": "interpreter"})
    assert interpreter.token_ids == native.token_ids, "the kernels differ in tokens"
    return Speeds(_tokens_per_s(interpreter), _tokens_per_s(native))


def _tokens_per_s(answer: Answer) -> float:
    return _NUM_REQS * _NUM_OUTPUT / statistics.median(answer.seconds)


def _run(
    model: Path,
    pp: int = 1,
    pcp: int = 1,
    num_calls: int = _NUM_CALLS,
    *,
    settings: dict[str, str] | None,
    env: dict[str, str] | None = None,
) -> Answer:
    rng = np.random.default_rng(0)
    prompts = rng.integers(3, _MODEL.vocab_size, (_NUM_REQS, _NUM_INPUT)).tolist()
    sampling: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True}
    warm = Call(prompts=prompts[:2], sampling={**sampling, "max_tokens": 2})
    call = Call(prompts=prompts, sampling={**sampling, "max_tokens": _NUM_OUTPUT})
    run = EngineRun(
        model=model,
        calls=[warm, *[call] * num_calls],
        pp=pp,
        pcp=pcp,
        dtype=_MODEL.dtype,
        max_num_seqs=_NUM_REQS,
        max_num_batched_tokens=_NUM_REQS * _NUM_INPUT,
        settings=settings,
        env=env or {},
    )
    calls = run_engine(run, limit_s=_LIMIT_S).calls[1:]
    return Answer([each.seconds for each in calls], calls[0].token_ids())
