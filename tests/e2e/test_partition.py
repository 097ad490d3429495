"""The policy ``balanced`` in real vLLM: the tokens of a run without PCP.

Steps of at most 512 tokens: a long prompt in chunks beside decodes, split at both ends;
short prompts whole on a rank; some that must be split; more requests than run at once.
"""

import random
from functools import cache

import pytest

from pyvllm_pp.cli.compare import Finished, compare
from pyvllm_pp.cli.model import ModelSpec
from pyvllm_pp.cli.runs import Call, EngineRun
from tests.e2e.engines import Engines

SPEC = ModelSpec()
LENGTHS = [1200, 7, 90, 1, 300, 33, 17, 2, 250, 40]
SAMPLING = {
    "max_tokens": 12,
    "temperature": 0.0,
    "logprobs": 0,
    "ignore_eos": True,
}


@cache
def finished(engines: Engines, pp: int, pcp: int, partition: str) -> Finished:
    draw = random.Random(3)
    prompts = [draw.choices(range(3, SPEC.vocab_size), k=n) for n in LENGTHS]
    run = EngineRun(
        model=engines.model(SPEC),
        # With prompt logprobs every row is restored, without them selected rows are.
        calls=[
            Call(prompts=prompts, sampling=SAMPLING),
            Call(prompts=prompts, sampling={**SAMPLING, "prompt_logprobs": 0}),
        ],
        pp=pp,
        pcp=pcp,
        max_num_batched_tokens=512,
        max_num_seqs=6,
        settings={"partition": partition},
    )
    return Finished(run, engines.run(run))


@pytest.mark.parametrize(
    ("pp", "pcp"), [(1, 2), (2, 2), pytest.param(1, 4, marks=pytest.mark.long)]
)
@pytest.mark.timeout(900)
def test_balanced_equals_a_run_without_pcp(engines: Engines, pp: int, pcp: int) -> None:
    control = finished(engines, 1, 1, "dual_chunk_swap")
    ours = finished(engines, pp, pcp, "balanced")
    assert len(ours.result.workers) == pp * pcp
    for worker in ours.result.workers:
        assert worker.model_dump()["partition"] == "balanced"
        assert worker.pcp_manager == "NativePCPManager"
    comparison = compare([control, ours])
    assert comparison.equal, comparison
    assert comparison.max_logprob_diff < 1e-4
    assert comparison.runs[1].prompt_logprob_counts == [0] * len(LENGTHS) + LENGTHS
