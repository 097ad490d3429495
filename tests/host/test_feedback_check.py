"""The check of a feedback's header where it arrives late, as on a GPU."""

from collections import deque
from typing import Any

import numpy as np
import pytest
import torch

from pyvllm_pp.errors import FeedbackOrderError
from pyvllm_pp.host import message
from pyvllm_pp.host.message import FeedbackMessage, HeaderArrival
from pyvllm_pp.host.pp import FeedbackHandler


class Late:
    """An event that the stream passes only when told."""

    is_done = False

    def record(self, _: Any) -> None:
        self.is_done = False

    def query(self) -> bool:
        return self.is_done


@pytest.fixture(autouse=True)
def late_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message.torch.cuda, "Event", Late)
    # Pinned memory does not exist without a GPU.
    words = message.torch.empty(2, dtype=torch.int64)
    monkeypatch.setattr(message.torch, "empty", lambda *_, **__: words.clone())


def arrival(step: int, received: int) -> HeaderArrival:
    """The header of `received`, or of another step, where `step` is expected."""
    arriving = HeaderArrival()
    begin(arriving, step, received)
    return arriving


def begin(arriving: HeaderArrival, step: int, received: int) -> None:
    slots = np.arange(3, dtype=np.int64)
    arriving.begin(torch.tensor([received, 5]), None, (step, 5), slots)


def handler_with(*unchecked: HeaderArrival) -> Any:
    handler: Any = object.__new__(FeedbackHandler)
    handler._unchecked = deque(unchecked)
    handler._checked = []
    return handler


def test_a_late_header_is_checked_when_it_is_there() -> None:
    first, second = arrival(4, received=4), arrival(5, received=4)
    handler = handler_with(first, second)
    handler._check_arrived()
    assert len(handler._unchecked) == 2
    first.event.is_done = True
    handler._check_arrived()
    assert list(handler._unchecked) == [second]
    second.event.is_done = True
    with pytest.raises(FeedbackOrderError, match=r"of step 4 .* expected step 5"):
        handler._check_arrived()


def test_a_header_that_is_not_checked_yet_is_not_overwritten() -> None:
    """Its memory is free only then; a step that finds none free takes new memory."""
    first = arrival(4, received=4)
    handler = handler_with(first)
    handler._check_arrived()
    assert handler._checked == []
    first.event.is_done = True
    handler._check_arrived()
    assert handler._checked == [first]
    begin(first, 5, received=5)
    assert not first.check()
    first.event.is_done = True
    assert first.check()


def test_a_message_is_cut_of_the_same_memory_at_every_step() -> None:
    memory = torch.zeros(20, dtype=torch.int64)
    views = [FeedbackMessage.cut(memory, num_reqs, 2) for num_reqs in (1, 4)]
    assert [view.packed.shape[0] for view in views] == [5, 14]
    assert len({view.packed.data_ptr() for view in views}) == 1
