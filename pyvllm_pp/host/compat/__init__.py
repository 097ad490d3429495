"""What differs between the vLLM versions that the backend supports."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from packaging.version import InvalidVersion, Version

SUPPORTED = ("0.31", "0.32", "0.33")


def vllm_minor(version: str) -> str:
    """``"0.32.1+cpu"`` -> ``"0.32"``."""
    return ".".join(version.split("+")[0].split(".")[:2])


def supported_minor(version: str) -> str:
    """The supported minor version that a vLLM version belongs to.

    Patch releases, post releases and local builds (``0.32.1``, ``0.32.0.post1``,
    ``0.32.0+cpu``) count as their minor version. Development builds and release
    candidates do not: their code lies anywhere between two releases.

    Raises:
        RuntimeError: the version is not a supported one.
    """
    try:
        is_release = not Version(version).is_prerelease
    except InvalidVersion:  # "dev", where vLLM does not know its version
        is_release = False
    minor = vllm_minor(version)
    if not is_release or minor not in SUPPORTED:
        raise RuntimeError(
            f"pyvllm_pp does not support vLLM {version}; supported versions: "
            + ", ".join(f"{supported}.x" for supported in SUPPORTED)
            + ("" if is_release else " (releases)")
        )
    return minor


def check_version() -> str:
    """Return the minor version of the installed vLLM.

    Raises:
        RuntimeError: the version is not a supported one.
    """
    import vllm

    return supported_minor(vllm.__version__)


def adapter() -> Any:
    """The module of the installed minor version, ``compat.v0_32`` say.

    Each defines the same names: ``ManagerFace``, ``HandlerFace``, ``RunnerFace`` and
    ``WorkerFace``, classes that stand between ours and vLLM's, and
    ``validation_view``.

    Raises:
        RuntimeError: the installed vLLM is not a supported one.
    """
    name = "v" + check_version().replace(".", "_")
    return importlib.import_module(f"{__name__}.{name}")


def known_attribute(owner: Any, name: str) -> Any:
    """A module global or a class attribute of vLLM or Triton that must be there.

    Raises:
        RuntimeError: the owner has no such name any more.
    """
    if not hasattr(owner, name):
        raise RuntimeError(
            f"{owner.__name__} has no {name!r}: this vLLM is not one that pyvllm_pp "
            f"supports ({', '.join(SUPPORTED)})"
        )
    return getattr(owner, name)


def replace_attribute(owner: Any, name: str, value: Any) -> Any:
    """Put `value` in place of a :func:`known_attribute`, which is returned.

    For the places where vLLM and Triton have no hook; each caller says why.
    """
    original = known_attribute(owner, name)
    setattr(owner, name, value)
    return original


@contextmanager
def replaced_global(module: ModuleType, name: str, value: Any) -> Iterator[None]:
    """Put `value` in place of a module global of vLLM for the length of a block.

    Raises:
        RuntimeError: the module has no such name any more.
    """
    original = replace_attribute(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, original)
