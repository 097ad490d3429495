"""A kernel's stand-in against vLLM's own kernel in Triton's interpreter."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from pyvllm_pp import _kernels
from pyvllm_pp.host.compat import replaced_global
from pyvllm_pp.host.cpu.kernels import NativeKernel
from pyvllm_pp.host.cpu.kernels.table import STAND_INS

State = dict[str, Any]


@contextmanager
def native_kernels() -> Iterator[set[str]]:
    """Every stand-in in its place for the length of a block.

    Yields:
        Names of those launched so far.
    """
    launched: set[str] = set()
    with ExitStack() as stack:
        for stand_in in STAND_INS:
            module, name = stand_in.load_module(), stand_in.kernel
            native = _Recorded(getattr(module, name), name, launched)
            stack.enter_context(replaced_global(module, name, native))
        yield launched


class _Recorded(NativeKernel):
    def __init__(self, original: Any, name: str, launched: set[str]) -> None:
        super().__init__(original, getattr(_kernels, name))
        self._name, self._launched = name, launched

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        self._launched.add(self._name)
        return super().__getitem__(grid)


def both(kernel: str, step: Callable[..., Any], state: State) -> tuple[State, State]:
    """Run `step(**state)` with vLLM's kernels and with ours, each on its own copy.

    Args:
        kernel: the stand-in that must have run.
        step: a function of vLLM's that launches it.
        state: its keyword arguments.

    Returns:
        The arguments as the step left them, and its answer under ``"return"``: of
        vLLM's kernels, then of ours.
    """
    stock, ours = copy_of(state), copy_of(state)
    logits = state.get("logits")
    is_bfloat16 = logits is not None and logits.dtype == torch.bfloat16
    if is_bfloat16:
        # The interpreter compares and rounds bfloat16 as the integers that it keeps
        # them in. Kernels compute in float32, so that gives the right answer.
        stock["logits"] = logits.float()
    stock["return"] = step(**stock)
    if is_bfloat16:
        stock["logits"] = stock["logits"].bfloat16()
    with native_kernels() as launched:
        ours["return"] = step(**ours)
    assert kernel in launched
    return stock, ours


def run_native(kernel: str, step: Callable[..., Any], state: State) -> State:
    """Run `step(**state)` with our kernels alone: the interpreter may not be able."""
    ours = copy_of(state)
    with native_kernels() as launched:
        ours["return"] = step(**ours)
    assert kernel in launched
    return ours


def assert_same(kernel: str, step: Callable[..., Any], state: State) -> State:
    """Assert that both leave and answer the same, bit by bit; see :func:`both`."""
    stock, ours = both(kernel, step, state)
    for name, expected in stock.items():
        assert_equal(name, expected, ours[name])
    return stock


def assert_equal(name: str, expected: Any, actual: Any) -> None:
    if isinstance(expected, torch.Tensor):
        assert expected.dtype == actual.dtype, name
        torch.testing.assert_close(
            actual,
            expected,
            rtol=0,
            atol=0,
            equal_nan=True,
            msg=lambda m: f"{name}: {m}",
        )
    elif isinstance(expected, tuple | list):
        for i, pair in enumerate(zip(expected, actual, strict=True)):
            assert_equal(f"{name}[{i}]", *pair)
    elif expected is None or isinstance(expected, int | float | str | bool):
        assert expected == actual, name


def copy_of(state: State) -> State:
    """A copy whose tensors keep their strides and the memory around them."""
    return {name: _copy(value) for name, value in state.items()}


def _copy(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        memory = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage().clone())
        return memory.as_strided(value.size(), value.stride(), value.storage_offset())
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value
