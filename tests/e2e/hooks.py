"""Faults and probes that are put into an engine's processes.

A hook runs in the engine's first process before vLLM starts anything, so that what it
changes, the engine core and all workers have, which are forks of it.
"""

import os
import signal
import time
from typing import Any

from tests.e2e.zygote import HOOK_ENV

# The forward at which a worker fails, dummy ones of the start not counted.
FAILING_STEP = 4
# In the log, with the time at which it fails.
FAULT_MARK = "fault at "


def hook(name: str) -> dict[str, str]:
    """Environment of a run with a function of this module as its hook."""
    return {HOOK_ENV: f"{__name__}:{name}"}


def keep_async_scheduling() -> None:
    """Put async scheduling back, which vLLM's CPU platform switches off."""
    from pyvllm_pp.host.cpu.platform import PipelineCpuPlatform

    platform: Any = PipelineCpuPlatform
    original = platform.check_and_update_config.__func__

    def check_and_update_config(cls: type, vllm_config: Any) -> None:
        kept = vllm_config.scheduler_config.async_scheduling
        original(cls, vllm_config)
        vllm_config.scheduler_config.async_scheduling = kept

    platform.check_and_update_config = classmethod(check_and_update_config)


def local_batch_for_feedback() -> None:
    """Hand earlier stages their PCP-local batch for feedback, as vLLM 0.31 did."""
    from vllm.distributed.parallel_state import get_pp_group

    from pyvllm_pp.host.pcp import NativePCPManager

    original = NativePCPManager.global_batch

    def global_batch(self: Any) -> Any:
        if get_pp_group().is_last_rank:
            return original.__get__(self)
        return self._local_batch

    NativePCPManager.global_batch = property(global_batch)


def kill_a_worker() -> None:
    """Worker 2 is killed in the middle of a run."""
    _fail_at_step(rank=2, fail=lambda: os.kill(os.getpid(), signal.SIGKILL))


def raise_in_a_worker() -> None:
    """Worker 2 raises in the middle of a run."""

    def fail() -> None:
        raise RuntimeError("injected fault in rank 2")

    _fail_at_step(rank=2, fail=fail)


def _fail_at_step(rank: int, fail: Any) -> None:
    from pyvllm_pp.host.cpu.worker import PipelineCPUWorker

    original = PipelineCPUWorker.execute_model
    steps = iter(range(1, 1_000_000))

    def execute_model(self: Any, scheduler_output: Any) -> Any:
        if scheduler_output.total_num_scheduled_tokens > 0:
            step = next(steps)
            if self.rank == rank and step == FAILING_STEP:
                print(f"{FAULT_MARK}{time.time()}", flush=True)
                fail()
        return original(self, scheduler_output)

    PipelineCPUWorker.execute_model = execute_model
