"""vLLM 0.31: it refuses PP with PCP; this is what was missing there.

Its stages differ in one thing: the earlier ones apply feedback to the PCP-local batch.
"""

import copy
from typing import Any

from pyvllm_pp.host.compat import replaced_global, v0_32
from pyvllm_pp.host.compat.v0_32 import HandlerFace

__all__ = ["HandlerFace", "ManagerFace", "RunnerFace", "WorkerFace", "validation_view"]


def validation_view(vllm_config: Any) -> Any:
    """The configuration with one stage: all other refusals still stand."""
    view, parallel = copy.copy(vllm_config), copy.copy(vllm_config.parallel_config)
    object.__setattr__(parallel, "pipeline_parallel_size", 1)
    object.__setattr__(view, "parallel_config", parallel)
    return view


class ManagerFace(v0_32.ManagerFace):
    """Decodes are on every rank: this version's KV gather expects them there."""

    shard_decode_requests = False

    @property
    def global_batch(self: Any) -> Any:
        """The batch in global order, which later versions hand out themselves."""
        assert self._global_batch is not None
        return self._global_batch


class RunnerFace:
    """Hands the global batch to feedback on the stages that are not last."""

    def sample_tokens(self: Any, grammar_output: Any) -> Any:
        """Sample, or on an earlier stage receive, with the global batch."""
        state, manager = self.execute_model_state, self.pcp_manager
        if state is not None and manager is not None and not self.is_last_pp_rank:
            self.execute_model_state = state._replace(input_batch=manager.global_batch)
        return super().sample_tokens(grammar_output)  # type: ignore[misc]


class WorkerFace:
    """vLLM's worker builds its runner inside ``init_device``, without a hook."""

    def init_device(self: Any) -> None:
        """Build the device, and our runner in place of vLLM's."""
        from vllm.v1.worker.gpu import model_runner

        from pyvllm_pp.host.runner import PipelineGPUModelRunner

        with replaced_global(model_runner, "GPUModelRunner", PipelineGPUModelRunner):
            super().init_device()  # type: ignore[misc]
