"""What installing the package changes, and what it leaves alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyvllm_pp.host.cpu.binding import BIND_ENV, bind_threads, share_cores


def python(code: str, **env: str) -> str:
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("TRITON_INTERPRET", "PYVLLM_PP")
    }
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**clean, **env},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()[-1]


HAS_TRITON = "from vllm.triton_utils import HAS_TRITON; print(HAS_TRITON)"
PLATFORM = "from vllm.platforms import current_platform as p; print(type(p).__name__)"


def test_platform_and_triton_on_the_cpu_build() -> None:
    assert python(PLATFORM) == "PipelineCpuPlatform"
    assert python(HAS_TRITON) == "True"


def test_switched_off_leaves_vllm_as_it_was() -> None:
    assert python(PLATFORM, PYVLLM_PP="0") == "CpuPlatform"
    assert python(HAS_TRITON, PYVLLM_PP="0") == "False"


V1_KERNELS = (
    "import sys; from vllm.platforms import current_platform as p; "
    "p.register_triton_kernel_overrides(); "
    "from vllm.v1.worker.block_table import ComputeSlotMappingKernel as k; "
    "print(type(k.kernel).__name__, sorted(name for name, module in "
    "sys.modules.items() if name.startswith('vllm') "
    "and vars(module).get('HAS_TRITON') is False))"
)


def test_native_kernels_of_v1_stay_and_no_module_misses_triton() -> None:
    assert python(V1_KERNELS) == "KernelOverride []"


ENTRY = (
    "import json, os, sys; import triton.backends as b; "
    "print(json.dumps([b.backends['cpu'].driver.is_active(), "
    "os.environ.get('TRITON_INTERPRET'), 'torch' in sys.modules]))"
)


def test_triton_entry_is_never_active_and_respects_the_user() -> None:
    assert json.loads(python(ENTRY)) == [False, "1", False]
    assert json.loads(python(ENTRY, TRITON_INTERPRET="0")) == [False, "0", False]
    assert json.loads(python(ENTRY, PYVLLM_PP="0")) == [False, None, False]


OTHER_COMPILER = """
from triton.backends.compiler import BaseBackend
class OtherCompiler(BaseBackend):
    def supports_target(target): ...
    def hash(self): ...
    def parse_options(self, options): ...
    def add_stages(self, stages, options, language): ...
    def load_dialects(self, context): ...
    def get_module_map(self): ...
"""
OTHER_DRIVER = """
from triton.backends.driver import DriverBase
class OtherDriver(DriverBase):
    def is_active(): return False
    def map_python_to_cpp_type(self, ty): ...
    def get_current_target(self): ...
    def get_active_torch_device(self): ...
    def get_benchmarker(self): ...
"""


def test_another_cpu_backend_is_the_one_in_use(tmp_path: Path) -> None:
    """C19: a Triton with a CPU backend of its own, whichever is found last."""
    package, info = tmp_path / "other_cpu", tmp_path / "other_cpu-1.0.dist-info"
    for path, text in (
        (package / "__init__.py", ""),
        (package / "compiler.py", OTHER_COMPILER),
        (package / "driver.py", OTHER_DRIVER),
        (info / "METADATA", "Metadata-Version: 2.1\nName: other-cpu\nVersion: 1.0\n"),
        (info / "entry_points.txt", "[triton.backends]\ncpu = other_cpu\n"),
    ):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    code = (
        "import os; import triton.backends as b; c = b.backends['cpu']; print("
        "c.compiler.__name__, c.driver.__name__, 'TRITON_INTERPRET' in os.environ)"
    )
    expected = "OtherCompiler OtherDriver False"
    assert python(code, PYTHONPATH=str(tmp_path)) == expected
    last = f"import sys; sys.path.append({str(tmp_path)!r}); {code}"
    assert python(last) == expected


def test_share_cores() -> None:
    assert share_cores([0, 1, 2, 3], 2) == "0,1|2,3"
    assert share_cores([0, 1], 4) == "0|1|0|1"
    assert share_cores([4, 5, 6], 2) == "4,5|6"
    with pytest.raises(ValueError, match="cannot share 0 cores between 2 workers"):
        share_cores([], 2)


@pytest.fixture
def no_binding(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in (BIND_ENV, "PYVLLM_PP_THREADS_BIND"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return monkeypatch


def test_binding_follows_each_run(no_binding: pytest.MonkeyPatch) -> None:
    """C18: more workers than NUMA nodes; a second engine may have other workers."""
    assert bind_threads(4, 1, [0, 1]) == "0|1|0|1"
    assert bind_threads(4, 1, [0, 1]) == "0|1|0|1"
    assert bind_threads(2, 1, [0, 1]) == "0|1"
    assert bind_threads(1, 1, [0, 1]) is None
    assert BIND_ENV not in os.environ
    no_binding.setenv(BIND_ENV, "auto")
    assert bind_threads(2, 1, [0, 1]) == "0|1"


def test_a_binding_of_the_users_stands(no_binding: pytest.MonkeyPatch) -> None:
    no_binding.setenv(BIND_ENV, "1|1")
    assert bind_threads(2, 1, [0, 1]) is None
    assert os.environ[BIND_ENV] == "1|1"
