"""vLLM 0.31, whose own manager refuses PP with PCP: ours runs it, tokens as on 0.32.

Its folder stands in front of the environment's vLLM in all processes of the engine.
"""

from pathlib import Path

import pytest

from pyvllm_pp.cli.demo import demo_model, demo_run
from pyvllm_pp.cli.engine import EngineError, run_engine
from pyvllm_pp.cli.model import make_model
from pyvllm_pp.cli.runs import CallResult, EngineRun
from tests.e2e.engines import Engines
from tests.host.versions import environment, folder_of

pytestmark = pytest.mark.timeout(900)

LIMIT_S = 280.0
# vLLM's worker in place of ours, which builds vLLM's runner with vLLM's manager.
STOCK_WORKER = {"worker_cls": "vllm.v1.worker.cpu_worker.CPUWorker"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"), demo_model(2))


def on_0_31(run: EngineRun) -> EngineRun:
    path = environment(folder_of("0.31"))["PYTHONPATH"]
    return run.model_copy(update={"env": {**run.env, "PYTHONPATH": path}})


def test_pp2_pcp2_has_the_tokens_of_0_32_and_of_the_pcp2_control(
    model: Path, engines: Engines
) -> None:
    ours = run_engine(on_0_31(demo_run(model, pp=2, pcp=2)), limit_s=LIMIT_S)
    newer = engines.run(demo_run(model, pp=2, pcp=2))
    control = engines.run(demo_run(model, pp=1, pcp=2))

    assert (ours.vllm, newer.vllm, control.vllm) == ("0.31.0", "0.32.0", "0.32.0")
    for worker in ours.workers:
        assert worker.runner == "PipelineCPUModelRunner"
        assert worker.pcp_manager == "NativePCPManager"
        assert worker.pp_handler == "FeedbackHandler"
        # Every token but the last comes back to the first stage as feedback.
        assert worker.feedback_steps >= 7 * (worker.pp_rank == 0)
    assert_equal(ours.calls[0], newer.calls[0])
    assert_equal(ours.calls[0], control.calls[0])


def assert_equal(ours: CallResult, other: CallResult) -> None:
    """Tokens and counts the same, logprobs to float noise."""
    assert ours.token_ids() == other.token_ids()
    for our_output, output in zip(ours.outputs, other.outputs, strict=True):
        assert our_output.num_prompt_logprobs == output.num_prompt_logprobs
        assert our_output.prompt_logprobs == pytest.approx(
            output.prompt_logprobs, abs=1e-4
        )
        assert our_output.samples[0].logprobs == pytest.approx(
            output.samples[0].logprobs, abs=1e-4
        )


@pytest.mark.long
def test_vllms_own_manager_still_refuses(model: Path) -> None:
    """When this fails, 0.31 runs PP with PCP itself and its adapter can go."""
    run = on_0_31(demo_run(model, pp=2, pcp=2))
    stock = run.model_copy(update={"engine_args": STOCK_WORKER})
    with pytest.raises(EngineError) as caught:
        run_engine(stock, limit_s=LIMIT_S)
    assert (
        "NotImplementedError: MRV2 PCP does not support PP yet." in caught.value.error
    )
