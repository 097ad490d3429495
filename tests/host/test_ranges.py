"""Profiler ranges: there while a profiler runs, no trace of them otherwise."""

from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from pyvllm_pp.host.cpu.worker import PipelineCPUModelRunner
from pyvllm_pp.host.pcp import NativePCPManager
from pyvllm_pp.host.pp import FeedbackHandler
from pyvllm_pp.host.ranges import _PLACES, StepRanges
from pyvllm_pp.ranges import Range

CLASSES = {
    "": PipelineCPUModelRunner,
    "pcp_manager": NativePCPManager,
    "pp_handler": FeedbackHandler,
}


class Part:
    """A part of a runner with some of its methods."""

    def sample(self, value: int) -> int:
        return value + 1

    def partition_batch(self, value: int) -> int:
        return value + 2


class Model(torch.nn.Module):
    def forward(self, value: int) -> int:
        return value + 3


def runner() -> Any:
    made: Any = Part()
    made.pcp_manager, made.model, made.pp_handler = Part(), Model(), None
    return made


def step(made: Any) -> int:
    return int(made.sample(1) + made.pcp_manager.partition_batch(1) + made.model(1))


def seen_ranges(made: Any) -> list[str]:
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        assert step(made) == 9
    return sorted(e.name for e in seen.events() if e.name.startswith("pyvllm_pp."))


def test_ranges_are_seen_by_a_profiler_until_they_are_removed() -> None:
    made, ranges = runner(), StepRanges()
    assert seen_ranges(made) == []
    ranges.install(made)
    expected = ["pyvllm_pp.forward", "pyvllm_pp.sample", "pyvllm_pp.tables"]
    assert seen_ranges(made) == expected
    ranges.install(made)
    assert seen_ranges(made) == expected, "each range once"
    ranges.remove()
    assert seen_ranges(made) == []


def test_nothing_is_left_behind() -> None:
    made, ranges = runner(), StepRanges()
    parts = [made, made.pcp_manager, made.model]
    before = [set(vars(part)) for part in parts]
    ranges.install(made)
    assert [set(vars(part)) for part in parts] != before
    ranges.remove()
    assert [set(vars(part)) for part in parts] == before


def test_an_own_method_of_an_instance_comes_back() -> None:
    made, ranges = runner(), StepRanges()
    made.sample = lambda value: value + 1
    own = made.sample
    ranges.install(made)
    assert made.sample is not own
    ranges.remove()
    assert made.sample is own


@pytest.mark.parametrize("part", list(CLASSES))
def test_every_place_exists_in_vllm(part: str) -> None:
    """A method that vLLM renames would leave a hole in the breakdown."""
    methods = [method for place, method, _ in _PLACES if place == part]
    assert methods
    assert [m for m in methods if not hasattr(CLASSES[part], m)] == []


def test_names_are_the_ones_that_traces_have() -> None:
    assert [name.label for name in Range if name is not Range.scheduler] == [
        f"pyvllm_pp.{name}"
        for name in (
            "execute_model",
            "request_state",
            "feedback",
            "plan",
            "prepare_inputs",
            "tables",
            "block_tables",
            "attention_metadata",
            "forward",
            "sample_tokens",
            "restore",
            "sample",
            "prompt_logprobs",
            "post_update",
        )
    ]
    assert Range.scheduler.label == "pyvllm_pp.scheduler"
    assert {name for *_, name in _PLACES} == set(Range) - {Range.scheduler}
