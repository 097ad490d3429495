"""Sampling in real vLLM on a CPU: native kernels against Triton's interpreter."""

import re
from typing import Any

import pytest

from pyvllm_pp.cli.model import ModelSpec
from pyvllm_pp.cli.runs import Call, EngineResult, EngineRun, Output
from tests.e2e.engines import Engines
from tests.e2e.models import decode
from tests.e2e.prompts import greedy, prompt

SPEC = ModelSpec()
NUM_OUTPUT = 6
# A byte a token, printable ones from "!" on, behind two special ones.
TOKEN_OF_A = 2 + ord("a") - ord("!")


def options(**sampling: Any) -> dict[str, Any]:
    return greedy(NUM_OUTPUT, logprobs=3, **sampling)


def drawn(**sampling: Any) -> dict[str, Any]:
    return options(**{"temperature": 0.9, "seed": 7, **sampling})


# What the interpreter can run too.
BOTH = {
    "greedy": options(),
    "prompt logprobs": options(prompt_logprobs=2),
    "temperature and seed": drawn(),
    "the same again": drawn(),
    "another seed": drawn(seed=8, temperature=2.0),
    "min-p": drawn(min_p=0.2),
    "penalties": options(
        presence_penalty=1.5, frequency_penalty=1.0, repetition_penalty=1.8
    ),
    "bias": options(logit_bias={5: 100.0}),
    "bad words": options(logit_bias={TOKEN_OF_A: 100.0}, bad_words=["a"]),
    "allowed tokens": drawn(allowed_token_ids=[7, 8, 9], temperature=2.0),
    "min tokens": options(
        ignore_eos=False,
        logit_bias={1: 100.0},
        min_tokens=4,
    ),
}
# What the interpreter fails on.
NATIVE = {
    "top-k": drawn(top_k=1),
    "top-p": drawn(top_p=1e-6),
    "wide top-k and top-p": drawn(top_k=SPEC.vocab_size - 1, top_p=0.999999),
    "structured output": greedy(
        12, ignore_eos=False, structured_outputs={"regex": "[0-9]{3}-[a-f]{4}"}
    ),
}
# All in one batch, and of one prompt, so that answers can be compared.
PROMPT = prompt(40)


def run_of(engines: Engines, kernels: str, *sampling: dict[str, Any]) -> EngineRun:
    return EngineRun(
        model=engines.model(SPEC, needs_tokenizer=True),
        calls=[
            Call(prompts=[PROMPT] * len(each), sampling=list(each.values()))
            for each in sampling
        ],
        max_num_seqs=16,
        max_num_batched_tokens=1024,
        settings={"kernels": kernels},
        engine_args={"skip_tokenizer_init": False},
    )


@pytest.fixture(scope="module")
def native(engines: Engines) -> tuple[EngineResult, str]:
    """The answers to both calls, and the log."""
    return engines.run(run_of(engines, "native", BOTH, NATIVE)), engines.log()


def answers(result: EngineResult, *calls: dict[str, Any]) -> dict[str, Output]:
    return {
        name: output
        for each, call in zip(calls, result.calls, strict=True)
        for name, output in zip(each, call.outputs, strict=True)
    }


def tokens(output: Output) -> list[int]:
    return output.samples[0].token_ids


def test_native_kernels_give_the_interpreters_tokens(
    engines: Engines, native: tuple[EngineResult, str]
) -> None:
    ours = answers(native[0], BOTH, NATIVE)
    stock = answers(engines.run(run_of(engines, "interpreter", BOTH)), BOTH)
    assert "run natively" in native[1]
    assert "run natively" not in engines.log()
    assert "has no native form here" not in native[1]
    for name, expected in stock.items():
        output = ours[name]
        assert tokens(output) == tokens(expected), name
        assert output.num_prompt_logprobs == expected.num_prompt_logprobs, name
        for mine, theirs in (
            (output.samples[0].logprobs, expected.samples[0].logprobs),
            (output.prompt_logprobs, expected.prompt_logprobs),
        ):
            assert mine == pytest.approx(theirs, abs=1e-4), name


def test_each_option_does_what_it_says(native: tuple[EngineResult, str]) -> None:
    ours = {
        name: tokens(each) for name, each in answers(native[0], BOTH, NATIVE).items()
    }
    assert ours["the same again"] == ours["temperature and seed"]
    assert ours["another seed"] != ours["temperature and seed"]
    assert ours["bias"] == [5] * NUM_OUTPUT
    assert TOKEN_OF_A not in ours["bad words"]
    assert set(ours["allowed tokens"]) <= {7, 8, 9}
    assert len(set(ours["penalties"])) == NUM_OUTPUT
    assert 1 not in ours["min tokens"][:4]
    assert len(ours["min tokens"]) == 5
    assert ours["top-k"] == ours["top-p"] == ours["greedy"]
    assert ours["wide top-k and top-p"] == ours["temperature and seed"]


def test_structured_output(engines: Engines, native: tuple[EngineResult, str]) -> None:
    found = tokens(answers(native[0], BOTH, NATIVE)["structured output"])
    text = decode(engines.model(SPEC, needs_tokenizer=True), found)
    assert re.fullmatch("[0-9]{3}-[a-f]{4}", text)
