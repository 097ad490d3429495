"""The stub kept by hand says what the extension has."""

import subprocess
import sys

import pytest

from tests.python.house import ROOT


@pytest.mark.timeout(600)
def test_the_stub_has_not_drifted() -> None:
    checked = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy.stubtest",
            "pyvllm_pp._core",
            "--concise",
            "--mypy-config-file",
            "pyproject.toml",
            "--allowlist",
            "tests/python/stubtest_allowed.txt",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
