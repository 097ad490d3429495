"""The whole step as the runner calls it, against stock's, on the same CPU tensors."""

from collections.abc import Callable

import torch

from bench.section import Section, Table, Target
from bench.shapes import (
    BATCHES,
    PCP_SIZES,
    Shape,
    Step,
    changing_steps,
    check,
    managers,
    steady_steps,
)
from bench.timing import Times, compare, interleaved
from tests.host.batches import Topology
from tests.host.op_counts import Counts, count_steps, managers_on_meta, on_meta

_WANTED = {
    "8 decodes": 5.0,
    "256 decodes": 20.0,
    "1024 decodes": 60.0,
    "4 prompts of 8192": 5.0,
}
_CASES = {"the same": steady_steps, "changed": changing_steps}
# Requests of the decode batches whose cost must not grow with their number.
_FEW, _MANY, _MOST_GROWTH = 64, 1024, 1.5


@torch.inference_mode()
def measure() -> Section:
    """Times of both cases, targets on both, and what a step asks of the device."""
    rows: list[list[str | float | int]] = []
    targets = []
    data = []
    for shape in BATCHES:
        for pcp_size in PCP_SIZES:
            for case, make_steps in _CASES.items():
                times = _compare(pcp_size, make_steps(shape))
                rows.append([shape.name, pcp_size, case, *times, times.ratio])
                data.append(
                    {"batch": shape.name, "pcp_size": pcp_size, "case": case}
                    | {"stock_us": times.stock, "ours_us": times.ours}
                )
                if shape.name in _WANTED:
                    what = f"{shape.name}, PCP {pcp_size}, batch {case}"
                    targets.append(
                        Target(what=what, value=times.ratio, limit=_WANTED[shape.name])
                    )
    growth, growth_data = _growth()
    counts, count_targets = _counts()
    return Section(
        title="A step on the host",
        parts=[
            "`get_num_tokens_for_dispatch`, then `partition_batch`, as the runner "
            "calls them, on one rank. *The same*: requests and slots of the last step, "
            "a token or a chunk further, as in decoding; the device tables are reused. "
            "*Changed*: other slots, and one request with another token count, at "
            "every step; nothing is reused. Microseconds.",
            Table(
                header=[
                    "batch",
                    "PCP",
                    "since the last step",
                    "stock",
                    "ours",
                    "ratio",
                ],
                rows=rows,
            ),
            "What a step asks of the device, 256 decodes at PCP 2:",
            counts,
        ],
        targets=[*targets, growth, *count_targets],
        data={"times": data, "growth": growth_data},
    )


def _compare(pcp_size: int, steps: list[Step]) -> Times:
    check(pcp_size, steps)
    stock, ours = managers(pcp_size)
    return compare(
        lambda i: steps[i % len(steps)].run(stock),
        lambda i: steps[i % len(steps)].run(ours),
    )


def _growth() -> tuple[Target, dict[str, float]]:
    """How much a reused step of many decodes costs over one of few."""
    few, many = interleaved(_reused(_FEW), _reused(_MANY))
    target = Target(
        what=f"a reused step of {_MANY} decodes over one of {_FEW}, PCP 2",
        value=many / few,
        limit=_MOST_GROWTH,
        kind="less than",
    )
    return target, {"few_us": few, "many_us": many}


def _reused(num_reqs: int) -> Callable[[int], object]:
    """Our steps of that many decodes, of a manager of their own."""
    shape = Shape(
        name=f"{num_reqs} decodes",
        num_reqs=num_reqs,
        tokens_each=1,
        is_prefilling=False,
    )
    steps = steady_steps(shape)
    check(2, steps)
    _, ours = managers(2)
    return lambda i: steps[i % len(steps)].run(ours)


def _counts() -> tuple[Table, list[Target]]:
    """Counted on torch's meta device, at the last of several steps."""
    shape = next(shape for shape in BATCHES if shape.name == "256 decodes")
    topology = Topology(2, max_num_reqs=shape.num_reqs)
    rows: list[list[str | float | int]] = []
    targets = []
    for case, make_steps in _CASES.items():
        steps = [(step.requests, on_meta(step.batch)) for step in make_steps(shape)]
        stock, ours = (
            count_steps(manager, steps)[-1] for manager in managers_on_meta(topology, 0)
        )
        for name, *values in zip(Counts._fields, stock, ours, strict=True):
            rows.append([name.replace("_", " "), case, *values])
        targets.append(
            Target(
                what=f"host-to-device copies a step, batch {case}",
                value=ours.host_to_device_copies,
                limit=1,
                kind="at most",
                unit="",
            )
        )
    header = ["a step", "the batch is", "stock", "ours"]
    return Table(header=header, rows=rows), targets
