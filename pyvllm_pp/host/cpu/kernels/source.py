"""What a Triton kernel computes, as a short text that changes when the kernel does.

A stand-in is written against one source of vLLM's kernel. Comparing the sources tells,
without a version number, whether it still is the same kernel.
"""

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any


def source_digest(kernel: Any) -> str:
    """Digest of a kernel's code and of the device functions and constants it names.

    Comments, docstrings, decorators and layout do not count.

    Args:
        kernel: a Triton function, interpreted or compiled.

    Returns:
        12 hexadecimal digits.
    """
    text = "\n".join(_sources(kernel, set()))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _sources(kernel: Any, seen: set[str]) -> Iterator[str]:
    function = kernel.fn
    seen.add(function.__name__)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    _strip(tree)
    yield ast.unparse(tree)
    for name in sorted({n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}):
        value = function.__globals__.get(name)
        if hasattr(value, "fn") and name not in seen:
            yield from _sources(value, seen)
        elif type(value).__name__ == "constexpr":
            yield f"{name} = {value.value!r}"


def _strip(tree: ast.Module) -> None:
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.decorator_list = []
    if ast.get_docstring(function) is not None:
        del function.body[0]
