"""Room 2: which PCP rank computes which tokens of one step."""

from pyvllm_pp._core import Partition, Plan, PlanConfig, Planner

__all__ = ["Partition", "Plan", "PlanConfig", "Planner", "partition_names"]


def partition_names() -> list[str]:
    """Names of the policies, as the setting ``partition`` takes them."""
    return [policy.name for policy in Partition]
