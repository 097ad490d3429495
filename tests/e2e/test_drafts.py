"""Drafts of the model itself (MTP): tokens as without them, with PP and PCP too."""

import pytest

from tests.e2e.engines import Engines
from tests.e2e.scenarios import (
    MTP,
    MTP_ITSELF,
    MTP_TIGHT,
    PCP1,
    PCP2,
    PP2,
    PP2_PCP2,
    Topology,
)

SEEDED = "n=2 with seeds"


@pytest.mark.parametrize("topology", [PCP1, PCP2, PP2, PP2_PCP2], ids=str)
@pytest.mark.parametrize("name", [name for name in MTP.calls if name != SEEDED])
def test_greedy_tokens_are_those_without_drafts(
    engines: Engines, name: str, topology: Topology
) -> None:
    engines.check(MTP, name, topology, PCP1)


@pytest.mark.parametrize("topology", [PCP2, PP2, PP2_PCP2], ids=str)
def test_random_tokens_are_those_of_one_rank(
    engines: Engines, topology: Topology
) -> None:
    engines.check(MTP_ITSELF, SEEDED, topology, PCP1)


@pytest.mark.parametrize("topology", [PCP1, PCP2, PP2, PP2_PCP2], ids=str)
def test_some_drafts_are_right_and_some_are_not(
    engines: Engines, topology: Topology
) -> None:
    *_, last = engines.finished(MTP, topology).result.calls
    assert 0 < (last.num_accepted_drafts or 0) < (last.num_drafts or 0)


@pytest.mark.long
@pytest.mark.parametrize("name", list(MTP_TIGHT.calls))
def test_preempted_requests_draft_again(engines: Engines, name: str) -> None:
    result = engines.check(MTP_TIGHT, name, PP2_PCP2, PCP1)
    assert (result.num_preemptions or 0) > 0
