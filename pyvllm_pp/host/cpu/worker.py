"""The worker and the runner of vLLM's CPU build."""

# Patches torch for CPU; everything else of the worker must come after it.
import vllm.v1.worker.cpu.shm  # noqa: F401  # isort: skip

from vllm.v1.worker.cpu import model_runner as cpu_model_runner
from vllm.v1.worker.cpu.model_runner import CPUModelRunner
from vllm.v1.worker.cpu_worker import CPUWorker

from pyvllm_pp.host.compat import replaced_global
from pyvllm_pp.host.cpu import kernels
from pyvllm_pp.host.runner import PipelineRunnerMixin
from pyvllm_pp.host.settings import Kernels, Settings
from pyvllm_pp.host.worker import PipelineWorkerMixin


class PipelineCPUModelRunner(PipelineRunnerMixin, CPUModelRunner):
    """The runner of :class:`PipelineCPUWorker`."""


class PipelineCPUWorker(PipelineWorkerMixin, CPUWorker):
    """The worker that the CPU platform picks."""

    def init_device(self) -> None:
        """Install native kernels, then build the device and our runner.

        vLLM's CPU worker imports its runner class by name and has no hook for another.
        """
        settings = Settings.read(self.vllm_config.additional_config)
        if settings.kernels == Kernels.native.name:
            kernels.install()
        with replaced_global(
            cpu_model_runner, "CPUModelRunner", PipelineCPUModelRunner
        ):
            super().init_device()
