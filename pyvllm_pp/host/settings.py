"""Settings of the backend, read from vLLM's ``additional_config["pyvllm_pp"]``."""

import os
from collections.abc import Mapping
from enum import Enum
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from pyvllm_pp.plan import Partition, partition_names

KEY = "pyvllm_pp"


class Restore(Enum):
    """How the last stage brings hidden states back to global order."""

    dense = "dense"  # every row
    selected = "selected"  # the rows that sampling reads, where nothing reads more


class Kernels(Enum):
    """What runs Model Runner V2's Triton kernels on vLLM's CPU build."""

    native = "native"
    interpreter = "interpreter"


_VALUES = {
    "kernels": [member.name for member in Kernels],
    "partition": partition_names(),
    "restore": [member.name for member in Restore],
}


class Settings(BaseModel):
    """Validated settings; each value is the name of a policy."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    partition: str = Partition.dual_chunk_swap.name
    restore: str = Restore.selected.name
    kernels: str = Kernels.native.name

    @classmethod
    def read(cls, additional_config: object) -> Self:
        """Read the settings of a run.

        Args:
            additional_config: vLLM's ``additional_config``; its key ``pyvllm_pp`` holds
                a mapping, or is absent for the defaults.

        Raises:
            TypeError: the value of the key is no mapping.
            ValueError: an unknown key or value, named with the valid ones.
        """
        given = _own_section(additional_config)
        if given is None:
            return cls()
        if not isinstance(given, Mapping):
            raise TypeError(
                f"additional_config[{KEY!r}] is {given!r}, expected a mapping with the "
                f"keys {sorted(_VALUES)}"
            )
        for key, value in given.items():
            if key not in _VALUES:
                raise ValueError(
                    f"additional_config[{KEY!r}] has the unknown key {key!r}; valid "
                    f"keys: {sorted(_VALUES)}"
                )
            if value not in _VALUES[key]:
                raise ValueError(
                    f"additional_config[{KEY!r}][{key!r}] is {value!r}; valid values: "
                    f"{_VALUES[key]}"
                )
        try:
            return cls(**given)
        except ValidationError as error:
            raise ValueError(f"additional_config[{KEY!r}]: {error}") from error

    def partition_policy(self) -> Partition:
        """The core's policy of this name."""
        return Partition[self.partition]


def _own_section(additional_config: object) -> Any:
    if not isinstance(additional_config, Mapping):
        return None
    return additional_config.get(KEY)


def is_disabled() -> bool:
    """Whether ``PYVLLM_PP=0`` switches the package off."""
    return os.environ.get("PYVLLM_PP", "1") == "0"


def is_wanted(vllm_config: Any) -> bool:
    """Whether a run uses this backend: PP or PCP above 1, or settings given for it."""
    parallel = vllm_config.parallel_config
    return not is_disabled() and (
        parallel.pipeline_parallel_size > 1
        or parallel.prefill_context_parallel_size > 1
        or _own_section(vllm_config.additional_config) is not None
    )
