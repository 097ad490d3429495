"""Build and run the libFuzzer targets: ``python -m tests.fuzz --seconds 20``.

Prints the runs of each target; ends with an error where one found a crash, a
sanitizer's report or a broken rule. The corpus stays in ``build/fuzz/corpus`` and is
taken up again by the next run.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "fuzz"
TARGETS = ("plan", "tables", "feedback")


def build() -> None:
    subprocess.run(
        ["cmake", "--workflow", "--preset", "fuzz"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def fuzz(target: str, seconds: int) -> bool:
    """Run one target; whether it found nothing."""
    corpus = BUILD / "corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    finding = BUILD / f"{target}-"
    ran = subprocess.run(
        [
            BUILD / f"{target}_fuzz",
            corpus,
            f"-max_total_time={seconds}",
            f"-artifact_prefix={finding}",
            "-max_len=512",
            "-print_final_stats=1",
            "-verbosity=0",
        ],
        env=os.environ | {"UBSAN_OPTIONS": "print_stacktrace=1"},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds + 300,
        check=False,
    )
    runs = re.search(r"number_of_executed_units: (\d+)", ran.stderr)
    count = int(runs[1]) if runs else 0
    found = ran.returncode != 0 or count == 0
    verdict = "FAILED" if found else "nothing found"
    print(f"{target}: {count:,} runs in {seconds} s: {verdict}", flush=True)
    if found:
        print(ran.stderr[-8000:], file=sys.stderr)
    return not found


def main(
    seconds: Annotated[int, typer.Option(min=1, help="Of each target.")] = 20,
    target: Annotated[
        list[str] | None, typer.Option(help="One of plan, tables, feedback.")
    ] = None,
) -> None:
    """Fuzz the core under address and undefined sanitizers."""
    chosen = target or TARGETS
    if unknown := set(chosen) - set(TARGETS):
        raise typer.BadParameter(f"{sorted(unknown)}, expected one of {TARGETS}")
    build()
    results = [fuzz(name, seconds) for name in chosen]
    raise typer.Exit(0 if all(results) else 1)


if __name__ == "__main__":
    typer.run(main)
