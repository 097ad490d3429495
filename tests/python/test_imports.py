"""The typed faces stand alone: neither vLLM nor torch is loaded by them."""

import subprocess
import sys
from pathlib import Path

import pytest

import pyvllm_pp

PACKAGE = Path(pyvllm_pp.__file__).parent
FILES = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
FACES = sorted(FILES | {"_core", "reference"})


@pytest.mark.parametrize("face", ["", *(f".{name}" for name in FACES)])
def test_importing_a_face_loads_neither_vllm_nor_torch(face: str) -> None:
    code = (
        f"import sys, pyvllm_pp{face}\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded & {'vllm', 'torch', 'triton'}))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_faces_are_found() -> None:
    assert {"batch", "plan", "tables", "feedback", "errors"} <= set(FACES)
