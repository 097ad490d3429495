"""``pyvllm-pp plan``: how a batch would be shared out, without vLLM or a model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from pydantic import BaseModel, ConfigDict
from rich.table import Table

from pyvllm_pp.cli.session import console, fail
from pyvllm_pp.plan import (
    Partition,
    PlanConfig,
    Planner,
    largest_over_equal,
    rank_loads,
)

_STDOUT = Path("-")
_MOST_TOKENS = np.iinfo(np.int32).max


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Request(_Frozen):
    """A row of the batch."""

    num_scheduled_tokens: int
    num_computed_tokens: int
    is_prefilling: bool


class Segment(_Frozen):
    """A run of one request's tokens; positions count its computed tokens too."""

    req_idx: int
    first_position: int
    num_tokens: int


class RankPlan(_Frozen):
    """What one rank computes, in its order."""

    segments: list[Segment]
    num_tokens: int
    attention_work: int  # context lengths of its tokens, summed


class PolicyPlan(_Frozen):
    """A policy's plan; 1 is equal on all ranks."""

    partition: str
    ranks: list[RankPlan]
    tokens_largest_over_equal: float
    attention_work_largest_over_equal: float


class Report(_Frozen):
    """The batch, and what each policy makes of it."""

    pcp_size: int
    requests: list[Request]
    policies: list[PolicyPlan]


def plan(
    requests: Annotated[
        list[str],
        typer.Argument(
            metavar="REQUEST...",
            help="N: a prompt of N tokens; N:C: its next N after C; 1:C: a decode.",
        ),
    ],
    pcp: Annotated[int, typer.Option(min=1, help="Ranks that share prefill.")] = 2,
    json: Annotated[
        Path | None,
        typer.Option(help="Write the plans to this file; - for the terminal."),
    ] = None,
) -> None:
    """Show what each partition policy makes of one step's batch.

    For example ``pyvllm-pp plan --pcp 2 607 7 1:300``: two prompts, and a decode that
    has 300 tokens behind it.
    """
    try:
        report = make_report([parse_request(text) for text in requests], pcp)
    except ValueError as error:
        fail(str(error))
    if json == _STDOUT:
        typer.echo(report.model_dump_json(indent=2))
        return
    for policy in report.policies:
        console().print(policy_table(policy))
    if json is not None:
        json.parent.mkdir(parents=True, exist_ok=True)
        json.write_text(report.model_dump_json(indent=2) + "\n")


def parse_request(text: str) -> Request:
    """``"607"`` a prompt, ``"128:512"`` a prompt's next tokens, ``"1:300"`` a decode.

    Raises:
        ValueError: `text` is none of these, or too large.
    """
    scheduled, colon, computed = text.partition(":")
    valid = scheduled.isdecimal() and (computed.isdecimal() or not colon)
    counts = (int(scheduled), int(computed or 0)) if valid else (0, 0)
    if counts[0] < 1 or sum(counts) > _MOST_TOKENS:
        raise ValueError(
            f"[plan] request {text!r}, expected N or N:C with 1 token or more, and at "
            f"most {_MOST_TOKENS} in all"
        )
    return Request(
        num_scheduled_tokens=counts[0],
        num_computed_tokens=counts[1],
        is_prefilling=counts[0] > 1 or counts[1] == 0,
    )


def make_report(requests: Sequence[Request], pcp_size: int) -> Report:
    """Plan one step with each policy.

    Raises:
        ValueError: more tokens than a step can have.
    """
    num_tokens = sum(request.num_scheduled_tokens for request in requests)
    if num_tokens > _MOST_TOKENS:
        raise ValueError(
            f"[plan] {num_tokens} tokens in one step, expected at most {_MOST_TOKENS}"
        )
    return Report(
        pcp_size=pcp_size,
        requests=list(requests),
        policies=[_policy_plan(requests, pcp_size, policy) for policy in Partition],
    )


def _policy_plan(
    requests: Sequence[Request], pcp_size: int, partition: Partition
) -> PolicyPlan:
    scheduled = np.array([r.num_scheduled_tokens for r in requests], dtype=np.int32)
    computed = np.array([r.num_computed_tokens for r in requests], dtype=np.int32)
    is_prefilling = np.array([r.is_prefilling for r in requests], dtype=np.bool_)
    config = PlanConfig(
        pcp_size=pcp_size,
        dcp_size=1,
        shard_decode_requests=True,
        partition=partition,
        max_num_reqs=len(requests),
        max_num_tokens=int(scheduled.sum()),
    )
    made = Planner(config).plan(scheduled, is_prefilling, computed)
    loads = rank_loads(made, scheduled, computed)
    # Token of the global batch -> position in its request.
    to_position = computed - (np.cumsum(scheduled) - scheduled)
    ranks = [
        RankPlan(
            segments=[
                Segment(
                    req_idx=req_idx,
                    first_position=int(to_position[req_idx]) + token_start,
                    num_tokens=num_tokens,
                )
                for req_idx, token_start, num_tokens, _ in made.segments(rank).tolist()
            ],
            num_tokens=load.num_tokens,
            attention_work=load.attention_work,
        )
        for rank, load in enumerate(loads)
    ]
    return PolicyPlan(
        partition=partition.name,
        ranks=ranks,
        tokens_largest_over_equal=largest_over_equal([r.num_tokens for r in ranks]),
        attention_work_largest_over_equal=largest_over_equal(
            [r.attention_work for r in ranks]
        ),
    )


def policy_table(policy: PolicyPlan) -> Table:
    """A row a rank; a segment reads ``request[first position:end]``."""
    table = Table(title=policy.partition, show_footer=True, title_justify="left")
    table.add_column("rank", footer="largest over equal")
    table.add_column("segments: request\\[positions]", overflow="fold")
    tokens = f"{policy.tokens_largest_over_equal:.3f}"
    table.add_column("tokens", justify="right", footer=tokens)
    work = f"{policy.attention_work_largest_over_equal:.3f}"
    table.add_column("attention work", justify="right", footer=work)
    for number, rank in enumerate(policy.ranks):
        segments = " ".join(
            f"{s.req_idx}\\[{s.first_position}:{s.first_position + s.num_tokens}]"
            for s in rank.segments
        )
        table.add_row(
            str(number), segments, f"{rank.num_tokens:,}", f"{rank.attention_work:,}"
        )
    return table
