"""Room 2: which PCP rank computes which tokens of one step."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pyvllm_pp._core import Partition, Plan, PlanConfig, Planner
from pyvllm_pp.batch import Int32Array

__all__ = [
    "Partition",
    "Plan",
    "PlanConfig",
    "Planner",
    "RankLoad",
    "largest_over_equal",
    "partition_names",
    "rank_loads",
]


def partition_names() -> list[str]:
    """Names of the policies, as the setting ``partition`` takes them."""
    return [policy.name for policy in Partition]


class RankLoad(NamedTuple):
    """What a plan gives one rank."""

    num_segments: int
    num_tokens: int
    attention_work: int  # context lengths of its tokens, summed; each counts itself


def rank_loads(
    plan: Plan, num_scheduled_tokens: Int32Array, num_computed_tokens: Int32Array
) -> list[RankLoad]:
    """What `plan` gives each rank.

    Args:
        plan: a plan of the batch, of any policy.
        num_scheduled_tokens: ``[num_reqs]`` as the plan was made from.
        num_computed_tokens: ``[num_reqs]`` contexts before this step.
    """
    first_tokens = np.cumsum(num_scheduled_tokens, dtype=np.int64)
    first_tokens -= num_scheduled_tokens
    loads = []
    for rank in range(plan.pcp_size):
        req_idx, starts, counts, _ = plan.segments(rank).astype(np.int64).T
        contexts = num_computed_tokens[req_idx] + starts - first_tokens[req_idx]
        work = counts * contexts + counts * (counts + 1) // 2
        loads.append(RankLoad(len(counts), int(counts.sum()), int(work.sum())))
    return loads


def largest_over_equal(amounts: Sequence[int]) -> float:
    """The largest amount over what each would have if all had the same; 1 is best."""
    total = sum(amounts)
    return max(amounts) * len(amounts) / total if total else 1.0
