"""``pyvllm-pp bench``: where the time of a step goes."""

import random
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from pyvllm_pp.cli.breakdown import Breakdown, breakdown
from pyvllm_pp.cli.model import ModelSpec, make_model
from pyvllm_pp.cli.runs import Call, EngineRun
from pyvllm_pp.cli.session import console, fail, run_one
from pyvllm_pp.ranges import Range

app = typer.Typer(help="Measure an engine.", no_args_is_help=True)

_LIMIT_S = 300.0


@app.callback()
def bench() -> None:
    """Measure an engine."""


@app.command()
def step(
    pp: Annotated[int, typer.Option(min=1, help="Pipeline stages.")] = 2,
    pcp: Annotated[int, typer.Option(min=1, help="Ranks that share prefill.")] = 2,
    requests: Annotated[int, typer.Option(min=1, help="Requests at once.")] = 32,
    input_len: Annotated[int, typer.Option(min=1, help="Tokens of a prompt.")] = 32,
    output_len: Annotated[int, typer.Option(min=2, help="Tokens generated.")] = 32,
    model: Annotated[
        Path | None, typer.Option(help="A model's directory; a tiny one if left out.")
    ] = None,
    json: Annotated[
        Path | None, typer.Option(help="Write the figures to this file.")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Leave request, result and log here.")
    ] = None,
) -> None:
    """Show where the time of a step goes, on every stage and rank.

    Runs an engine twice over the same prompts, the second time under torch.profiler,
    and prints microseconds a step of each part, without the parts inside it. The
    profiler slows small operations, so read it as shares.
    """
    with tempfile.TemporaryDirectory(prefix="pyvllm-pp-bench-") as temporary:
        if model is None:
            spec = ModelSpec(num_layers=max(2, pp))
            model = make_model(Path(temporary) / "model", spec)
        run = step_run(
            model,
            pp,
            pcp,
            requests=requests,
            input_len=input_len,
            output_len=output_len,
        )
        result = run_one(run, limit_s=_LIMIT_S, keep=keep)
    shares = breakdown(run.name, result)
    if not shares.workers:
        fail(f"{run.name}: the workers left no trace")
    console().print(breakdown_table(shares))
    if json is not None:
        json.write_text(shares.model_dump_json(indent=1) + "\n")


def step_run(
    model: Path, pp: int, pcp: int, *, requests: int, input_len: int, output_len: int
) -> EngineRun:
    """Two calls over the same random prompts, the second one profiled."""
    draw = random.Random(0)
    prompts = [
        [draw.randrange(2, 64) for _ in range(input_len)] for _ in range(requests)
    ]
    sampling = {"temperature": 0.0, "max_tokens": output_len, "ignore_eos": True}
    call = Call(prompts=prompts, sampling=sampling)
    return EngineRun(
        model=model,
        calls=[call, call],
        pp=pp,
        pcp=pcp,
        max_num_seqs=requests,
        max_num_batched_tokens=max(2048, requests),
        max_model_len=input_len + output_len,
        profile=True,
    )


def breakdown_table(shares: Breakdown) -> Table:
    """Microseconds a step, a column for each process."""
    table = Table(title=f"{shares.name}: microseconds a step")
    table.add_column("part")
    for worker in shares.workers:
        table.add_column(worker.title, justify="right")
    for name in Range:
        values = [worker.us.get(name.name) for worker in shares.workers]
        if any(values):
            table.add_row(
                name.title, *("" if us is None else f"{us:,.0f}" for us in values)
            )
    table.add_section()
    table.add_row(
        "waiting, other processes", *(f"{w.outside_us:,.0f}" for w in shares.workers)
    )
    table.add_row("a step", *(f"{w.step_us:,.0f}" for w in shares.workers))
    table.add_row("steps", *(f"{w.num_steps:,}" for w in shares.workers))
    return table
