"""Answers against transformers' own DeepseekV2, an implementation that shares nothing.

With plain RoPE, vLLM's CPU build is wrong for MLA by itself.
"""

from pathlib import Path
from typing import Any, Literal

import pytest

from pyvllm_pp.cli.model import ModelSpec
from pyvllm_pp.cli.runs import Output
from tests.e2e.engines import Engines
from tests.e2e.prompts import call
from tests.e2e.scenarios import PCP1, PP2_PCP2, Group, Topology

LENGTHS, NUM_OUTPUT = [300, 1, 40, 9], 8
NAME = "transformers"


def group(rope: Literal["plain", "yarn"]) -> Group:
    calls = {NAME: call(LENGTHS, NUM_OUTPUT, prompt_logprobs=0)}
    return Group(f"rope {rope}", calls, spec=ModelSpec(rope=rope))


@pytest.fixture(scope="module", params=["plain", "yarn"])
def case(request: pytest.FixtureRequest, engines: Engines) -> tuple[Group, list[Any]]:
    this = group(request.param)
    prompts = this.calls[NAME].prompts
    return this, reference(engines.model(this.spec), prompts)


def reference(model: Path, prompts: list[list[int]]) -> list[Any]:
    """For each prompt: tokens, their logprobs, and those of the prompt's tokens."""
    import torch
    from transformers import AutoModelForCausalLM

    lm = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    answers = []
    for prompt in prompts:
        tokens = list(prompt)
        with torch.inference_mode():
            for _ in range(NUM_OUTPUT):
                tokens.append(int(lm(torch.tensor([tokens])).logits[0, -1].argmax()))
            logprobs = lm(torch.tensor([tokens[:-1]])).logits[0].log_softmax(-1)
        own = [float(logprobs[i, token]) for i, token in enumerate(tokens[1:])]
        answers.append(
            (tokens[len(prompt) :], own[len(prompt) - 1 :], own[: len(prompt) - 1])
        )
    return answers


@pytest.mark.filterwarnings("ignore:::transformers\\..*")
@pytest.mark.parametrize("topology", [PCP1, PP2_PCP2], ids=str)
def test_equals_transformers(
    engines: Engines, case: tuple[Group, list[Any]], topology: Topology
) -> None:
    this, expected = case
    outputs: list[Output] = engines.call(this, topology, NAME).outputs
    for output, (tokens, logprobs, prompt_logprobs) in zip(
        outputs, expected, strict=True
    ):
        assert output.samples[0].token_ids == tokens
        assert output.samples[0].logprobs == pytest.approx(logprobs, abs=1e-3)
        assert output.prompt_logprobs == pytest.approx(prompt_logprobs, abs=1e-3)
