"""Where stand-ins go, and what happens where they must not."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import vllm.v1.worker.gpu.input_batch as stock

import pyvllm_pp
from pyvllm_pp import _kernels
from pyvllm_pp.host.compat import replace_attribute, replaced_global
from pyvllm_pp.host.cpu.kernels import NativeKernel, source
from pyvllm_pp.host.cpu.kernels.table import STAND_INS

IN_A_PROCESS = """
import vllm.v1.worker.cpu.shm
import logging
import sys
import torch
from vllm.triton_utils import tl, triton
from vllm.v1.worker.gpu import input_batch
from pyvllm_pp.host.cpu import kernels
from pyvllm_pp.host.cpu.kernels.table import STAND_INS

logging.basicConfig(level=logging.INFO)
# A module that imported a kernel by its name.
input_batch_user = type(sys)("vllm.user")
input_batch_user._post_update_kernel = input_batch._post_update_kernel
sys.modules["vllm.user"] = input_batch_user

native = kernels.install()
assert native == kernels.install() == [s.kernel for s in STAND_INS], native
assert type(input_batch._post_update_kernel) is kernels.NativeKernel
assert input_batch_user._post_update_kernel is input_batch._post_update_kernel
assert input_batch._post_update_kernel.arg_names[0] == "idx_mapping_ptr"
"""

OTHER = """
@triton.jit
def _other_kernel(out_ptr):
    tl.store(out_ptr, 5)

out = torch.zeros(1, dtype=torch.int32)
for _ in range(3):
    _other_kernel[(1,)](out)
print("out", out.item())
"""


def test_install_in_a_process(tmp_path: Any) -> None:
    script = tmp_path / "script.py"
    script.write_text(IN_A_PROCESS + OTHER)
    result = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "out 5" in result.stdout
    text = result.stdout + result.stderr
    assert f"{len(STAND_INS)} Triton kernels of Model Runner V2 run natively" in text
    assert text.count("Triton kernel _other_kernel has no native form") == 1


@pytest.mark.parametrize("stand_in", STAND_INS, ids=lambda s: s.kernel)
def test_parameters_are_those_of_vllms_kernel(stand_in: Any) -> None:
    kernel = getattr(stand_in.load_module(), stand_in.kernel)
    text = getattr(_kernels, stand_in.kernel).__doc__
    arguments = text[text.index("(") + 1 : text.rindex(")")].split(", ")
    names = [argument.split(":")[0] for argument in arguments]
    launch_options = {"num_warps"}
    assert [n for n in names if n not in launch_options] == ["grid", *kernel.arg_names]


@pytest.mark.parametrize("stand_in", STAND_INS, ids=lambda s: s.kernel)
def test_sources_are_those_that_the_stand_ins_were_written_for(stand_in: Any) -> None:
    kernel = getattr(stand_in.load_module(), stand_in.kernel)
    assert source.source_digest(kernel) in stand_in.sources


def function_of(text: str, **namespace: Any) -> Callable[..., Any]:
    import linecache

    name = f"<{hash(text)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict[str, Any] = dict(namespace)
    exec(compile(text, name, "exec"), scope)
    return scope["kernel"]  # type: ignore[no-any-return]


class Jit:
    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn


def test_digest_sees_code_helpers_and_constants_and_nothing_else() -> None:
    class constexpr:  # noqa: N801
        def __init__(self, value: int) -> None:
            self.value = value

    def digest(text: str, **namespace: Any) -> str:
        return source.source_digest(Jit(function_of(text, **namespace)))

    plain = "def kernel(a):\n    return helper(a, LIMIT)\n"
    helper = Jit(function_of("def kernel(a, b):\n    return a + b\n"))
    other_helper = Jit(function_of("def kernel(a, b):\n    return a - b\n"))
    base = digest(plain, helper=helper, LIMIT=constexpr(3))
    commented = (
        'def kernel(a):\n    """Text."""\n    # More.\n    return helper(a,LIMIT)\n'
    )
    assert digest(commented, helper=helper, LIMIT=constexpr(3)) == base
    assert digest(plain, helper=other_helper, LIMIT=constexpr(3)) != base
    assert digest(plain, helper=helper, LIMIT=constexpr(4)) != base
    changed = plain.replace("LIMIT", "LIMIT + 1")
    assert digest(changed, helper=helper, LIMIT=constexpr(3)) != base


def test_another_source_keeps_vllms_kernel() -> None:
    from pyvllm_pp.host.cpu import kernels
    from pyvllm_pp.host.cpu.kernels.table import StandIn

    original = stock._post_update_kernel
    assert not kernels._put_in_place(
        StandIn("input_batch", "_post_update_kernel", ("0",))
    )
    assert stock._post_update_kernel is original


def test_a_kernel_that_is_gone_is_an_error() -> None:
    from pyvllm_pp.host.cpu import kernels
    from pyvllm_pp.host.cpu.kernels.table import StandIn

    with pytest.raises(RuntimeError, match=r"input_batch has no '_gone_kernel'"):
        kernels._put_in_place(StandIn("input_batch", "_gone_kernel", ("0",)))


def test_replace_attribute_answers_what_was_there() -> None:
    class Owner:
        name = 1

    assert replace_attribute(Owner, "name", 2) == 1
    assert Owner.name == 2


def launch(**changes: Any) -> None:
    arguments = {
        "idx_mapping_ptr": torch.arange(2),
        "num_computed_tokens_ptr": torch.zeros(4, dtype=torch.int32),
        "query_start_loc_ptr": torch.arange(3, dtype=torch.int32),
    }
    _kernels._post_update_num_computed_tokens_kernel((2,), **{**arguments, **changes})


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"idx_mapping_ptr": [0, 1]}, TypeError, "'list'> is no tensor"),
        ({"idx_mapping_ptr": None}, TypeError, "idx_mapping is absent, expected int32"),
        ({"idx_mapping_ptr": torch.zeros(2)}, TypeError, "idx_mapping is float32"),
        (
            {"idx_mapping_ptr": torch.zeros(2, dtype=torch.int8)},
            TypeError,
            "torch.int8",
        ),
        ({"idx_mapping_ptr": torch.zeros(2, device="meta")}, RuntimeError, "meta"),
        ({"idx_mapping_ptr": torch.arange(1)}, ValueError, "idx_mapping, which has 1"),
        (
            {"idx_mapping_ptr": torch.tensor([0, 4])},
            ValueError,
            r"\[1\] is 4, expected below 4",
        ),
        (
            {"query_start_loc_ptr": torch.arange(2)},
            ValueError,
            "query_start_loc, which has 2",
        ),
    ],
)
def test_wrong_arguments_are_refused(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        launch(**changes)


@pytest.mark.parametrize("grid", [(), (1, 1, 1, 1), [1], 3])
def test_a_wrong_grid_is_refused(grid: Any) -> None:
    with pytest.raises(TypeError, match=r"grid is .*, expected a tuple"):
        _kernels._post_update_num_computed_tokens_kernel(grid, None, None, None)


def test_a_replaced_kernel_offers_what_vllms_own_does() -> None:
    original = stock._post_update_kernel
    native = NativeKernel(original, _kernels._post_update_kernel)
    assert native.arg_names == original.arg_names
    with replaced_global(stock, "_post_update_kernel", native):
        assert stock._post_update_kernel.fn is original.fn


def test_stub_and_table_name_what_the_extension_has() -> None:
    there = {name for name in dir(_kernels) if name.endswith("_kernel")}
    stub = Path(pyvllm_pp.__file__).parent / "_kernels.pyi"
    declared = re.findall(r"^(\w+_kernel): _Kernel$", stub.read_text(), re.MULTILINE)
    assert declared == sorted(there)
    assert {stand_in.kernel for stand_in in STAND_INS} == there
