"""Kernels of a decode step: C++ against vLLM's own in Triton's interpreter."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median
from time import thread_time_ns
from typing import Any, NamedTuple

import torch
from vllm.v1.sample.ops import topk_topp_sampler

from bench.decode_step import DecodeSteps
from bench.section import Section, Table, Target
from pyvllm_pp import _kernels
from pyvllm_pp.host.compat import replaced_global
from pyvllm_pp.host.cpu.kernels.launch import NativeKernel
from pyvllm_pp.host.cpu.kernels.table import STAND_INS
from pyvllm_pp.host.cpu.kernels.top_k_top_p import apply_top_k_top_p

_NUM_REQS = 64
_VOCAB_SIZES = (1024, 129_280)
_WANTED = 50.0
# The interpreter takes minutes for all requests of the larger vocabulary.
_NUM_INTERPRETED = {1024: _NUM_REQS, 129_280: 2}
_NUM_STEPS = 3
_GREEDY = {"temperature": 0.0}
_SAMPLED = {
    "temperature": 0.8,
    "min_p": 0.05,
    "repetition_penalty": 1.1,
    "frequency_penalty": 0.2,
    "presence_penalty": 0.1,
    "logit_bias": {5: 2.0, 9: -3.0},
    "logprobs": 5,
}
_SAMPLING: dict[str, dict[str, Any]] = {
    "greedy": _GREEDY,
    "temperature": {"temperature": 0.8},
    "min-p, penalties, bias, logprobs": _SAMPLED,
}
_TOP = {"temperature": 0.8, "top_k": 50, "top_p": 0.9}

Times = dict[str, list[float]]


class Measured(NamedTuple):
    """Microseconds of a step's kernels, all launches of one together; medians."""

    interpreter: dict[str, float]
    native: dict[str, float]

    @property
    def ratio(self) -> float:
        """How many times less the native kernels of a step take."""
        return sum(self.interpreter.values()) / sum(self.native.values())


@torch.inference_mode()
def measure() -> Section:
    """Sums of kernel time of a decode step, the kernels one by one, and the targets."""
    measured = {
        (vocab_size, name): _measure(vocab_size, sampling)
        for vocab_size in _VOCAB_SIZES
        for name, sampling in _SAMPLING.items()
    }
    return Section(
        title="Kernels of a decode step on a CPU",
        parts=[
            f"{_NUM_REQS} requests, a token each; vLLM's own functions launch the "
            "kernels, and both sides sample the same tokens. Milliseconds of all "
            "kernels of a step, launches included, one thread: vLLM's kernels in "
            "Triton's interpreter, then C++. Of the larger vocabulary the interpreter "
            f"runs {_NUM_INTERPRETED[_VOCAB_SIZES[-1]]} of the requests only, the "
            "native kernels all, so the ratio there is less than that of equal work.",
            Table(
                header=["vocabulary", "sampling", "interpreter", "native", "ratio"],
                rows=[
                    [
                        *key,
                        sum(each.interpreter.values()) / 1e3,
                        sum(each.native.values()) / 1e3,
                        each.ratio,
                    ]
                    for key, each in measured.items()
                ],
            ),
            f"Kernel by kernel at {_VOCAB_SIZES[-1]:,}, microseconds a step:",
            _by_kernel(measured[_VOCAB_SIZES[-1], list(_SAMPLING)[-1]]),
            _top_k_top_p(),
        ],
        targets=[
            Target(
                what=f"{name}, vocabulary {vocab_size:,}",
                value=each.ratio,
                limit=_WANTED,
            )
            for (vocab_size, name), each in measured.items()
        ],
        data={
            f"{name}, {vocab_size}": each._asdict()
            for (vocab_size, name), each in measured.items()
        },
    )


def _measure(vocab_size: int, sampling: dict[str, Any]) -> Measured:
    """Both sides step by step, in turn; each step's tokens must be equal."""
    num_both = _NUM_INTERPRETED[vocab_size]
    sides = [DecodeSteps(n, vocab_size, **sampling) for n in (num_both, _NUM_REQS)]
    times: tuple[Times, Times] = (defaultdict(list), defaultdict(list))
    for step in range(1 + _NUM_STEPS):
        if step == 1:
            # The first one warmed up.
            for each in times:
                each.clear()
        tokens = []
        for steps, own, is_native in zip(sides, times, (False, True), strict=True):
            with _timed_kernels(own, is_native):
                tokens.append(steps.run(step)[:num_both])
        assert torch.equal(*tokens), f"step {step}: the kernels differ in tokens"
    medians = ({name: median(each) for name, each in t.items()} for t in times)
    return Measured(*medians)


@contextmanager
def _timed_kernels(times: Times, is_native: bool) -> Iterator[None]:
    """Keep the microseconds that each kernel takes in a block, all launches added."""
    step: dict[str, float] = defaultdict(float)
    with ExitStack() as stack:
        for stand_in in STAND_INS:
            module, name = stand_in.load_module(), stand_in.kernel
            kernel = getattr(module, name)
            if is_native:
                kernel = NativeKernel(kernel, getattr(_kernels, name))
            timed = _TimedKernel(kernel, name, step)
            stack.enter_context(replaced_global(module, name, timed))
        yield
    for name, microseconds in step.items():
        times[name].append(microseconds)


class _TimedKernel:
    """A kernel whose launches are timed; `step` has the microseconds of all."""

    def __init__(self, kernel: Any, name: str, step: dict[str, float]) -> None:
        self._kernel, self._name, self._step = kernel, name, step

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return partial(self._run, grid)

    def _run(self, grid: tuple[int, ...], *args: Any, **kwargs: Any) -> None:
        begin = thread_time_ns()
        self._kernel[grid](*args, **kwargs)
        self._step[self._name] += (thread_time_ns() - begin) / 1e3


def _by_kernel(measured: Measured) -> Table:
    rows: list[list[str | float | int]] = [
        [f"`{name}`", stock, measured.native[name], stock / measured.native[name]]
        for name, stock in sorted(measured.interpreter.items(), key=lambda x: -x[1])
    ]
    return Table(header=["kernel", "interpreter", "native", "ratio"], rows=rows)


def _top_k_top_p() -> str:
    """What the interpreter cannot run has a time, and no ratio."""
    texts = []
    for vocab_size in _VOCAB_SIZES:
        steps = DecodeSteps(_NUM_REQS, vocab_size, **_TOP)
        times: list[float] = []

        def timed(*args: Any, own: list[float] = times) -> torch.Tensor:
            begin = thread_time_ns()
            masked = apply_top_k_top_p(*args)
            own.append((thread_time_ns() - begin) / 1e6)
            return masked

        name = "apply_top_k_top_p_triton"
        with (
            _timed_kernels(defaultdict(list), is_native=True),
            replaced_global(topk_topp_sampler, name, timed),
        ):
            for step in range(20):
                steps.run(step)
        texts.append(f"{median(times):.2f} ms at {vocab_size:,}")
    return (
        "Top-k 50 with top-p 0.9, which the interpreter cannot run, take "
        f"{' and '.join(texts)}."
    )
