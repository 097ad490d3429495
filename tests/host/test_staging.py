"""The staging ring, with events that stay busy as on a GPU."""

import numpy as np
import pytest
import torch

from pyvllm_pp.host.staging import Staging
from pyvllm_pp.tables import DeviceSizes

CPU = torch.device("cpu")


class FakeEvent:
    """An event of a stream that passes it only when told."""

    made: list["FakeEvent"]

    def __init__(self) -> None:
        self.done = False
        self.num_records = 0
        type(self).made.append(self)

    def record(self) -> None:
        self.num_records += 1
        self.done = False

    def query(self) -> bool:
        return self.done


@pytest.fixture
def events() -> list[FakeEvent]:
    FakeEvent.made = []
    return FakeEvent.made


SIZES = DeviceSizes(16, 8, 8, 16, 8, 16, 4, 4, 4, 4)
ALL = sum(SIZES)


def test_on_cpu_the_table_is_the_buffer_and_survives_depth_minus_one_steps() -> None:
    staging = Staging(ALL, 3, CPU)
    masks = []
    for step in range(4):
        arena = staging.peek()
        arena[:] = 0
        arena[ALL - 8 : ALL - 4] = step % 2
        masks.append(staging.commit(SIZES).gathered_kv_write_mask)
        kept = masks[-2:]
        values = [int(mask[0]) for mask in kept]
        assert values == [(step - 1) % 2, step % 2][-len(kept) :]
    assert masks[0].data_ptr() == masks[3].data_ptr()
    assert staging.num_copies == 0


def test_a_look_without_a_commit_does_not_rotate() -> None:
    staging = Staging(ALL, 2, CPU)
    first = staging.peek()
    assert staging.peek() is first
    staging.commit(SIZES)
    assert staging.peek() is not first


def test_tables_are_cut_in_order() -> None:
    staging = Staging(ALL, 2, CPU)
    staging.peek()[:ALL] = np.arange(ALL)
    tables = staging.commit(SIZES)
    assert [table.nbytes for table in tables] == list(SIZES)
    raw = [table.view(torch.uint8).tolist()[0] for table in tables[:-2]]
    assert raw == [0, 16, 24, 32, 48, 56, 72, 76]
    assert tables.gathered_kv_write_mask.dtype == torch.bool


def test_a_busy_buffer_is_left_alone_without_a_wait(events: list[FakeEvent]) -> None:
    staging = Staging(ALL, 2, CPU, make_event=FakeEvent)
    first = staging.peek()
    for value in (1, 2):
        staging.peek()[:] = value
        staging.commit(SIZES)
    assert [event.num_records for event in events] == [1, 1]

    staging.peek()[:] = 3
    assert int(first[0]) == 1, "a buffer still being copied was written"
    assert staging.num_fresh == 1
    tables = staging.commit(SIZES)
    assert tables.cu_num_logits.view(torch.uint8).tolist() == [3] * 4
    assert staging.num_copies == 3


def test_a_free_buffer_is_used_again(events: list[FakeEvent]) -> None:
    staging = Staging(ALL, 2, CPU, make_event=FakeEvent)
    for _ in range(6):
        staging.peek()
        staging.commit(SIZES)
        for event in events:
            event.done = True
    assert staging.num_fresh == 0
    assert len(events) == 2
    assert sum(event.num_records for event in events) == 6


def test_a_ring_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="ring depth is 1, expected 2 or more"):
        Staging(64, 1, CPU)
