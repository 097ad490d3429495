"""C++ in place of the Triton kernels that Model Runner V2 launches on a CPU build.

vLLM looks its kernels up as module globals at each launch, ``kernel[grid](arguments)``;
:func:`install` puts objects with the same call shape there. A kernel whose source is
not one that its stand-in was written for keeps running in Triton's interpreter.

To add a kernel: write it in ``cpp/kernels``, bind it in ``cpp/bindings/kernels`` under
vLLM's name and with its parameters behind the grid, add it to ``_kernels.pyi`` and to
:data:`pyvllm_pp.host.cpu.kernels.table.STAND_INS`, and compare it with vLLM's own in
``tests/host/kernels``.
"""

import sys
from typing import Any

from vllm.v1.sample.ops import topk_topp_sampler

from pyvllm_pp import _kernels
from pyvllm_pp.host.compat import known_attribute, replace_attribute
from pyvllm_pp.host.cpu.kernels.launch import NativeKernel, warn_of_interpreted_kernels
from pyvllm_pp.host.cpu.kernels.source import source_digest
from pyvllm_pp.host.cpu.kernels.table import STAND_INS, StandIn
from pyvllm_pp.host.cpu.kernels.top_k_top_p import apply_top_k_top_p
from pyvllm_pp.host.log import get_logger

logger = get_logger(__name__)


def install() -> list[str]:
    """Put every stand-in in its place in this process; repeated calls change nothing.

    Returns:
        Names of the kernels that run natively.

    Raises:
        RuntimeError: this vLLM has no kernel of a name that it should have.
    """
    warn_of_interpreted_kernels()
    native = [stand_in.kernel for stand_in in STAND_INS if _put_in_place(stand_in)]
    replace_attribute(topk_topp_sampler, "apply_top_k_top_p_triton", apply_top_k_top_p)
    logger.info_once("%d Triton kernels of Model Runner V2 run natively", len(native))
    return native


def _put_in_place(stand_in: StandIn) -> bool:
    """Whether the kernel has its stand-in now."""
    module, name = stand_in.load_module(), stand_in.kernel
    original = known_attribute(module, name)
    if isinstance(original, NativeKernel):
        return True
    if source_digest(original) not in stand_in.sources:
        return False
    native = NativeKernel(original, getattr(_kernels, name))
    replace_attribute(module, name, native)
    for importer in _importers(original, name):
        replace_attribute(importer, name, native)
    return True


def _importers(kernel: Any, name: str) -> list[Any]:
    """Loaded modules of vLLM that imported a kernel by its name."""
    return [
        module
        for module_name, module in list(sys.modules.items())
        if module_name.startswith("vllm.")
        and getattr(module, "__dict__", {}).get(name) is kernel
    ]
