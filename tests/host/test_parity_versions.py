"""Parity and feedback on the other versions, each in a process of its own."""

import subprocess
import sys

import pytest

from tests.host.versions import ROOT, Pin, environment, install, pins

# Managers and batches of the version, and its feedback handler between processes.
SUITE = [
    f"tests/host/test_{name}.py" for name in ("parity", "partition_batch", "stages")
]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("pin", pins(), ids=lambda pin: pin.minor)
def test_parity_suite_passes(pin: Pin) -> None:
    install(pin)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SUITE]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(pin.folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
