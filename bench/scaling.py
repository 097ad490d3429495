"""Cost of the core over requests and tokens: a line, and a plot of it."""

import numpy as np
from matplotlib.figure import Figure

from bench.core import ROOT, build, run_binary
from bench.section import Section, Target
from bench.shapes import SCALING

PLOT = "scaling.svg"
# Slope over sizes in a log-log plot: 1 is linear, 2 quadratic.
_MOST_SLOPE = 1.1
# Below this many units the constant part of a step dominates.
_SMALLEST_UNITS = 1000
_LABELS = {
    "decodes": "decodes: one segment and one token each",
    "prompts_of_16": "prompts of 16: two segments a rank each",
    "tokens_of_4_prompts": "tokens of 4 prompts",
}


def measure() -> Section:
    """Slopes of three series, and their picture."""
    build()
    times = run_binary("^scaling/")
    series: dict[str, list[tuple[int, float]]] = {}
    for name, microseconds in times.items():
        _, kind, size, _ = name.split("/")
        series.setdefault(kind, []).append((int(size), microseconds))
    targets = []
    for kind, points in series.items():
        points.sort()
        assert [size for size, _ in points] == SCALING[kind]
        targets.append(
            Target(
                what=f"slope over {_LABELS[kind].split(':')[0]}",
                value=_slope(kind, points),
                limit=_MOST_SLOPE,
                kind="at most",
                unit="",
            )
        )
    _plot(series)
    return Section(
        title="Cost over size",
        parts=[
            f"Plan and tables of one rank at PCP {SCALING['pcp_size']}, up to "
            f"{SCALING['decodes'][-1]:,} requests and "
            f"{SCALING['tokens_of_4_prompts'][-1]:,} tokens. The slope in a log-log "
            "plot is 1 where cost is linear; it is fitted where a step has at least "
            f"{_SMALLEST_UNITS:,} segments and tokens.",
            f"![Microseconds over requests and over tokens, log-log]({PLOT})",
        ],
        targets=targets,
        data={"us": {kind: dict(points) for kind, points in series.items()}},
    )


def _units(kind: str, size: int) -> int:
    """Segments of all ranks plus tokens."""
    chunks = 2 * SCALING["pcp_size"]
    return {
        "decodes": size + size,
        "prompts_of_16": size * (chunks + 16),
        "tokens_of_4_prompts": 4 * chunks + size,
    }[kind]


def _slope(kind: str, points: list[tuple[int, float]]) -> float:
    fitted = [
        (_units(kind, size), microseconds)
        for size, microseconds in points
        if _units(kind, size) >= _SMALLEST_UNITS
    ]
    units, microseconds = np.log(np.array(fitted)).T
    return float(np.polyfit(units, microseconds, 1)[0])


def _plot(series: dict[str, list[tuple[int, float]]]) -> None:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for kind, points in series.items():
        units = [_units(kind, size) for size, _ in points]
        axes.loglog(units, [t for _, t in points], marker="o", label=_LABELS[kind])
    axes.set_xlabel("segments of all ranks plus tokens")
    axes.set_ylabel("microseconds a step")
    axes.grid(visible=True, which="major", alpha=0.4)
    axes.legend()
    # No date and no random ids: the same figures make the same file.
    figure.savefig(ROOT / "docs" / PLOT, metadata={"Date": None, "Creator": None})
