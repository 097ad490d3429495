"""Pipeline parallelism with prefill context parallelism in vLLM's Model Runner V2.

Importing this package loads neither vLLM nor torch. Rooms: :mod:`pyvllm_pp.batch`,
:mod:`pyvllm_pp.plan`, :mod:`pyvllm_pp.tables`, :mod:`pyvllm_pp.feedback`; the vLLM side
is :mod:`pyvllm_pp.host`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyvllm_pp.host.worker import GPUWorker

__version__ = "0.1.0"
__all__ = ["GPUWorker", "__version__"]


def __getattr__(name: str) -> object:
    """Load the worker class only when vLLM asks for it (`--worker-cls`)."""
    if name == "GPUWorker":
        from pyvllm_pp.host.worker import GPUWorker

        return GPUWorker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
