"""The wheel: what it carries, and that its core needs neither torch nor vLLM."""

import importlib.metadata
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

USE_THE_CORE = """
import importlib.util, sys
sys.path.insert(0, sys.argv[1])
assert all(importlib.util.find_spec(name) is None for name in ("torch", "vllm"))
import numpy as np
import pyvllm_pp
from pyvllm_pp.plan import Partition, PlanConfig, Planner

assert pyvllm_pp.__file__.startswith(sys.argv[1])
config = PlanConfig(
    pcp_size=2,
    dcp_size=1,
    shard_decode_requests=True,
    partition=Partition.dual_chunk_swap,
    max_num_reqs=4,
    max_num_tokens=64,
)
plan = Planner(config).plan(np.array([7], np.int32), np.array([True]))
assert [plan.num_rank_tokens(rank) for rank in range(2)] == [3, 4]
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", str(directory), str(ROOT))
    (path,) = directory.glob("pyvllm_pp-*.whl")
    return path


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", *arguments]
    subprocess.run(command, check=True, timeout=300)


@pytest.mark.timeout(600)
def test_it_carries_types_and_stubs_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"pyvllm_pp/py.typed", "pyvllm_pp/_core.pyi"} <= set(names)
    assert [n for n in names if n.startswith("pyvllm_pp/_core.") and n.endswith(".so")]
    tops = {name.split("/")[0] for name in names}
    assert tops == {"pyvllm_pp", wheel.name.rsplit("-", 3)[0] + ".dist-info"}


@pytest.mark.timeout(600)
def test_its_core_runs_without_torch_and_vllm(wheel: Path, tmp_path: Path) -> None:
    numpy = f"numpy=={importlib.metadata.version('numpy')}"
    pip("install", "--no-deps", "--target", str(tmp_path), str(wheel), numpy)
    # -I -S: no site-packages but the folder above.
    command = [sys.executable, "-I", "-S", "-c", USE_THE_CORE, str(tmp_path)]
    subprocess.run(command, check=True, timeout=60)
