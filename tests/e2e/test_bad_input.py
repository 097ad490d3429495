"""What cannot work is refused when the engine starts, soon and clearly."""

import time
from pathlib import Path
from typing import Any

import pytest

from pyvllm_pp.cli.engine import EngineError
from pyvllm_pp.cli.runs import EngineRun
from tests.e2e.engines import Engines
from tests.e2e.models import make_dense
from tests.e2e.scenarios import (
    MTP,
    ONE_TOKEN,
    PCP1,
    PCP2,
    PP2_PCP2,
    PP2_PCP2_EP,
    Topology,
)

# With the start of the engine, on a machine that may be busy.
SOON_S = 120.0


def refused(engines: Engines, scenario: str, topology: Topology, **changes: Any) -> str:
    """The error of a run that differs from a good one by `changes`."""
    return refusal(engines, scenario, topology, **changes).error


def refusal(
    engines: Engines, scenario: str, topology: Topology, **changes: Any
) -> EngineError:
    """As :func:`refused`, with the log."""
    run = topology.run(ONE_TOKEN, engines.model(ONE_TOKEN.spec))
    # Validated again, as a new one.
    run = EngineRun.model_validate({**run.model_dump(), **changes})
    begin = time.monotonic()
    error = engines.refused(run, scenario, topology.name)
    assert time.monotonic() - begin < SOON_S
    return error


def test_model_without_mla(engines: Engines, tmp_path: Path) -> None:
    error = refused(
        engines,
        "a model without MLA",
        PCP2,
        model=make_dense(tmp_path),
        engine_args={"load_format": "dummy"},
    )
    assert "NotImplementedError: MRV2 PCP currently supports MLA models only." in error


def test_drafts_with_pp_under_the_synchronous_scheduler(engines: Engines) -> None:
    arguments = {**MTP.engine["engine_args"], "async_scheduling": False}
    error = refused(
        engines,
        "drafts with PP, scheduled synchronously",
        PP2_PCP2,
        model=engines.model(MTP.spec),
        engine_args=arguments,
    )
    assert (
        "NotImplementedError: drafts (speculative_config) with "
        "pipeline_parallel_size=2 need async_scheduling=True, got False" in error
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"partiton": "balanced"}, "has the unknown key 'partiton'; valid keys: "),
        ({"partition": "even"}, "'even'; valid values: "),
        (["balanced"], "expected a mapping"),
    ],
    ids=["key", "value", "type"],
)
def test_unknown_setting(engines: Engines, settings: object, message: str) -> None:
    assert message in refused(engines, f"settings {settings}", PCP2, settings=settings)


@pytest.mark.parametrize(
    "size", ["prefill_context_parallel_size", "pipeline_parallel_size"]
)
def test_size_zero(engines: Engines, size: str) -> None:
    error = refused(engines, f"{size} 0", PCP1, engine_args={size: 0})
    assert size in error
    assert "greater than or equal to 1" in error


def test_c20_more_ranks_than_devices(engines: Engines) -> None:
    """On CPU a rank's device is its list of cores, where the user gives lists."""
    env = {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}
    error = refused(engines, "more ranks than CPU lists", PP2_PCP2, env=env)
    assert "TP 1 x PCP 2 x PP 2 = 4 ranks on this node, but 2 CPU lists in" in error


def test_c1_dcp_of_a_dense_mla_model(engines: Engines) -> None:
    args = {"decode_context_parallel_size": 2}
    error = refused(engines, "dense MLA with DCP2", PCP2, engine_args=args)
    assert "MRV2 PCP + DCP supports sparse MLA models only." in error


def test_expert_parallelism_on_cpu(engines: Engines) -> None:
    """Experts' tokens go through an all-gather that vLLM has for GPUs alone."""
    error = refusal(engines, "all_gatherv of expert parallelism", PP2_PCP2_EP)
    assert ", in all_gatherv\n" in str(error)
    assert error.error.endswith(": NotImplementedError")
