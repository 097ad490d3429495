"""docs/cpu.md against the kernels that this vLLM has and the stand-ins there are."""

import ast
import re
from pathlib import Path

import vllm.v1.worker.gpu as stock

from pyvllm_pp.host.cpu.kernels.table import STAND_INS

FOLDER = Path(stock.__path__[0])
PAGE = Path(__file__).parents[3] / "docs" / "cpu.md"
# | `module` | `_name_kernel` | used for | native |
ROW = re.compile(
    r"^\| `([\w.]+)` \| `(\w+)` \| [^|]+ \| (native|interpreter) \|$", re.MULTILINE
)


def kernels_of_vllm() -> set[tuple[str, str]]:
    """Module below vllm.v1.worker.gpu and name of each Triton kernel."""
    found = set()
    for path in FOLDER.rglob("*.py"):
        module = ".".join(path.relative_to(FOLDER).with_suffix("").parts)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.endswith("_kernel"):
                assert any("triton" in ast.unparse(d) for d in node.decorator_list)
                found.add((module, node.name))
    return found


def test_every_kernel_is_listed_as_it_runs() -> None:
    native = {(stand_in.module, stand_in.kernel) for stand_in in STAND_INS}
    expected = {
        (*kernel, "native" if kernel in native else "interpreter")
        for kernel in kernels_of_vllm()
    }
    rows = ROW.findall(PAGE.read_text())
    assert set(rows) == expected
    assert len(rows) == len(expected)
