"""The examples worked by hand, against the core and against the reference."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyvllm_pp import reference
from pyvllm_pp.batch import Batch
from pyvllm_pp.feedback import FeedbackRing, need_sampled_mask
from pyvllm_pp.plan import Partition, PlanConfig, Planner
from pyvllm_pp.tables import TableWriter, device_tables
from tests.python.steps import arena_for, bools, int32, slots

Example = dict[str, Any]
FILE = Path(__file__).parents[1] / "data" / "worked_examples.json"
EXAMPLES: Example = json.loads(FILE.read_text())


def examples(section: str) -> list[Any]:
    return [pytest.param(e, id=e["name"]) for e in EXAMPLES[section]]


def config_of(example: Example) -> PlanConfig:
    return PlanConfig(
        **example["config"],
        partition=Partition.dual_chunk_swap,
        max_num_reqs=example.get("max_num_reqs", 8),
        max_num_tokens=64,
    )


def batch_of(given: Example) -> Batch:
    counts = int32(given["num_scheduled_tokens"])
    zeros = [0] * len(counts)
    starts = np.append(np.int32(0), counts.cumsum(dtype=np.int32))
    return Batch(
        num_scheduled_tokens=counts,
        is_prefilling=bools(given["is_prefilling"]),
        query_start_loc=int32(given.get("query_start_loc", starts)),
        num_computed_tokens=int32(given.get("num_computed_tokens", zeros)),
        prefill_len=int32(given.get("prefill_len", zeros)),
        idx_mapping=slots(given.get("idx_mapping", zeros)),
    )


def check_plan(made: reference.Plan, example: Example) -> None:
    assert [[list(s) for s in rows] for rows in made.segments] == example["segments"]
    assert list(made.is_replicated) == [bool(r) for r in example["is_replicated"]]
    assert made.max_rank_tokens == example["max_rank_tokens"]


def check_arrays(arrays: Any, expected: Example) -> None:
    for name, values in expected.items():
        assert getattr(arrays, name).tolist() == values, name


@pytest.mark.parametrize("example", examples("plans"))
def test_plans(example: Example) -> None:
    batch = batch_of(example)
    config = config_of(example)
    made = Planner(config).plan(batch.num_scheduled_tokens, batch.is_prefilling)
    check_plan(reference.plan_of(made), example)
    truth = reference.plan(
        batch.num_scheduled_tokens, batch.is_prefilling, **example["config"]
    )
    check_plan(truth, example)
    gathered = {
        name: example[name]
        for name in (
            "hidden_restore_idx",
            "padded_gather_idx",
            "gathered_kv_write_mask",
            "gathered_is_padding",
        )
    }
    for rank in range(truth.pcp_size):
        arena = arena_for(config)
        step = TableWriter(config, rank).write(made, batch, arena)
        check_arrays(device_tables(arena, step.device_sizes), gathered)
        check_arrays(
            reference.tables(truth, batch, rank, max_num_reqs=8).device, gathered
        )


@pytest.mark.parametrize("example", examples("tables"))
def test_tables(example: Example) -> None:
    batch = batch_of(example["batch"])
    config = config_of(example)
    padding = {name: example[name] for name in ("padded_num_tokens", "padded_num_reqs")}
    made = Planner(config).plan(batch.num_scheduled_tokens, batch.is_prefilling)
    arena = arena_for(config)
    step = TableWriter(config, example["rank"]).write(made, batch, arena, **padding)
    check_arrays(device_tables(arena, step.device_sizes), example["device"])
    check_arrays(step.host, example["host"])
    truth = reference.tables(
        reference.plan_of(made),
        batch,
        example["rank"],
        max_num_reqs=example["max_num_reqs"],
        **padding,
    )
    check_arrays(truth.device, example["device"])
    check_arrays(truth.host, example["host"])


@pytest.mark.parametrize("example", examples("need_sampled"))
def test_need_sampled(example: Example) -> None:
    limit = example["max_seq_len"]
    max_seq_len = None if limit is None else int32(limit)
    expected = bools(example["mask"]) if any(example["mask"]) else None
    for mask in (
        need_sampled_mask(batch_of(example), max_seq_len),
        reference.need_sampled_mask(batch_of(example), max_seq_len),
    ):
        assert np.array_equal(mask, expected) if expected is not None else mask is None


@pytest.mark.parametrize("example", examples("feedback"))
def test_feedback(example: Example) -> None:
    sizes = {name: example[name] for name in ("depth", "max_num_reqs")}
    ring, model = FeedbackRing(**sizes), reference.FeedbackRing(**sizes)
    for call in example["calls"]:
        match call:
            case {"call": "begin_step", "gives": step}:
                assert ring.begin_step() == model.begin_step() == step
            case {"call": "post", "idx_mapping": rows, "need_sampled": need}:
                assert ring.post(slots(rows), bools(need)) is call["gives"]
                assert model.post(rows, need) is call["gives"]
            case {"call": "consume", "gives": name, "idx_mapping": expected}:
                consumed, taken = ring.consume()
                assert (consumed.name, taken.tolist()) == (name, expected)
                assert model.consume() == (consumed, expected)
            case {"call": name, "step": number} | {"call": name, "slot": number}:
                getattr(ring, name)(number)
                getattr(model, name)(number)
            case _:
                pytest.fail(f"unknown call {call}")
