"""The CPU platform: vLLM's own, with what PP and PCP for MLA models need on CPU."""

import importlib
import os
from typing import Any

from vllm.platforms.cpu import CpuPlatform
from vllm.utils import cpu_resource_utils

from pyvllm_pp.host.compat import check_version, replaced_global
from pyvllm_pp.host.cpu.binding import BIND_ENV, bind_threads
from pyvllm_pp.host.log import get_logger
from pyvllm_pp.host.ranks import check_ranks
from pyvllm_pp.host.settings import Settings, is_wanted

logger = get_logger(__name__)

_WORKER_CLS = "pyvllm_pp.host.cpu.worker.PipelineCPUWorker"
_RUNNER_ENV = "VLLM_USE_V2_MODEL_RUNNER"
_OURS_ENV = "PYVLLM_PP_MODEL_RUNNER"
_START_METHOD_ENV = "VLLM_WORKER_MULTIPROC_METHOD"


class PipelineCpuPlatform(CpuPlatform):
    """A run without PP, PCP and settings of ours is left as vLLM makes it."""

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """Complete a run's configuration; repeated calls change nothing more.

        Raises:
            RuntimeError: the installed vLLM is not a supported one.
            ValueError: settings of ours are wrong.
        """
        if not is_wanted(vllm_config):
            _choose_model_runner(v2=False)
            super().check_and_update_config(vllm_config)
            return
        check_version()
        Settings.read(vllm_config.additional_config)
        _choose_model_runner(v2=True)
        kept = _prefill_options(vllm_config)
        is_auto = vllm_config.parallel_config.worker_cls == "auto"
        start_method = os.environ.get(_START_METHOD_ENV)
        scheduler = vllm_config.scheduler_config
        is_async = scheduler.async_scheduling
        super().check_and_update_config(vllm_config)
        if start_method is not None:
            # The CPU platform always spawns; a choice of the user's stands.
            os.environ[_START_METHOD_ENV] = start_method
        if _has_drafts_over_stages(vllm_config):
            # The CPU platform switches it off; a choice of the user's stands.
            scheduler.async_scheduling = is_async
        if is_auto:
            vllm_config.parallel_config.worker_cls = _WORKER_CLS
        if vllm_config.model_config is not None and vllm_config.model_config.use_mla:
            _restore_prefill_options(vllm_config, kept)
            _avoid_broken_rope(vllm_config)
        _bind(vllm_config)

    @classmethod
    def register_triton_kernel_overrides(cls) -> None:
        """Keep vLLM's native forms of the V1 runner's kernels.

        It leaves them out when Triton counts as present, which our `cpu` entry brings
        about; the interpreter would run them instead. The registration itself imports
        modules, which have to see that Triton is there; so it waits for the end of the
        block.
        """
        from vllm import triton_utils
        from vllm.triton_utils import dispatcher

        importlib.import_module("vllm.utils.cpu_triton_utils")
        kernels: dict[str, Any] = {}
        with (
            replaced_global(triton_utils, "HAS_TRITON", False),
            replaced_global(dispatcher, "register_kernels", kernels.update),
        ):
            super().register_triton_kernel_overrides()
        dispatcher.register_kernels(kernels)


def _choose_model_runner(*, v2: bool) -> None:
    """Leave a run that is not ours on the runner that it had without our Triton entry.

    A choice of the user's stands.
    """
    given = os.environ.get(_RUNNER_ENV)
    if given is not None and given != os.environ.get(_OURS_ENV):
        return
    os.environ[_RUNNER_ENV] = os.environ[_OURS_ENV] = "1" if v2 else "0"


def _has_drafts_over_stages(vllm_config: Any) -> bool:
    """Whether the scheduler has to be asynchronous; see ``FeedbackHandler``."""
    return bool(
        vllm_config.parallel_config.pipeline_parallel_size > 1
        and vllm_config.speculative_config is not None
    )


def _prefill_options(vllm_config: Any) -> tuple[bool, bool, int]:
    scheduler, cache = vllm_config.scheduler_config, vllm_config.cache_config
    return (
        scheduler.enable_chunked_prefill,
        cache.enable_prefix_caching,
        scheduler.max_num_batched_tokens,
    )


def _restore_prefill_options(vllm_config: Any, kept: tuple[bool, bool, int]) -> None:
    """Put back what the CPU platform switches off for MLA; its kernels can do it."""
    scheduler, cache = vllm_config.scheduler_config, vllm_config.cache_config
    (
        scheduler.enable_chunked_prefill,
        cache.enable_prefix_caching,
        scheduler.max_num_batched_tokens,
    ) = kept


def _avoid_broken_rope(vllm_config: Any) -> None:
    """Use the PyTorch form of plain RoPE.

    The CPU build's `rotary_embedding` is wrong for the strided inputs of MLA.
    """
    custom_ops = vllm_config.compilation_config.custom_ops
    if not {"+rotary_embedding", "-rotary_embedding"} & set(custom_ops):
        custom_ops.append("-rotary_embedding")


def _bind(vllm_config: Any) -> None:
    parallel = vllm_config.parallel_config
    num_workers = parallel.world_size * parallel.data_parallel_size_local
    cores = [cpu.id for cpu in cpu_resource_utils.get_allowed_cpu_list()]
    num_nodes = len(cpu_resource_utils.get_visible_memory_node())
    previous = os.environ.get(BIND_ENV)
    binding = bind_threads(num_workers, num_nodes, cores)
    if binding is None:
        if previous not in (None, "auto", "nobind"):
            lists = previous.split("|")
            check_ranks(parallel, len(lists), f"CPU lists in {BIND_ENV}={previous!r}")
    elif binding != previous:
        # Once: the engine core comes here too, with what the front process set.
        logger.info(
            "%d workers share %d cores, worker by worker: %s",
            num_workers,
            len(cores),
            binding,
        )
