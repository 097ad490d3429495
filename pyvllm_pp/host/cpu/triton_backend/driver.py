"""The driver class of the `cpu` entry: never active, so Triton never selects it."""

from typing import Any

from pyvllm_pp.host.cpu.triton_backend import other_module

_other = other_module("driver")

if _other is not None:
    from triton.backends import _find_concrete_subclasses
    from triton.backends.driver import DriverBase as _DriverBase

    Driver = _find_concrete_subclasses(_other, _DriverBase)
    del _DriverBase
else:
    from triton.backends import driver as _triton

    class CpuDriver(_triton.DriverBase):
        """Answers what Triton asks of every installed driver."""

        @classmethod
        def is_active(cls) -> bool:
            """Never: it must not count beside a GPU's driver."""
            return False

        def map_python_to_cpp_type(self, ty: str) -> str:
            """Refuse: nothing is compiled."""
            raise NotImplementedError(f"the cpu entry compiles nothing: {ty}")

        def get_current_target(self) -> Any:
            """Refuse: there is no target."""
            raise NotImplementedError("the cpu entry has no compile target")

        def get_active_torch_device(self) -> Any:
            """Torch's CPU device."""
            import torch

            return torch.device("cpu")

        def get_benchmarker(self) -> Any:
            """Refuse: nothing is compiled."""
            raise NotImplementedError("the cpu entry compiles nothing")
