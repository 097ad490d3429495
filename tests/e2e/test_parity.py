"""The parity matrix: each scenario in each topology gives what its control gives."""

import pytest

from tests.e2e.engines import Engines
from tests.e2e.scenarios import (
    ASYNC,
    BASE,
    COMPILED,
    LAYERS,
    PCP1,
    PCP2,
    PCP4,
    PP2,
    PP2_PCP2,
    PP2_TP2,
    PP3,
    PP3_PCP2,
    PREFIX,
    SHORT,
    SKIP_PADDING,
    STRUCTURED,
    TIGHT,
    TP2_PCP2,
    Group,
    Topology,
)

ROWS: list[tuple[Group, Topology, Topology]] = [
    (BASE, PP2_PCP2, PCP2),
    (BASE, PP2_PCP2, PCP1),
    (BASE, PCP2, PCP1),
    (BASE, PP2, PCP1),
    (SHORT, PCP4, PCP1),
    (ASYNC, PP2_PCP2, PCP1),
    (PREFIX, PP2_PCP2, PCP1),
    (PREFIX, PCP2, PCP1),
    (TIGHT, PP2_PCP2, PCP1),
    (LAYERS, PP3, PCP1),
    (LAYERS, PP3_PCP2, PCP1),
    (STRUCTURED, PP2_PCP2, PCP1),
]

# Engines that take long to start, or whose like is above: left to `make prove`.
LONG: list[tuple[Group, Topology, Topology]] = [
    *((SHORT, topology, PCP1) for topology in (TP2_PCP2, PP2_TP2)),
    *((group, PP2_PCP2, PCP1) for group in SKIP_PADDING),
    (COMPILED, PP2_PCP2, PCP1),
]


def matrix() -> list[object]:
    return [
        pytest.param(
            *row,
            name,
            id=f"{row[0].name}: {name}: {row[1].name} = {row[2].name}",
            marks=[pytest.mark.long] if row in LONG else [],
        )
        for row in ROWS + LONG
        for name in row[0].calls
    ]


@pytest.mark.parametrize(("group", "topology", "control", "name"), matrix())
def test_row(
    engines: Engines, group: Group, topology: Topology, control: Topology, name: str
) -> None:
    engines.check(group, name, topology, control)
