"""The Python tests on sanitized extensions: ``python -m tests.sanitized``.

Builds the extensions with address and undefined sanitizers into ``build/sanitized`` and
runs tests/python on them; any report fails. Leaks are not looked for: CPython itself
keeps memory until it exits.
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "sanitized"
FLAGS = "-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined"
# These start other processes to look at files or at an installed wheel.
LEFT_OUT = ("test_wheel.py", "test_stubs.py", "test_imports.py", "test_house.py")


def build() -> Path:
    """Build the extensions; the folder that holds a package of them and our Python."""
    subprocess.run(
        [
            "cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja",
            "-DCMAKE_BUILD_TYPE=Debug",
            f"-DCMAKE_CXX_FLAGS={FLAGS} -fno-sanitize-recover=all",
            f"-DPython_EXECUTABLE={sys.executable}",
            "-DPYVLLM_PP_PYTHON=ON",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    subprocess.run(
        ["cmake", "--build", BUILD, "--parallel", "2", "--target", "_core"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    package = BUILD / "package" / "pyvllm_pp"
    package.mkdir(parents=True, exist_ok=True)
    extensions = BUILD.glob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}")
    python = [p for p in (ROOT / "pyvllm_pp").iterdir() if p.suffix != ".so"]
    for source in (*python, *extensions):
        link = package / source.name
        link.unlink(missing_ok=True)
        link.symlink_to(source)
    return package.parent


def library(name: str) -> str:
    """Where the compiler finds a library of its own."""
    found = subprocess.run(
        ["c++", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    return str(Path(found.stdout.strip()).resolve())


def run(package: Path, arguments: list[str]) -> int:
    """Run the tests on the package in `package`, which they check they got."""
    report = BUILD / "report"
    for old in BUILD.glob("report.*"):
        old.unlink()
    environment = os.environ | {
        # libstdc++ too: the runtime looks for `throw` when it starts.
        "LD_PRELOAD": " ".join(map(library, ["libasan.so", "libstdc++.so"])),
        "ASAN_OPTIONS": f"detect_leaks=0:log_path={report}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={report}",
        "PYTHONMALLOC": "malloc",
    }
    # An editable install's finder would give the extension that is not sanitized.
    code = (
        "import sys\n"
        "found = [f for f in sys.meta_path if 'ScikitBuild' not in repr(f)]\n"
        "sys.meta_path[:] = found\n"
        f"sys.path.insert(0, {str(package)!r})\n"
        "import pyvllm_pp._core as core, pytest\n"
        f"assert core.__file__.startswith({str(BUILD)!r}), core.__file__\n"
        "print('sanitized', core.__file__.rpartition('/')[2], flush=True)\n"
        "sys.exit(pytest.main(sys.argv[1:]))"
    )
    left_out = [f"--ignore=tests/python/{name}" for name in LEFT_OUT]
    tests = ["tests/python", "-q", "-p", "no:cacheprovider", *left_out, *arguments]
    tested = subprocess.run(
        [sys.executable, "-c", code, *tests], cwd=ROOT, env=environment, check=False
    )
    reports = sorted(BUILD.glob("report.*"))
    for found in reports:
        print(found.read_text(), file=sys.stderr)
    print(f"sanitizer reports: {len(reports)}")
    return tested.returncode or len(reports)


if __name__ == "__main__":
    sys.exit(min(run(build(), sys.argv[1:]), 1))
