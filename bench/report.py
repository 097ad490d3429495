"""``docs/performance.md`` and ``bench/results.json``, made of the sections."""

import json
from pathlib import Path

from pydantic import BaseModel

from bench.machine import Machine
from bench.section import Section

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results.json"
PAGE = ROOT / "docs" / "performance.md"

_HEAD = (
    "# Performance\n\nWritten by `make bench`, not by hand; `bench/results.json` has "
    "the figures. Every benchmark compares answers before it looks at a clock. Both "
    "sides of a ratio run in turn on one thread of one machine, and times are CPU time "
    "of that thread, as a median of at least 200 calls, where a section does not say "
    "otherwise. On another machine the times differ; the ratios are what to compare."
)


class Measured(BaseModel):
    """A section, and the machine of its run."""

    machine: Machine
    section: Section


class Results(BaseModel):
    """All sections by name; one that is measured again takes its old place."""

    sections: dict[str, Measured] = {}

    @classmethod
    def load(cls) -> "Results":
        """The last results, or none."""
        if not RESULTS.exists():
            return cls()
        return cls.model_validate_json(RESULTS.read_text())

    def write(self, order: list[str]) -> None:
        """Write the file and the page, sections in the given order."""
        self.sections = {n: self.sections[n] for n in order if n in self.sections}
        content = self.model_dump(mode="json")
        RESULTS.write_text(json.dumps(content, indent=1) + "\n")
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(self.markdown())

    def markdown(self) -> str:
        """The page; a machine is described where it differs from the last one."""
        parts = [_HEAD]
        machine = None
        for measured in self.sections.values():
            if measured.machine != machine:
                machine = measured.machine
                parts.append(f"Measured on {machine}.")
            parts.append(measured.section.markdown())
        return "\n\n".join(parts) + "\n"
