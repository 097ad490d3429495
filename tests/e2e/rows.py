"""Rows of the parity table, kept in one file each below ``build/parity``."""

import hashlib
from pathlib import Path

from pydantic import BaseModel, ConfigDict

DIRECTORY = Path(__file__).parents[2] / "build" / "parity"


class Row(BaseModel):
    """A scenario in a topology against its control, or the message that refused it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scenario: str
    topology: str
    engine: str = ""  # what is special about the engine
    control: str = ""
    tokens_equal: bool | None = None
    counts_equal: bool | None = None
    max_logprob_diff: float | None = None  # nats
    seconds: float | None = None  # of the call
    vllm: str = ""
    refusal: str | None = None

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.scenario, self.engine, self.topology, self.control)

    def save(self) -> None:
        """Write the row; one of the same key is replaced."""
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256(repr(self.key).encode()).hexdigest()[:16]
        (DIRECTORY / f"{name}.json").write_text(self.model_dump_json(indent=1))


def saved() -> list[Row]:
    """All rows of earlier runs, in no order."""
    files = sorted(DIRECTORY.glob("*.json"))
    return [Row.model_validate_json(file.read_text()) for file in files]
