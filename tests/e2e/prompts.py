"""Prompts and sampling of the scenarios; everything is the same at every run."""

import random
from typing import Any

from pyvllm_pp.cli.model import ModelSpec
from pyvllm_pp.cli.runs import Call

# Special tokens are left out.
VOCABULARY = range(2, ModelSpec().vocab_size)


def prompt(length: int, seed: int = 0) -> list[int]:
    """Random token ids; the seed also depends on the length."""
    return random.Random(f"{seed}/{length}").choices(VOCABULARY, k=length)


def greedy(max_tokens: int, **more: Any) -> dict[str, Any]:
    """Greedy sampling of exactly `max_tokens`, with logprobs."""
    return {
        "temperature": 0.0,
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "logprobs": 0,
        **more,
    }


def call(lengths: list[int], max_tokens: int, **more: Any) -> Call:
    """Prompts of these lengths, all sampled alike."""
    prompts = [prompt(length, seed) for seed, length in enumerate(lengths)]
    return Call(prompts=prompts, sampling=greedy(max_tokens, **more))


def mixed(lengths: list[int], sampling: list[dict[str, Any]], **more: Any) -> Call:
    """Prompts of these lengths, each with its own sampling."""
    prompts = [prompt(length, seed) for seed, length in enumerate(lengths)]
    return Call(prompts=prompts, sampling=sampling, **more)
