"""The worker and the runner of vLLM's CPU build."""

# Patches torch for CPU; everything else of the worker must come after it.
import vllm.v1.worker.cpu.shm  # noqa: F401  # isort: skip

from vllm.v1.worker.cpu import model_runner as cpu_model_runner
from vllm.v1.worker.cpu.model_runner import CPUModelRunner
from vllm.v1.worker.cpu_worker import CPUWorker

from pyvllm_pp.host.compat import replaced_global
from pyvllm_pp.host.runner import PipelineRunnerMixin
from pyvllm_pp.host.worker import PipelineWorkerMixin


class PipelineCPUModelRunner(PipelineRunnerMixin, CPUModelRunner):
    """The runner of :class:`PipelineCPUWorker`."""


class PipelineCPUWorker(PipelineWorkerMixin, CPUWorker):
    """The worker that the CPU platform picks."""

    def init_device(self) -> None:
        """Build the device and our runner in place of vLLM's.

        vLLM's CPU worker imports its runner class by name and has no hook for another.
        """
        with replaced_global(
            cpu_model_runner, "CPUModelRunner", PipelineCPUModelRunner
        ):
            super().init_device()
