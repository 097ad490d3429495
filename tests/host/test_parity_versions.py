"""The same parity tests on the other versions, each in a process of its own."""

import subprocess
import sys

import pytest

from tests.host.versions import ROOT, Pin, environment, install, pins

# Those that build managers and batches of the version.
SUITE = ["tests/host/test_parity.py", "tests/host/test_partition_batch.py"]


@pytest.mark.timeout(300)
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
