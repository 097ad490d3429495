"""What a restore moves, dense and selected, counted where collectives are called."""

from typing import Any

from bench.section import Section, Table, Target
from tests.host import restore_ranks

_SIZES = (2, 4)
# Of DeepSeek-V3, in bfloat16.
_HIDDEN_SIZE = 7168
_PROMPTS = "4 prompts of 512"
_DECODES = ("63 decodes", "1 decode")


def measure() -> Section:
    """Every step of the tests, on real gloo groups."""
    results = {size: restore_ranks.run(size, _HIDDEN_SIZE)[0] for size in _SIZES}
    for steps in results.values():
        assert all(step["bit_equal"] for step in steps.values())
    prompts = results[2][_PROMPTS]
    decodes = [steps[name] for steps in results.values() for name in _DECODES]
    return Section(
        title="Restore for sampling",
        parts=[
            "What comes to each PCP rank of the last stage in one step, its own rows "
            f"included, counted where the group's collectives are called. Rows of "
            f"{_HIDDEN_SIZE:,} values, bfloat16 unless the step says float32; the "
            "sampled rows are equal to the bit. Decodes alone are all sampled, so "
            "there the dense gather stays.",
            _table(results),
        ],
        targets=[
            Target(
                what=f"rows moved for {_PROMPTS} at PCP2, dense "
                f"{prompts['dense']['rows']:,}",
                value=prompts["selected"]["rows"],
                limit=4,
                kind="at most",
                unit=" rows",
            ),
            Target(
                what="bytes moved for decodes alone, of dense",
                value=max(_ratio(step) for step in decodes),
                limit=1,
                kind="at most",
            ),
        ],
        data={str(size): steps for size, steps in results.items()},
    )


def _ratio(step: dict[str, Any]) -> float:
    return float(step["selected"]["num_bytes"] / step["dense"]["num_bytes"])


def _table(results: dict[int, dict[str, Any]]) -> Table:
    return Table(
        header=[
            "step",
            "PCP",
            "rows dense",
            "rows selected",
            "MB dense",
            "MB selected",
        ],
        rows=[
            [
                name,
                size,
                *(step[side]["rows"] for side in ("dense", "selected")),
                *(step[side]["num_bytes"] / 1e6 for side in ("dense", "selected")),
            ]
            for size, steps in results.items()
            for name, step in steps.items()
        ],
    )
