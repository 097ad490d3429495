"""What the house tests look at: tracked files, imports, includes, blocks."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
CODE = {".py", ".pyi", ".h", ".cpp", ".cmake"}


def tracked(*folders: str) -> list[Path]:
    """Files under version control, those not yet added too."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = (ROOT / line for line in listed.stdout.splitlines())
    return sorted(path for path in paths if path.is_file())


def code(*folders: str) -> list[Path]:
    return [path for path in tracked(*folders) if path.suffix in CODE]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


class Import(NamedTuple):
    module: str
    where: str  # "module", "function" or "types"


def imports(path: Path) -> Iterator[Import]:
    """Every import of a Python file, and whether importing the file runs it."""
    yield from _imports(ast.parse(path.read_text()), "module")


def _imports(node: ast.AST, where: str) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        inner = where
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, where) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            module = child.module or ""
            yield Import(module, where)
            yield from (Import(f"{module}.{a.name}", where) for a in child.names)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            inner = "function"
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            inner = "types"
        yield from _imports(child, inner)


def includes(path: Path) -> set[str]:
    return set(re.findall(r'^#include ["<]([^">]+)[">]', path.read_text(), re.M))


def longest_function(path: Path) -> int:
    """Lines of the longest function of a Python or C++ file."""
    lengths = (
        _python_functions(path) if path.suffix in {".py", ".pyi"} else _blocks(path)
    )
    return max(lengths, default=0)


def _python_functions(path: Path) -> Iterator[int]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


def _blocks(path: Path) -> Iterator[int]:
    """Brace blocks of formatted C++ that are no namespace, type or extern block."""
    open_lines: list[tuple[int, bool]] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])\'|//.*', "", line)
        is_frame = re.match(
            r"\s*(inline )?(namespace|class|struct|enum|extern)\b", text
        )
        for brace in re.findall(r"[{}]", text):
            if brace == "{":
                open_lines.append((number, is_frame is not None))
            elif open_lines:
                start, frame = open_lines.pop()
                if not frame:
                    yield number - start + 1
