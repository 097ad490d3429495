"""``pyvllm-pp verify``: the demo's comparison on a model of the user's own."""

import json as json_format
import random
from pathlib import Path
from typing import Annotated

import typer

from pyvllm_pp.cli.runs import Call, EngineRun
from pyvllm_pp.cli.session import fail, run_and_compare
from pyvllm_pp.cli.topology import with_control

_SAMPLING = {"temperature": 0.0, "ignore_eos": True, "logprobs": 0}


def verify(
    model: Annotated[
        Path, typer.Argument(exists=True, file_okay=False, help="Model directory.")
    ],
    pp: Annotated[int, typer.Option(min=1)] = 2,
    pcp: Annotated[int, typer.Option(min=1)] = 2,
    tp: Annotated[int, typer.Option(min=1)] = 1,
    prompt_len: Annotated[
        list[int] | None, typer.Option(min=1, help="Tokens of a prompt; repeatable.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1)] = 16,
    max_num_batched_tokens: Annotated[int, typer.Option(min=1)] = 256,
    dtype: Annotated[str, typer.Option(help="As vLLM's --dtype.")] = "float32",
    kv_cache_mib: Annotated[int, typer.Option(min=1, help="For each worker.")] = 256,
    limit_s: Annotated[float, typer.Option(help="Seconds for each engine.")] = 1800.0,
    partition: Annotated[str | None, typer.Option(help="Partition policy.")] = None,
    restore: Annotated[str | None, typer.Option(help="Restore policy.")] = None,
    json: Annotated[
        Path | None, typer.Option(help="Write the comparison here.")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Leave logs and results here.")
    ] = None,
) -> None:
    """Compare a topology with its control on MODEL, with random prompts.

    Greedy, so that float noise between topologies may turn a near tie; float32 makes
    that rare.
    """
    lengths = prompt_len or [607, 7, 64, 1]
    given = {"partition": partition, "restore": restore}
    run = EngineRun(
        model=model.resolve(),
        calls=[_call(_vocab_size(model), lengths, max_tokens)],
        pp=pp,
        pcp=pcp,
        tp=tp,
        max_num_batched_tokens=max_num_batched_tokens,
        max_model_len=max(lengths) + max_tokens,
        dtype=dtype,
        kv_cache_mib=kv_cache_mib,
        settings={key: value for key, value in given.items() if value is not None},
    )
    try:
        runs = with_control(run)
    except ValueError as error:
        fail(str(error))
    run_and_compare(runs, limit_s=limit_s, keep=keep, json=json)


def _call(vocab_size: int, lengths: list[int], max_tokens: int) -> Call:
    draw = random.Random(0)
    prompts = [draw.choices(range(vocab_size), k=length) for length in lengths]
    return Call(prompts=prompts, sampling={**_SAMPLING, "max_tokens": max_tokens})


def _vocab_size(model: Path) -> int:
    path = model / "config.json"
    try:
        return int(json_format.loads(path.read_text())["vocab_size"])
    except (OSError, ValueError, KeyError) as error:
        fail(f"[verify] no vocab_size in {path}: {error!r}")
