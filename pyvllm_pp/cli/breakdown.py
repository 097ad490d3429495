"""The time of a step of each process of an engine, made of its profiles."""

from pydantic import BaseModel, ConfigDict

from pyvllm_pp.cli.profiling import SCHEDULER
from pyvllm_pp.cli.runs import EngineResult, WorkerProfile


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class WorkerShare(_Frozen):
    """Microseconds a step of one process."""

    title: str  # "PP0 PCP1", or "scheduler"
    num_steps: int
    step_us: float
    us: dict[str, float]  # of each range, without the ranges inside it
    outside_us: float  # in no range


class Breakdown(_Frozen):
    """All processes of an engine, the scheduler first."""

    name: str
    workers: list[WorkerShare]


def breakdown(name: str, result: EngineResult) -> Breakdown:
    """Divide every profile by its steps."""
    ranks = {report.rank: report for report in result.workers}
    shares = []
    for profile in result.profiles:
        title = SCHEDULER
        if profile.worker != SCHEDULER:
            report = ranks[int(profile.worker.split()[-1])]
            title = f"PP{report.pp_rank} PCP{report.pcp_rank}"
        if profile.num_steps:
            shares.append(_share(title, profile))
    return Breakdown(name=name, workers=shares)


def _share(title: str, profile: WorkerProfile) -> WorkerShare:
    steps = profile.num_steps
    us = {time.name: time.own_us / steps for time in profile.ranges}
    step_us = profile.wall_us / steps
    return WorkerShare(
        title=title,
        num_steps=steps,
        step_us=step_us,
        us=us,
        outside_us=step_us - sum(us.values()),
    )
