"""Writes the parity table from the rows that the tests left.

``python -m tests.e2e.parity --write docs/parity.md`` after ``pytest tests/e2e``.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from tests.e2e import scenarios
from tests.e2e.rows import DIRECTORY, Row, saved
from tests.e2e.scenarios import Group

_HEAD = """\
# Parity in real vLLM

Written by `python -m tests.e2e.parity --write docs/parity.md` from what
`pytest tests/e2e` measured; not edited by hand.

Greedy where not said otherwise, float32, a small random MLA MoE model, at most 256
tokens a step and 4 requests at once, vLLM's CPU build. Equal tokens: the same ids and
finish reasons of every sample. Equal counts: as many prompt and output logprobs. The
difference is the largest of any logprob, in nats. Seconds are those of the call, on a
machine that may have been busy: no measure of speed.

{equal} of {total} rows are equal.
"""
_REFUSED = """
## Refused

What ends an engine's start, with the message it ends with.
"""
_COLUMNS = (
    "scenario",
    "engine",
    "topology",
    "control",
    "tokens",
    "counts",
    "logprobs differ by",
    "seconds",
    "vLLM",
)


def main(
    write: Annotated[Path | None, typer.Option(help="Write to this file.")] = None,
) -> None:
    """Print or write the table."""
    rows = saved()
    if not rows:
        raise typer.BadParameter(f"no rows in {DIRECTORY}: run pytest tests/e2e first")
    text = render(rows)
    if write is None:
        typer.echo(text)
    else:
        write.write_text(text)


def render(rows: Sequence[Row]) -> str:
    """The whole page."""
    compared = sorted((row for row in rows if row.refusal is None), key=_order)
    refused = sorted((row for row in rows if row.refusal is not None), key=_order)
    equal = sum(bool(row.tokens_equal and row.counts_equal) for row in compared)
    lines = [
        _HEAD.format(equal=equal, total=len(compared)),
        *_table(_COLUMNS, (_cells(row) for row in compared)),
        _REFUSED,
        *_table(
            ("asked for", "topology", "message"),
            ((row.scenario, row.topology, f"`{row.refusal}`") for row in refused),
        ),
    ]
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.scenario,
        row.engine,
        row.topology,
        row.control,
        _yes(row.tokens_equal),
        _yes(row.counts_equal),
        f"{row.max_logprob_diff:.1e}",
        f"{row.seconds:.1f}",
        row.vllm,
    )


def _yes(value: bool | None) -> str:
    return "equal" if value else "**differ**"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(map(_escaped, line))} |" for line in lines]


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")


def _order(row: Row) -> tuple[object, ...]:
    """As the scenarios are written down; what is not among them, by name."""
    groups = [value for value in vars(scenarios).values() if isinstance(value, Group)]
    names = [name for group in groups for name in group.calls]
    known = names.index(row.scenario) if row.scenario in names else len(names)
    return (row.engine, known, row.scenario, row.topology, row.control)


if __name__ == "__main__":
    typer.run(main)
