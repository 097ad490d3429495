"""How evenly both policies share a step, and what a plan of each costs."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from bench.report import ROOT
from bench.section import Section, Table, Target
from bench.timing import interleaved
from pyvllm_pp import reference
from pyvllm_pp.batch import BoolArray, Int32Array
from pyvllm_pp.plan import (
    Partition,
    PlanConfig,
    Planner,
    RankLoad,
    largest_over_equal,
    rank_loads,
)

PLOT = "balance.svg"
_PCP_SIZES = [2, 4, 8]
_POLICIES = [Partition.dual_chunk_swap, Partition.balanced]
# Prompts this long, and nothing else: attention work is promised to 2 %.
_LONG = "4 prompts of 2,048"


class Batch(NamedTuple):
    """One step's requests."""

    name: str
    num_scheduled_tokens: Int32Array
    num_computed_tokens: Int32Array
    is_prefilling: BoolArray

    def loads(self, pcp_size: int, policy: Partition) -> list[RankLoad]:
        """What a rank has, of a plan that keeps the policy's promises."""
        made = planner(pcp_size, policy).plan(
            self.num_scheduled_tokens, self.is_prefilling, self.num_computed_tokens
        )
        if policy is Partition.balanced:
            broken = reference.broken_promises(
                reference.plan_of(made),
                self.num_scheduled_tokens,
                self.is_prefilling,
                self.num_computed_tokens,
            )
            assert not broken, (self.name, pcp_size, broken)
        return rank_loads(made, self.num_scheduled_tokens, self.num_computed_tokens)


class Even(NamedTuple):
    """A plan in three figures; the first two are 1 where ranks are equal."""

    tokens: float
    work: float
    num_segments: int  # of the rank with most

    @classmethod
    def of(cls, loads: list[RankLoad]) -> "Even":
        """The figures of a plan's ranks."""
        return cls(
            largest_over_equal([load.num_tokens for load in loads]),
            largest_over_equal([load.attention_work for load in loads]),
            max(load.num_segments for load in loads),
        )


def measure() -> Section:
    """Table, plot, and microseconds of a plan."""
    batches = make_batches()
    evens = {
        (batch.name, pcp_size): tuple(
            Even.of(batch.loads(pcp_size, policy)) for policy in _POLICIES
        )
        for batch in batches
        for pcp_size in _PCP_SIZES
    }
    times = {
        (batch.name, pcp_size): plan_times(batch, pcp_size)
        for batch in batches
        for pcp_size in _PCP_SIZES
    }
    rows: list[list[str | float | int]] = []
    for key, (dual, balanced) in evens.items():
        tokens = [f"{even.tokens:.3f}" for even in (dual, balanced)]
        work = [f"{even.work:.3f}" for even in (dual, balanced)]
        segments = [dual.num_segments, balanced.num_segments]
        micros = [f"{time:.1f}" for time in times[key]]
        rows.append([*key, *tokens, *work, *segments, *micros])
    _plot(evens)
    return Section(
        title="Balance of the partition policies",
        parts=[
            "The largest rank over what each would have if all were equal, in tokens "
            "and in attention work (context lengths of a rank's tokens, summed): 1 is "
            "best. Segments are those of the rank with most; a plan's time is in "
            "microseconds. The first of two figures is `dual_chunk_swap`'s, the second "
            "`balanced`'s. Random lengths and contexts have a fixed seed.",
            Table(header=_HEADER, rows=rows),
            f"![Tokens and attention work of the largest rank]({PLOT})",
            _LOSES,
        ],
        targets=_targets(evens),
        data={
            "figures": {
                f"{name}, PCP {pcp}": [even._asdict() for even in pair]
                for (name, pcp), pair in evens.items()
            },
            "plan_us": {f"{name}, PCP {pcp}": t for (name, pcp), t in times.items()},
        },
    )


_HEADER = [
    *("batch", "PCP", "tokens, dual", "tokens, balanced", "work, dual"),
    *("work, balanced", "segments, dual", "segments, balanced"),
    *("plan, dual", "plan, balanced"),
]
_LOSES = (
    "Where `balanced` loses: a plan costs up to a few times that of "
    "`dual_chunk_swap`, most for decodes alone, because it weighs contexts; for the "
    "same reason its tables are written anew at every decode step, where "
    "`dual_chunk_swap` keeps them while requests and slots stand. Attention work "
    "within 2 % of equal is good enough where fewer segments come of it, so "
    "`dual_chunk_swap` can be closer by that much. A step whose work is below one "
    "64 x 64 tile a rank is equal in tokens only: one prompt of up to 90 tokens is "
    "cut into one run a rank, and the last rank has most work. Decodes with drafts "
    "stay whole, so ranks can differ by the tokens of one such row. It does not run "
    "with DCP."
)


def planner(pcp_size: int, policy: Partition) -> Planner:
    """A planner for any of the batches."""
    config = PlanConfig(
        pcp_size=pcp_size,
        dcp_size=1,
        shard_decode_requests=True,
        partition=policy,
        max_num_reqs=1024,
        max_num_tokens=65536,
    )
    return Planner(config)


def make_batches() -> list[Batch]:
    """Prompts alone, then prompts beside decodes, then decodes alone."""
    rng = np.random.default_rng(7)

    def prompts(
        name: str, lengths: list[int], contexts: list[int] | None = None
    ) -> Batch:
        scheduled = np.array(lengths, np.int32)
        decodes = np.array(contexts or [], np.int32)
        return Batch(
            name,
            np.concatenate([np.ones_like(decodes), scheduled]),
            np.concatenate([decodes, np.zeros_like(scheduled)]),
            np.arange(len(decodes) + len(scheduled)) >= len(decodes),
        )

    def draw(most: int, count: int) -> list[int]:
        return [int(length) for length in rng.integers(1, most + 1, count)]

    return [
        prompts("64 prompts of 17", [17] * 64),
        prompts("64 prompts of 100", [100] * 64),
        prompts("64 prompts of 1 to 64", draw(64, 64)),
        prompts("16 prompts of 1 to 1,000", draw(1000, 16)),
        prompts(_LONG, [2048] * 4),
        prompts("32 decodes, 4 prompts of 1 to 1,000", draw(1000, 4), draw(8000, 32)),
        prompts("64 decodes, 1 prompt of 2,048", [2048], draw(8000, 64)),
        prompts("64 decodes, 16 prompts of 17", [17] * 16, draw(8000, 64)),
        prompts("64 decodes", [], draw(8000, 64)),
        prompts("1,024 decodes", [], draw(8000, 1024)),
        prompts("1 prompt of 64", [64]),
    ]


def plan_times(batch: Batch, pcp_size: int) -> list[float]:
    """Median microseconds of a plan of each policy, never that of the last call."""

    def side(policy: Partition) -> Callable[[int], object]:
        plan = planner(pcp_size, policy).plan
        other = batch.num_scheduled_tokens.copy()
        other[-1] += 1
        steps = [batch.num_scheduled_tokens, other]
        return lambda step: plan(
            steps[step % 2], batch.is_prefilling, batch.num_computed_tokens
        )

    return interleaved(*[side(policy) for policy in _POLICIES])


def _targets(evens: dict[tuple[str, int], tuple[Even, ...]]) -> list[Target]:
    """What the policy promises, over the batches; the reference has judged the rest."""
    long = [pair[1].work for (name, _), pair in evens.items() if name == _LONG]
    return [
        Target(
            what=f"attention work of the largest rank over equal, {_LONG}",
            value=max(long),
            limit=1.02,
            kind="at most",
            unit="",
        ),
        Target(
            what="tokens of the largest rank, balanced over dual_chunk_swap, at worst",
            value=max(pair[1].tokens / pair[0].tokens for pair in evens.values()),
            limit=1,
            kind="at most",
            unit="",
        ),
    ]


def _plot(evens: dict[tuple[str, int], tuple[Even, ...]]) -> None:
    """Bars of the largest rank, a panel for tokens and one for work, at PCP 8."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    pcp_size = _PCP_SIZES[-1]
    names = [name for name, size in evens if size == pcp_size]
    places = np.arange(len(names))
    for axes, field in zip(panels, ("tokens", "work"), strict=True):
        for i, policy in enumerate(_POLICIES):
            values = [getattr(evens[name, pcp_size][i], field) - 1 for name in names]
            axes.barh(places + 0.4 * i - 0.2, values, 0.4, left=1, label=policy.name)
        axes.set_xlabel(f"{field} of the largest rank over equal, PCP {pcp_size}")
        axes.grid(visible=True, axis="x", alpha=0.4)
    panels[0].set_yticks(places, names)
    panels[0].invert_yaxis()
    panels[1].legend()
    # No date and no random ids: the same figures make the same file.
    figure.savefig(ROOT / "docs" / PLOT, metadata={"Date": None, "Creator": None})
