"""The compiler class of the `cpu` entry: the interpreter never calls it."""

from typing import Any

from pyvllm_pp.host.cpu.triton_backend import other_module

_other = other_module("compiler")

if _other is not None:
    from triton.backends import _find_concrete_subclasses
    from triton.backends.compiler import BaseBackend as _BaseBackend

    Backend = _find_concrete_subclasses(_other, _BaseBackend)
    del _BaseBackend
else:
    from triton.backends import compiler as _triton

    class CpuBackend(_triton.BaseBackend):
        """Supports no target: kernels run in the interpreter or natively."""

        @staticmethod
        def supports_target(target: Any) -> bool:  # noqa: ARG004
            """Nothing is compiled."""
            return False

        def hash(self) -> str:
            """Identify the backend in Triton's caches."""
            return "pyvllm_pp-cpu"

        def parse_options(self, options: dict[str, Any]) -> object:
            """Refuse: nothing is compiled."""
            raise NotImplementedError(f"the cpu entry compiles nothing: {options}")

        def add_stages(self, stages: Any, options: Any, language: Any) -> None:
            """Refuse: nothing is compiled."""
            raise NotImplementedError(f"the cpu entry compiles nothing: {language}")

        def load_dialects(self, context: Any) -> None:
            """Nothing to load."""

        def get_module_map(self) -> dict[str, Any]:
            """No device modules."""
            return {}
