"""The core alone, in google-benchmark, against stock's ``_build_batch_layout``."""

import json
import statistics
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from bench.section import Section, Table, Target
from bench.shapes import BATCHES, PCP_SIZES, Shape, Step, check, managers
from bench.timing import NUM_SAMPLES, interleaved

ROOT = Path(__file__).parents[1]
BINARY = ROOT / "build" / "release" / "core_bench"
# Times that the two sides are run in turn.
_ROUNDS = 3
_WANTED = {
    "256 decodes": 300.0,
    "1024 decodes": 300.0,
    "64 prompts of 128": 100.0,
    "4 prompts of 8192": 100.0,
}


def build() -> None:
    """Build the C++ benchmark."""
    for command in (
        ["cmake", "--preset", "release"],
        ["cmake", "--build", "--preset", "release", "--target", "core_bench"],
    ):
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)


def run_binary(pattern: str, num_samples: int = NUM_SAMPLES) -> dict[str, float]:
    """Median CPU microseconds of the C++ benchmarks whose names match.

    Raises:
        RuntimeError: a benchmark found its own tables wrong.
    """
    command = [
        str(BINARY),
        f"--benchmark_filter={pattern}",
        f"--benchmark_repetitions={num_samples}",
        "--benchmark_min_time=0.0005",
        "--benchmark_format=json",
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    times: dict[str, list[float]] = {}
    for entry in json.loads(done.stdout)["benchmarks"]:
        if entry.get("error_occurred"):
            raise RuntimeError(f"{entry['name']}: {entry['error_message']}")
        if entry["run_type"] == "iteration":
            times.setdefault(entry["run_name"], []).append(entry["cpu_time"] / 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def measure() -> Section:
    """Ratios of the plan and the tables of all ranks, built once a step."""
    build()
    rows: list[list[str | float | int]] = []
    targets = []
    data: list[dict[str, Any]] = []
    for shape in BATCHES:
        for pcp_size in PCP_SIZES:
            stock, core = _compare(shape, pcp_size)
            rows.append([shape.name, pcp_size, stock, core, stock / core])
            data.append(
                {"batch": shape.name, "pcp_size": pcp_size}
                | {"stock_us": stock, "core_us": core}
            )
            if shape.name in _WANTED:
                what = f"{shape.name}, PCP {pcp_size}"
                limit = _WANTED[shape.name]
                targets.append(Target(what=what, value=stock / core, limit=limit))
    return Section(
        title="Plan and tables",
        parts=[
            "The core in C++ (google-benchmark), against `_build_batch_layout` in the "
            "same run, one after the other. Both plan all ranks and write restore "
            "index, gather index and write mask of all ranks; the core also checks its "
            "input and writes this rank's rows. No step finds the plan or the tables "
            "of the last one. Microseconds.",
            Table(header=["batch", "PCP", "stock", "core", "ratio"], rows=rows),
            _bound(data[-1]),
        ],
        targets=targets,
        data={"times": data},
    )


def _bound(times: dict[str, Any]) -> str:
    """What the memory of this machine allows the largest batch of the last row.

    Two int64 indices and two masks a token, no rank padded; filled with zeros.
    """
    shape = next(shape for shape in BATCHES if shape.name == times["batch"])
    num_bytes = shape.num_reqs * shape.tokens_each * 18
    memory = np.empty(num_bytes, dtype=np.uint8)
    (fill_us,) = interleaved(lambda _: memory.fill(0))
    return (
        f"A step of {shape.name} writes {num_bytes / 1e3:,.0f} kB of indices and masks "
        f"whatever the plan: filling as much with zeros takes {fill_us:.1f} "
        f"microseconds here, and 100 times stock would be "
        f"{times['stock_us'] / 100:.1f} at PCP {times['pcp_size']} (vLLM's dtypes are "
        "int64, and each rank reads all ranks' tables: to restore, and to write all "
        "ranks' KV)."
    )


def _compare(shape: Shape, pcp_size: int) -> tuple[float, float]:
    steps = _two_steps(shape)
    check(pcp_size, steps)
    manager, _ = managers(pcp_size)

    def layout(i: int) -> Any:
        batch = steps[i % 2].batch
        return manager._build_batch_layout(
            batch.num_scheduled_tokens,
            batch.num_computed_tokens_np,
            batch.is_prefilling_np,
            batch.query_start_loc_np,
        )

    name = f"one_rank/{shape.name}/{pcp_size}"
    stock_times, core_times = [], []
    for _ in range(_ROUNDS):
        stock_times += interleaved(layout, num_samples=NUM_SAMPLES // _ROUNDS + 1)
        core_times.append(run_binary(f"^{name}$")[name])
    return statistics.median(stock_times), statistics.median(core_times)


def _two_steps(shape: Shape) -> list[Step]:
    """As in the C++ benchmark: neither finds the plan of the other."""
    other = 2 if shape.tokens_each == 1 else shape.tokens_each - 1
    requests = shape.requests()
    changed = [requests[0]._replace(num_scheduled=other), *requests[1:]]
    return [Step(requests, seed=0), Step(changed, seed=1)]
