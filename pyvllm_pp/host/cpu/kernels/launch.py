"""Launches: of stand-ins, and of kernels that have none."""

from collections.abc import Callable
from functools import partial
from typing import Any

from pyvllm_pp.host.compat import replace_attribute
from pyvllm_pp.host.log import get_logger

logger = get_logger(__name__)


class NativeKernel:
    """A C++ function in the place of a Triton kernel: ``kernel[grid](arguments)``.

    Attributes:
        original: vLLM's kernel; what it offers beside launches is offered here too.
        function: the stand-in; takes the grid, then the kernel's own arguments.
    """

    def __init__(self, original: Any, function: Callable[..., None]) -> None:
        self.original = original
        self.function = function

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return partial(self.function, grid)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


def warn_of_interpreted_kernels() -> None:
    """Say once of each kernel that runs in Triton's interpreter that it does."""
    from triton.runtime.interpreter import InterpretedFunction

    run = InterpretedFunction.run
    if hasattr(run, "warns"):
        return

    def run_with_warning(self: Any, *args: Any, warmup: bool, **kwargs: Any) -> Any:
        if not warmup:
            logger.warning_once(
                "Triton kernel %s has no native form here: it runs in Triton's "
                "interpreter, which is slow",
                self.fn.__name__,
            )
        return run(self, *args, warmup=warmup, **kwargs)

    run_with_warning.warns = True  # type: ignore[attr-defined]
    replace_attribute(InterpretedFunction, "run", run_with_warning)
