"""An earlier stage's memory for feedback, as the handler leaves it at consumption."""

import pytest
import torch

from pyvllm_pp.host.message import ReceiveSlot

# What memory that the core did not write may hold: no slot, and not -1 either.
GARBAGE = -(2**62)


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        ([3, 1], [[0, 0], [7, 8], [0, 0], [5, 6]]),
        ([-1, 1], [[0, 0], [7, 8], [0, 0], [0, 0]]),
        ([3, -1], [[0, 0], [0, 0], [0, 0], [5, 6]]),
    ],
)
def test_drafts_go_to_the_kept_requests(
    kept: list[int], expected: list[list[int]]
) -> None:
    slot = ReceiveSlot(4, 3, 2, torch.device("cpu"))
    slot.begin(2, torch.tensor([3, 1]), with_drafts=True)
    slot.posted.draft_tokens.copy_(torch.tensor([[5, 6], [7, 8]]))
    slot.num_kept = sum(each >= 0 for each in kept)
    # The core writes the slots only where some requests are left out.
    slot.kept_np.fill(GARBAGE)
    if slot.num_kept < len(kept):
        slot.kept_np[: len(kept)] = kept

    draft_tokens = torch.zeros(4, 2, dtype=torch.int64)
    slot.update_drafts(draft_tokens)
    assert draft_tokens.tolist() == expected
