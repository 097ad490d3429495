"""Model runners: vLLM's own, with the manager and the handler on the core."""

from typing import TYPE_CHECKING, Any

import torch
from vllm.config import VllmConfig
from vllm.v1.worker.gpu.model_runner import GPUModelRunner

from pyvllm_pp.host.compat import adapter
from pyvllm_pp.host.pcp import NativePCPManager
from pyvllm_pp.host.pp import FeedbackHandler
from pyvllm_pp.host.restore import Readers
from pyvllm_pp.host.settings import Settings

if TYPE_CHECKING:
    # The mixin sits in front of a runner; type checkers see the runner below it.
    from vllm.v1.worker.gpu.model_runner import GPUModelRunner as _Base
else:
    _Base = object


# What this version lacks.
_Face = adapter().RunnerFace


class PipelineRunnerMixin(_Face, _Base):  # type: ignore[valid-type,misc]
    """The two places where a runner differs from vLLM's.

    The forward runs on the PCP-local batch that the manager makes; sampling, feedback
    and request state use the global batch, which the manager keeps.
    """

    pp_handler: Any

    def __init__(self, vllm_config: VllmConfig, device: torch.device) -> None:
        self.settings = Settings.read(vllm_config.additional_config)
        super().__init__(vllm_config, device)
        # Before weights are loaded: vLLM asks when it makes the manager, after them.
        NativePCPManager.validate_config(vllm_config, self.supports_mm_inputs)
        FeedbackHandler.validate_config(vllm_config)
        if self.pp_handler is not None:
            self.pp_handler = FeedbackHandler.adopt(self.pp_handler, self.max_num_reqs)

    @property
    def pcp_manager_cls(self) -> type:
        """VLLM's hook for another PCP manager."""
        return NativePCPManager.configured(
            self.settings,
            self.vllm_config.max_concurrent_batches,
            Readers(self),
        )

    def pyvllm_pp_report(self) -> dict[str, Any]:
        """What this runner is made of, for the demo and the tests."""
        handler = self.pp_handler
        steps = handler.num_received if isinstance(handler, FeedbackHandler) else 0
        manager = self.pcp_manager
        is_ours = isinstance(manager, NativePCPManager)
        return {
            "runner": type(self).__name__,
            "pcp_manager": _class_name(manager),
            "pp_handler": _class_name(handler),
            "feedback_steps": steps,
            **self.settings.model_dump(),
            **(manager.pyvllm_pp_report() if is_ours else {}),
        }

    def shutdown(self) -> None:
        """Leave no feedback behind, then let vLLM release the rest."""
        if isinstance(self.pp_handler, FeedbackHandler):
            self.pp_handler.close()
        super().shutdown()


def _class_name(instance: object | None) -> str | None:
    return None if instance is None else type(instance).__name__


class PipelineGPUModelRunner(PipelineRunnerMixin, GPUModelRunner):
    """The runner of :class:`pyvllm_pp.GPUWorker`."""
