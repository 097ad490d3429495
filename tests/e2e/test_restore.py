"""Selected-row restore in real vLLM: the same tokens and logprobs as dense, to the bit.

Two prompts longer than a step, so that a chunk's last token is not sampled; short ones
that make some ranks idle; more requests than run at once.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from pyvllm_pp.cli.model import ModelSpec
from pyvllm_pp.cli.runs import Call, EngineResult, EngineRun
from tests.e2e.engines import Engines

SPEC = ModelSpec()
LENGTHS = [607, 7, 1, 90, 300, 2]
NUM_OUTPUT = 6


class Topology(NamedTuple):
    pp: int
    pcp: int
    tp: int = 1
    shards_sampling: bool = False  # over TP

    def __str__(self) -> str:
        sharded = "-sharded" if self.shards_sampling else ""
        return f"PP{self.pp}-PCP{self.pcp}-TP{self.tp}{sharded}"


PP1_PCP2 = Topology(1, 2)
TOPOLOGIES = [
    PP1_PCP2,
    Topology(2, 2),
    Topology(1, 4),
    Topology(1, 2, tp=2),
    Topology(1, 2, tp=2, shards_sampling=True),
]


def prompts() -> list[list[int]]:
    rng = np.random.default_rng(5)
    return [rng.integers(3, SPEC.vocab_size, size=n).tolist() for n in LENGTHS]


def sampling(prompt_logprobs_of: int | None = None) -> list[dict[str, Any]]:
    each: list[dict[str, Any]] = [
        {
            "max_tokens": NUM_OUTPUT,
            "temperature": 0.0,
            "logprobs": 0,
            "ignore_eos": True,
        }
        for _ in LENGTHS
    ]
    if prompt_logprobs_of is not None:
        each[prompt_logprobs_of]["prompt_logprobs"] = 0
    return each


@cache
def run(engines: Engines, topology: Topology, restore: str) -> EngineResult:
    """An engine: a call without prompt logprobs, one where the longest has them."""
    return engines.run(
        EngineRun(
            model=engines.model(SPEC),
            calls=[
                Call(prompts=prompts(), sampling=sampling()),
                Call(prompts=prompts(), sampling=sampling(prompt_logprobs_of=0)),
            ],
            pp=topology.pp,
            pcp=topology.pcp,
            tp=topology.tp,
            max_num_seqs=4,
            settings={"restore": restore},
            engine_args={"enable_batch_sharded_sampling": True}
            if topology.shards_sampling
            else {},
        ),
    )


def counts(result: EngineResult, pp_rank: int) -> list[dict[str, int]]:
    names = ("dense_steps", "selected_steps", "dense_rows", "selected_rows")
    return [
        {name: worker.model_dump()[name] for name in names}
        for worker in result.workers
        if worker.pp_rank == pp_rank
    ]


@pytest.mark.parametrize(
    "topology",
    [
        pytest.param(each, marks=[pytest.mark.long] if each.tp > 1 else [])
        for each in TOPOLOGIES
    ],
    ids=str,
)
def test_selected_equals_dense_to_the_bit(engines: Engines, topology: Topology) -> None:
    dense, selected = (run(engines, topology, name) for name in ("dense", "selected"))
    for ours, theirs in zip(selected.calls, dense.calls, strict=True):
        assert ours.outputs == theirs.outputs
    last = topology.pp - 1
    for each in counts(selected, last):
        # The steps with the long prompt's logprobs, and those of decodes alone.
        assert each["dense_steps"] > 0
        assert each["selected_steps"] > 0
        # One row a request: at most the requests that run at once.
        assert each["selected_rows"] <= 4 * each["selected_steps"]
    for each in counts(dense, last):
        assert each["selected_steps"] == 0
    # C6: nothing is restored between stages.
    if topology.pp > 1:
        for result in (dense, selected):
            assert all(not any(each.values()) for each in counts(result, 0))


def test_c12_one_request_wants_prompt_logprobs(engines: Engines) -> None:
    """Chunked, PCP2: restored dense while its prompt runs; logprobs equal PCP1."""
    control = run(engines, Topology(1, 1), "selected").calls[1].outputs
    ours = run(engines, PP1_PCP2, "selected").calls[1].outputs
    assert [output.num_prompt_logprobs for output in ours] == [
        LENGTHS[0],
        0,
        0,
        0,
        0,
        0,
    ]
    assert len(ours[0].prompt_logprobs) == LENGTHS[0] - 1
    for theirs, mine in zip(control, ours, strict=True):
        assert mine.samples[0].token_ids == theirs.samples[0].token_ids
        np.testing.assert_allclose(
            mine.prompt_logprobs, theirs.prompt_logprobs, atol=1e-4, rtol=0
        )
        np.testing.assert_allclose(
            mine.samples[0].logprobs, theirs.samples[0].logprobs, atol=1e-4, rtol=0
        )
