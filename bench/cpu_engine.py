"""Whole engines on a CPU: native kernels, Triton's interpreter, and vLLM's V1 runner.

Wall time of a call; each engine answers a short one first.
"""

import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bench.section import Section, Table, Target
from pyvllm_pp.cli.engine import run_engine
from pyvllm_pp.cli.model import ModelSpec, make_model
from pyvllm_pp.cli.runs import Call, EngineRun

_NUM_REQS = 64
_NUM_INPUT = _NUM_OUTPUT = 32
_NUM_CALLS = 3
_LIMIT_S = 290.0
_MODEL = ModelSpec(dtype="float32")
# PP and PCP sizes.
_TOPOLOGIES = {"PP1": (1, 1), "PP2+PCP2": (2, 2)}
_WANTED = 3.0

Answer = tuple[float, list[list[int]]]


def measure() -> Section:
    """Output tokens a second, and the targets."""
    with tempfile.TemporaryDirectory() as directory:
        model = make_model(Path(directory) / "model", _MODEL)
        speeds = {name: _speeds(model, *s) for name, s in _TOPOLOGIES.items()}
        v1 = _run(model, 1, 1, _NUM_CALLS, env={"PYVLLM_PP": "0"})[0]
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
            f"median of {_NUM_CALLS} with native kernels.",
            Table(
                header=["topology", "interpreter", "native", "native / interpreter"],
                rows=rows,
            ),
            f"vLLM's V1 runner, which needs no Triton, makes {v1:,.0f} at PP1.",
        ],
        targets=[
            *(
                Target(
                    what=f"{name}, native over interpreter", value=n / i, limit=_WANTED
                )
                for name, (i, n) in speeds.items()
            ),
            Target(what="PP1, native over V1", value=speeds["PP1"][1] / v1, limit=1.0),
        ],
        data={"tokens_per_s": speeds, "v1_tokens_per_s": v1},
    )


def _speeds(model: Path, pp: int, pcp: int) -> tuple[float, float]:
    interpreter, expected = _run(model, pp, pcp, 1, kernels="interpreter")
    native, tokens = _run(model, pp, pcp, _NUM_CALLS, kernels="native")
    assert tokens == expected, "the kernels differ in tokens"
    return interpreter, native


def _run(
    model: Path,
    pp: int,
    pcp: int,
    num_calls: int,
    *,
    kernels: str | None = None,
    env: dict[str, str] | None = None,
) -> Answer:
    """Output tokens a second in the median of the calls, and the tokens."""
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
        settings=None if kernels is None else {"kernels": kernels},
        env=env or {},
    )
    calls = run_engine(run, limit_s=_LIMIT_S).calls[1:]
    seconds = statistics.median(each.seconds for each in calls)
    return _NUM_REQS * _NUM_OUTPUT / seconds, calls[0].token_ids()
