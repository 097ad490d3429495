"""Bad input: one clear error that names the value and the limit, and no change."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pyvllm_pp.batch import Batch
from pyvllm_pp.feedback import FeedbackRing, need_sampled_mask
from pyvllm_pp.plan import PlanConfig, Planner
from pyvllm_pp.tables import (
    ArenaRing,
    TableWriter,
    device_arena_bytes,
    host_arena_bytes,
)
from tests.python.steps import (
    MAX_REQS,
    Rank,
    Topology,
    batch_of,
    bools,
    decode,
    int32,
    plan_of,
    prompt,
    slots,
)

Change = Callable[[Batch], Batch]


def batch() -> Batch:
    return batch_of([decode(), prompt(7), decode()])


def with_value(name: str, row: int, value: int) -> Change:
    def change(given: Batch) -> Batch:
        array = getattr(given, name).copy()
        array[row] = value
        return given._replace(**{name: array})

    return change


def with_dtype(name: str, dtype: str) -> Change:
    return lambda given: given._replace(**{name: getattr(given, name).astype(dtype)})


def strided(array: Any) -> Any:
    return np.repeat(array, 2)[::2]


def unaligned(array: Any) -> Any:
    raw = np.zeros(array.nbytes + 1, dtype=np.uint8)
    raw[1:] = array.view(np.uint8)
    return raw[1:].view(array.dtype)


BATCHES: list[tuple[Change, type[Exception], str]] = [
    *(
        (with_dtype(name, dtype), TypeError, rf"\[batch\] {name} is {dtype}, expected")
        for name, dtype in [
            ("num_scheduled_tokens", "int64"),
            ("num_scheduled_tokens", "float32"),
            ("is_prefilling", "uint8"),
            ("query_start_loc", "int64"),
            ("num_computed_tokens", "uint32"),
            ("prefill_len", "int16"),
            ("idx_mapping", "int32"),
        ]
    ),
    (with_dtype("prefill_len", ">i4"), TypeError, "prefill_len is >i4, expected int32"),
    *(
        (
            lambda given, name=name: given._replace(
                **{name: getattr(given, name)[:, None]}
            ),
            ValueError,
            rf"\[batch\] {name} has 2 dimensions, expected 1",
        )
        for name in Batch._fields
    ),
    *(
        (
            lambda given, name=name: given._replace(
                **{name: strided(getattr(given, name))}
            ),
            ValueError,
            rf"\[batch\] {name} has a stride of \d+ bytes, expected contiguous",
        )
        for name in Batch._fields
    ),
    *(
        (
            lambda given, name=name: given._replace(
                **{name: unaligned(getattr(given, name))}
            ),
            ValueError,
            rf"\[batch\] {name} is not aligned to \d bytes",
        )
        for name in Batch._fields
        if name != "is_prefilling"
    ),
    *(
        (
            lambda given, name=name: given._replace(**{name: getattr(given, name)[:2]}),
            ValueError,
            rf"\[batch\] {name} has 2 entries, expected (3|at least 4)",
        )
        for name in (
            "is_prefilling",
            "query_start_loc",
            "num_computed_tokens",
            "prefill_len",
            "idx_mapping",
        )
    ),
    (
        lambda given: given._replace(
            is_prefilling=np.array([0, 2, 0], dtype=np.uint8).view(np.bool_)
        ),
        ValueError,
        r"is_prefilling\[1\] holds the byte 2, expected 0 or 1",
    ),
    (
        with_value("num_scheduled_tokens", 2, -5),
        ValueError,
        r"\[batch\] num_scheduled_tokens\[2\] is -5, expected 0 or more",
    ),
    (
        with_value("num_scheduled_tokens", 1, 2048),
        ValueError,
        r"\[batch\] 2050 tokens scheduled, the buffers hold 2048",
    ),
    (
        with_value("query_start_loc", 1, 4),
        ValueError,
        r"\[batch\] query_start_loc\[1\] is 4, expected 1",
    ),
    (
        with_value("num_computed_tokens", 0, -1),
        ValueError,
        r"\[batch\] num_computed_tokens\[0\] is -1, expected 0 or more",
    ),
    (
        with_value("num_computed_tokens", 1, 2**31 - 2),
        ValueError,
        r"num_scheduled_tokens\[1\] is 2147483653, expected at most 2147483647",
    ),
    (
        with_value("prefill_len", 1, -3),
        ValueError,
        r"\[batch\] prefill_len\[1\] is -3, expected 0 or more",
    ),
]


@pytest.mark.parametrize(("change", "error", "text"), BATCHES)
def test_a_bad_batch_changes_nothing(
    change: Change, error: type[Exception], text: str
) -> None:
    rank = Rank(Topology(2))
    before = rank.arena.copy()
    bad = change(batch())
    with pytest.raises(error, match=text):
        rank.writer.write(plan_of(rank.planner, bad), bad, rank.arena)
    assert np.array_equal(rank.arena, before)


def test_a_batch_of_another_type_is_refused() -> None:
    planner = Planner(Topology(2).config())
    with pytest.raises(TypeError, match="incompatible function arguments"):
        planner.plan([1, 7], [False, True])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="incompatible function arguments"):
        planner.plan(None, bools([0]))  # type: ignore[arg-type]


def test_more_requests_than_the_buffers_hold() -> None:
    count = MAX_REQS + 1
    with pytest.raises(ValueError, match="17 requests scheduled, the buffers hold 16"):
        Planner(Topology(2).config()).plan(int32([1] * count), bools([0] * count))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"pcp_size": 0}, "pcp_size is 0, expected 1 or more"),
        ({"pcp_size": -2}, "pcp_size is -2, expected 1 or more"),
        ({"dcp_size": 0}, "dcp_size is 0, expected 1 or more"),
        ({"max_num_reqs": 0}, "max_num_reqs is 0, expected 1 or more"),
        ({"max_num_reqs": 2**30}, "is 1073741824, expected at most 1073741823"),
        ({"max_num_tokens": -1}, "max_num_tokens is -1, expected 1 or more"),
        ({"dcp_size": 2}, "expected shard_decode_requests=False"),
    ],
)
def test_a_bad_configuration(values: dict[str, int], text: str) -> None:
    config = Topology(2).config(**values)
    makers: list[Callable[[PlanConfig], object]] = [
        Planner,
        lambda config: TableWriter(config, 0),
        device_arena_bytes,
        host_arena_bytes,
    ]
    for make in makers:
        with pytest.raises(ValueError, match=rf"\[plan\] .*{text}"):
            make(config)


def test_sizes_beyond_an_int32_are_refused() -> None:
    with pytest.raises(TypeError, match="incompatible"):
        Topology(2).config(max_num_tokens=2**31)


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_outside_the_plan(rank: int) -> None:
    made = plan_of(Planner(Topology(2).config()), batch())
    for call in (made.segments, made.num_rank_tokens):
        with pytest.raises(ValueError, match=rf"rank {rank} is outside \[0, 2\)"):
            call(rank)
    with pytest.raises(ValueError, match=rf"rank {rank} is outside \[0, 2\)"):
        TableWriter(Topology(2).config(), rank)


def test_a_row_outside_the_plan() -> None:
    made = plan_of(Planner(Topology(2).config()), batch())
    with pytest.raises(ValueError, match=r"request row 3 is outside \[0, 3\)"):
        made.is_replicated(3)


@pytest.mark.parametrize(
    ("padding", "text"),
    [
        ({"tokens": 4}, "4 is smaller than the largest rank's 5 tokens"),
        ({"tokens": -1}, "-1 is smaller than the largest rank's 5 tokens"),
        ({"tokens": 2049}, "2049 exceeds the buffers' 2048 tokens"),
        ({"reqs": 2}, "2 is smaller than this rank's 3 rows"),
        ({"reqs": 33}, "33 exceeds the buffers' 32 rows"),
    ],
)
def test_padding_that_does_not_fit(padding: dict[str, int], text: str) -> None:
    rank = Rank(Topology(2))
    with pytest.raises(ValueError, match=text):
        rank.run(batch(), **padding)


def test_a_plan_of_another_batch_or_other_ranks() -> None:
    rank = Rank(Topology(2))
    other = plan_of(Planner(Topology(2).config()), batch_of([decode()]))
    with pytest.raises(ValueError, match="made from another batch than the one given"):
        rank.writer.write(other, batch(), rank.arena)
    wide = plan_of(Planner(Topology(4).config()), batch())
    with pytest.raises(ValueError, match="the plan is one of 4 ranks, expected 2"):
        rank.writer.write(wide, batch(), rank.arena)


def test_an_arena_that_does_not_fit() -> None:
    rank = Rank(Topology(2))
    made = plan_of(rank.planner, batch())
    read_only = rank.arena.copy()
    read_only.flags.writeable = False
    cases: list[tuple[Any, type[Exception], str]] = [
        (
            rank.arena[:64],
            ValueError,
            r"device arena has 64 bytes, this step needs \d+",
        ),
        (rank.arena[4:], ValueError, "device arena is not aligned to 8 bytes"),
        (rank.arena[::2], ValueError, "has a stride of 2 bytes, expected contiguous"),
        (rank.arena.view(np.int64), TypeError, "device_arena is int64, expected uint8"),
        (read_only, ValueError, "device_arena is read-only, expected a writable array"),
    ]
    for arena, error, text in cases:
        with pytest.raises(error, match=text):
            rank.writer.write(made, batch(), arena)


def test_a_batch_without_requests_has_no_tables() -> None:
    with pytest.raises(ValueError, match="a batch of 0 requests has no tables"):
        Rank(Topology(2)).run(batch_of([]))


def test_a_ring_that_is_none() -> None:
    arena = np.zeros(16, dtype=np.uint8)
    with pytest.raises(ValueError, match="ring depth is 1, expected 2 or more"):
        ArenaRing([arena])
    with pytest.raises(ValueError, match="arenas of 8 and 16 bytes in one ring"):
        ArenaRing([arena, arena[:8]])
    with pytest.raises(TypeError, match="arena is int64, expected uint8"):
        ArenaRing([arena, arena.view(np.int64)])  # type: ignore[list-item]


def test_bad_input_of_feedback() -> None:
    for sizes, text in [
        ({"depth": 0, "max_num_reqs": 4}, "depth is 0, expected 1 or more"),
        ({"depth": 2, "max_num_reqs": -1}, "max_num_reqs is -1, expected 1 or more"),
    ]:
        with pytest.raises(ValueError, match=text):
            FeedbackRing(**sizes)
    ring = FeedbackRing(depth=2, max_num_reqs=4)
    ring.begin_step()
    calls: list[tuple[Callable[[], object], type[Exception], str]] = [
        (
            lambda: ring.post(slots([0, 4]), bools([1, 1])),
            ValueError,
            r"slot 4 is outside \[0, 4\)",
        ),
        (
            lambda: ring.post(slots([0]), bools([1, 1])),
            ValueError,
            "need_sampled has 2 entries, expected 1",
        ),
        (
            lambda: ring.post(slots([0] * 5), bools([1] * 5)),
            ValueError,
            "5 requests posted, the ring holds 4",
        ),
        (
            lambda: ring.post(int32([0]), bools([1])),  # type: ignore[arg-type]
            TypeError,
            "idx_mapping is int32, expected int64",
        ),
        (lambda: ring.free_slot(-1), ValueError, r"slot -1 is outside \[0, 4\)"),
        (lambda: ring.generation(4), ValueError, r"slot 4 is outside \[0, 4\)"),
        (
            lambda: ring.digest(slots([0]), int32([1, 2])),
            ValueError,
            "num_scheduled_tokens has 2 entries, expected 1",
        ),
    ]
    for call, error, text in calls:
        with pytest.raises(error, match=text):
            call()
    assert ring.state(0).name == "empty"


def test_a_limit_of_another_length_or_dtype() -> None:
    with pytest.raises(ValueError, match="max_seq_len has 2 entries, expected 3"):
        need_sampled_mask(batch(), int32([9, 9]))
    with pytest.raises(TypeError, match="max_seq_len is int64, expected int32"):
        need_sampled_mask(batch(), slots([9, 9, 9]))  # type: ignore[arg-type]
