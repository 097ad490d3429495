"""The check of a feedback's header where it arrives late, as on a GPU."""

from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pyvllm_pp.errors import FeedbackOrderError
from pyvllm_pp.host.message import PendingFeedback
from pyvllm_pp.host.pp import FeedbackHandler


class Late:
    """An event that the stream passes only when told."""

    is_done = False

    def query(self) -> bool:
        return self.is_done


def pending(step: int, received: int) -> PendingFeedback:
    """Feedback that `step` expects, with the header of another step or the same."""
    message: Any = SimpleNamespace(packed=SimpleNamespace(is_cuda=True))
    slots = np.arange(3, dtype=np.int64)
    return PendingFeedback(
        step=step,
        digest=5,
        message=message,
        idx_mapping=torch.from_numpy(slots),
        idx_mapping_np=slots,
        works=[],
        event=Late(),
        host_header=torch.tensor([received, 5]),
    )


def handler_with(*unchecked: PendingFeedback) -> Any:
    handler: Any = object.__new__(FeedbackHandler)
    handler._unchecked = deque(unchecked)
    return handler


def test_a_late_header_is_checked_when_it_is_there() -> None:
    first, second = pending(4, received=4), pending(5, received=4)
    handler = handler_with(first, second)
    handler._check_arrived()
    assert len(handler._unchecked) == 2
    first.event.is_done = True
    handler._check_arrived()
    assert list(handler._unchecked) == [second]
    second.event.is_done = True
    with pytest.raises(FeedbackOrderError, match=r"of step 4 .* expected step 5"):
        handler._check_arrived()
