"""Faults put into the workers of a real engine."""

import re
import time

import pytest

from pyvllm_pp.cli.engine import EngineError
from pyvllm_pp.cli.runs import EngineRun
from tests.e2e.engines import Engines
from tests.e2e.hooks import FAULT_MARK, hook
from tests.e2e.scenarios import BASE, PCP1, PP2_PCP2, SHORT

# vLLM itself may wait for minutes in a collective whose peer is gone.
SOON_S = 40.0


def faulty(engines: Engines, name: str) -> EngineRun:
    run = PP2_PCP2.run(SHORT, engines.model(SHORT.spec))
    return run.model_copy(update={"env": hook(name)})


def test_local_batch_for_feedback_is_noticed(engines: Engines) -> None:
    """The fault of 0.31: earlier stages apply feedback to their PCP-local batch.

    A run with it must not look right: it ends with our error, or tokens differ.
    """
    error = noticed(engines)
    if error is None:
        return
    assert "FeedbackOrderError" in error.error


def noticed(engines: Engines) -> EngineError | None:
    """The error of the faulty run; None where its tokens are wrong."""
    control = [engines.call(BASE, PCP1, name).token_ids() for name in SHORT.calls]
    try:
        result = engines.run(faulty(engines, "local_batch_for_feedback"))
    except EngineError as error:
        return error
    assert [call.token_ids() for call in result.calls] != control
    return None


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raise_in_a_worker", "injected fault in rank 2"),
        ("kill_a_worker", "died"),
    ],
)
def test_a_worker_that_fails_ends_the_run_soon(
    engines: Engines, fault: str, message: str
) -> None:
    with pytest.raises(EngineError, match=message):
        engines.run(faulty(engines, fault))
    begin = re.search(rf"{FAULT_MARK}([\d.]+)", engines.log())
    assert begin
    assert time.time() - float(begin[1]) < SOON_S
