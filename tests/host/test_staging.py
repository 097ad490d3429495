"""The staging ring, with events that stay busy as on a GPU."""

import pytest
import torch

from pyvllm_pp.host.staging import Staging, split_tables

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


def test_on_cpu_the_table_is_the_buffer_and_survives_depth_minus_one_steps() -> None:
    staging = Staging(64, 3, CPU)
    views = []
    for step in range(2):
        staging.next()[:] = step
        views.append(staging.to_device(64))
    assert [int(view[0]) for view in views] == [0, 1]
    staging.next()[:] = 9
    assert [int(view[0]) for view in views] == [0, 1]
    staging.next()[:] = 7
    assert [int(view[0]) for view in views] == [7, 1]


def test_a_busy_buffer_is_left_alone_without_a_wait(events: list[FakeEvent]) -> None:
    staging = Staging(64, 2, CPU, make_event=FakeEvent)
    first = staging.next()
    first[:] = 1
    staging.to_device(64)
    staging.next()[:] = 2
    staging.to_device(64)
    assert [event.num_records for event in events] == [1, 1]

    third = staging.next()
    third[:] = 3
    assert int(first[0]) == 1, "a buffer still being copied was written"
    assert staging.num_fresh == 1
    assert int(staging.to_device(64)[0]) == 3


def test_a_free_buffer_is_used_again(events: list[FakeEvent]) -> None:
    staging = Staging(64, 2, CPU, make_event=FakeEvent)
    for _ in range(6):
        staging.next()
        staging.to_device(64)
        for event in events:
            event.done = True
    assert staging.num_fresh == 0
    assert len(events) == 2
    assert sum(event.num_records for event in events) == 6


def test_split_tables() -> None:
    packed = torch.arange(24, dtype=torch.uint8)
    first, second = split_tables(packed, (16, 8), (torch.int64, torch.bool))
    assert first.shape == (2,)
    assert first.data_ptr() == packed.data_ptr()
    assert second.tolist() == [True] * 8


def test_a_ring_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="ring depth is 1, expected 2 or more"):
        Staging(64, 1, CPU)
