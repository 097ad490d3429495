"""The worker and the runner of vLLM's CPU build."""

# Patches torch for CPU; everything else of the worker must come after it.
import vllm.v1.worker.cpu.shm  # noqa: F401  # isort: skip

from typing import Any

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

    def prepare_inputs(self, *args: Any, **kwargs: Any) -> Any:
        """Count rejected drafts before the host's lengths of a batch are made.

        Where steps are scheduled ahead the host has an upper bound of them only, and
        vLLM's CPU attention takes it for the length. Here the device's own count is in
        the host's memory.
        """
        if self.num_speculative_steps > 0:
            states = self.req_states
            states.num_computed_tokens_np[:] = states.num_computed_tokens.gpu.numpy()
        return super().prepare_inputs(*args, **kwargs)


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
