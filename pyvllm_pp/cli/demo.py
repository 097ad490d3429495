"""``pyvllm-pp demo``: PP with PCP in real vLLM, on a model made on the spot."""

import random
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from pyvllm_pp.cli.model import ModelSpec, make_model
from pyvllm_pp.cli.runs import Call, EngineRun
from pyvllm_pp.cli.session import fail, run_and_compare
from pyvllm_pp.cli.topology import with_control

# More than two steps of prefill, and one that fits beside a decode.
_PROMPT_LENS = (607, 7)
_MAX_NUM_BATCHED_TOKENS = 256
_SAMPLING = {
    "temperature": 0.0,
    "max_tokens": 8,
    "ignore_eos": True,
    "logprobs": 0,
    "prompt_logprobs": 0,
}
_LIMIT_S = 240.0


def demo(
    pp: Annotated[int, typer.Option(min=1, help="Pipeline stages.")] = 2,
    pcp: Annotated[int, typer.Option(min=1, help="Ranks that share prefill.")] = 2,
    json: Annotated[
        Path | None, typer.Option(help="Write the comparison to this file.")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Leave model, logs and results here.")
    ] = None,
) -> None:
    """Generate with PP and PCP, and compare with a run without PP.

    A small random MLA MoE model answers a 607-token and a 7-token prompt in steps of at
    most 256 tokens, so that prefill is chunked and mixed with decode. Ends with 0 only
    when token ids and logprob counts are equal.
    """
    with tempfile.TemporaryDirectory(prefix="pyvllm-pp-demo-") as temporary:
        run = demo_run((keep or Path(temporary)) / "model", pp=pp, pcp=pcp)
        try:
            runs = with_control(run)
        except ValueError as error:
            fail(str(error))
        make_model(run.model, demo_model(pp))
        run_and_compare(runs, limit_s=_LIMIT_S, keep=keep, json=json)


def demo_model(pp: int) -> ModelSpec:
    """One dense and one MoE layer, or a layer a stage."""
    return ModelSpec(num_layers=max(2, pp))


def demo_run(model: Path, *, pp: int, pcp: int) -> EngineRun:
    """The demo's call in one topology."""
    return EngineRun(
        model=model,
        calls=[Call(prompts=demo_prompts(), sampling=_SAMPLING)],
        pp=pp,
        pcp=pcp,
        max_num_batched_tokens=_MAX_NUM_BATCHED_TOKENS,
        max_model_len=1024,
    )


def demo_prompts() -> list[list[int]]:
    """Random token ids, the same at every call; special tokens left out."""
    draw = random.Random(0)
    vocabulary = range(2, demo_model(pp=1).vocab_size)
    return [draw.choices(vocabulary, k=length) for length in _PROMPT_LENS]
