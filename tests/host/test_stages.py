"""PP2 x PCP2 over gloo in four processes; see :mod:`tests.host.stages`."""

import pytest

from tests.host.processes import run_ranks
from tests.host.stages import ENDINGS, SCENARIOS

LIMIT_S = 100


@pytest.fixture(scope="module")
def outputs() -> list[str]:
    return run_ranks("tests.host.stages", 4, limit_s=LIMIT_S)


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.timeout(LIMIT_S + 20)
def test_four_processes(scenario: str, outputs: list[str]) -> None:
    for rank, output in enumerate(outputs):
        assert f"{scenario}: done" in output.splitlines(), f"rank {rank}:\n{output}"
    if scenario.endswith("are_caught"):
        caught = [f"{scenario} caught: [feedback] received" in out for out in outputs]
        assert caught == [True, True, False, False], outputs


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.timeout(LIMIT_S + 20)
def test_no_wait_is_left(ending: str) -> None:
    """Each process ends by itself, well before the limit of gloo's own waits."""
    outputs = run_ranks("tests.host.stages", 4, ending, limit_s=LIMIT_S)
    done = [f"{ending}: done" in output.splitlines() for output in outputs]
    is_lost = ending == "lost_stage_ends_the_wait"
    assert done == [True, True, not is_lost, not is_lost], outputs
