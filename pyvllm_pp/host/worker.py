"""Workers: where vLLM is told which runner to build."""

from typing import TYPE_CHECKING, Any

import torch
from vllm.v1.worker.gpu_worker import Worker

from pyvllm_pp.host.compat import adapter, check_version
from pyvllm_pp.host.ranges import StepRanges
from pyvllm_pp.host.ranks import check_ranks
from pyvllm_pp.host.settings import Settings

if TYPE_CHECKING:
    from vllm.v1.worker.gpu_worker import Worker as _Base
else:
    _Base = object


# Where this version builds its runner.
_Face = adapter().WorkerFace


class PipelineWorkerMixin(_Base):
    """Checks a run before its device is touched, and reports what it runs on."""

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        check_version()
        Settings.read(vllm_config.additional_config)
        super().__init__(vllm_config, *args, **kwargs)
        self._ranges = StepRanges()

    def profile(self, is_start: bool = True, *args: Any, **kwargs: Any) -> None:
        """Start or stop vLLM's profiler, with the ranges of a step in its trace."""
        if is_start:
            self._ranges.install(self.model_runner)
        try:
            super().profile(is_start, *args, **kwargs)
        finally:
            if not is_start:
                self._ranges.remove()

    def pyvllm_pp_report(self) -> dict[str, Any]:
        """Ranks of this worker and the classes that run in it."""
        from vllm.distributed.parallel_state import get_pcp_group, get_pp_group

        report = getattr(self.model_runner, "pyvllm_pp_report", None)
        return {
            "rank": self.rank,
            "pp_rank": get_pp_group().rank_in_group,
            "pcp_rank": get_pcp_group().rank_in_group,
            **(report() if report else {"runner": type(self.model_runner).__name__}),
        }


class GPUWorker(PipelineWorkerMixin, _Face, Worker):  # type: ignore[valid-type,misc]
    """The worker for GPUs: ``--worker-cls pyvllm_pp.GPUWorker``."""

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        parallel = vllm_config.parallel_config
        # Workers of other executors may see one device only.
        if parallel.distributed_executor_backend == "mp":
            check_ranks(parallel, torch.accelerator.device_count(), "visible GPUs")
        super().__init__(vllm_config, *args, **kwargs)

    def _make_model_runner(self) -> Any:
        if not self.use_v2_model_runner:
            raise NotImplementedError(
                "pyvllm_pp.GPUWorker needs Model Runner V2, this run uses V1; set "
                "VLLM_USE_V2_MODEL_RUNNER=1 or leave the worker class to vLLM"
            )
        from pyvllm_pp.host.runner import PipelineGPUModelRunner

        return PipelineGPUModelRunner(self.vllm_config, self.device)
