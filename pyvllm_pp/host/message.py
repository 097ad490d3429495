"""The message of one step's feedback, and an earlier stage's memory for it."""

from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from pyvllm_pp.feedback import check_header

_HEADER = 2  # step, digest
# Batch sizes repeat from step to step; cutting a message costs more than posting it.
_NUM_SIZES = 256


class FeedbackMessage(NamedTuple):
    """One int64 tensor that travels whole, and views of its parts.

    Layout: step, digest, sampled tokens, then two int32 counts a request.
    """

    packed: torch.Tensor  # int64 [2 + num_reqs * max_sample_len + num_reqs]
    header: torch.Tensor  # int64 [2]
    sampled_tokens: torch.Tensor  # int64 [num_reqs, max_sample_len]
    counts: torch.Tensor  # int32 [2, num_reqs]: sampled, rejected

    @classmethod
    def empty(cls, num_reqs: int, max_sample_len: int, device: torch.device) -> Self:
        """Memory for a message of a batch."""
        num_words = _num_words(num_reqs, max_sample_len)
        memory = torch.empty(num_words, dtype=torch.int64, device=device)
        return cls.cut(memory, num_reqs, max_sample_len)

    @classmethod
    def cut(cls, memory: torch.Tensor, num_reqs: int, max_sample_len: int) -> Self:
        """A message of a batch in the first words of `memory`."""
        num_tokens = num_reqs * max_sample_len
        packed = memory[: _num_words(num_reqs, max_sample_len)]
        header, tokens, counts = packed.split((_HEADER, num_tokens, num_reqs))
        return cls(
            packed,
            header,
            tokens.view(num_reqs, max_sample_len),
            counts.view(torch.int32).view(2, num_reqs),
        )

    def fill(
        self,
        step: int,
        digest: int,
        sampled_tokens: torch.Tensor,
        num_sampled: torch.Tensor,
        num_rejected: torch.Tensor,
    ) -> None:
        """Write all parts; `sampled_tokens` may be narrower than the message."""
        header = torch.tensor(
            [step, digest], dtype=torch.int64, pin_memory=self.packed.is_cuda
        )
        self.header.copy_(header, non_blocking=True)
        width = sampled_tokens.shape[-1]
        self.sampled_tokens[:, :width].copy_(sampled_tokens)
        self.sampled_tokens[:, width:].zero_()
        self.counts[0].copy_(num_sampled)
        self.counts[1].copy_(num_rejected)

    def outputs(self) -> dict[str, torch.Tensor]:
        """The parts under the names of ``postprocess_sampled``'s arguments."""
        return {
            "sampled_tokens": self.sampled_tokens,
            "num_sampled": self.counts[0],
            "num_rejected": self.counts[1],
        }


def _num_words(num_reqs: int, max_sample_len: int) -> int:
    return _HEADER + num_reqs * max_sample_len + num_reqs


class Posted(NamedTuple):
    """A batch size's views of a stage's memory."""

    message: FeedbackMessage
    outputs: dict[str, torch.Tensor]
    draft_tokens: torch.Tensor  # int64 [num_reqs, num_speculative_steps]
    kept_idx_mapping: torch.Tensor  # int64 [num_reqs], on the host


class ReceiveSlot:
    """An earlier stage's memory for one step's feedback, used again and again.

    A stage has one more than there are steps between post and consume. On a GPU the
    side stream, which writes it, waits at each post for the main stream, which read it.

    Args:
        max_num_reqs: requests that a batch can have.
        max_sample_len: tokens that a request can sample.
        num_speculative_steps: drafts of a request.
        device: where messages arrive.
    """

    def __init__(
        self,
        max_num_reqs: int,
        max_sample_len: int,
        num_speculative_steps: int,
        device: torch.device,
    ) -> None:
        def words(count: int) -> torch.Tensor:
            return torch.empty(count, dtype=torch.int64, device=device)

        memory = words(_num_words(max_num_reqs, max_sample_len))
        drafts = words(max_num_reqs * num_speculative_steps)
        # What the core writes where requests are left out: slots, -1 for those.
        self.kept_np: NDArray[np.int64] = np.empty(max_num_reqs, dtype=np.int64)
        kept = torch.from_numpy(self.kept_np)

        def posted(num_reqs: int) -> Posted:
            message = FeedbackMessage.cut(memory, num_reqs, max_sample_len)
            num_drafts = num_reqs * num_speculative_steps
            return Posted(
                message,
                message.outputs(),
                drafts[:num_drafts].view(num_reqs, num_speculative_steps),
                kept[:num_reqs],
            )

        self._posted = lru_cache(_NUM_SIZES)(posted)
        # Where the host sees messages as they arrive.
        self.header_np: NDArray[np.int64] | None = None
        if device.type == "cpu":
            self.header_np = memory[:_HEADER].numpy()
        self.num_reqs = 0  # of the step that is on its way; 0 when none is
        self.num_kept = 0  # of the step that was consumed
        self.posted: Posted
        self.idx_mapping: torch.Tensor  # int64 [num_reqs], on the device
        self.works: list[Any] = []
        self.arrival: HeaderArrival | None = None  # on a GPU
        self.with_drafts = False

    def begin(
        self, num_reqs: int, idx_mapping: torch.Tensor, with_drafts: bool
    ) -> None:
        """Prepare the memory for a step's message."""
        self.num_reqs = num_reqs
        self.posted = self._posted(num_reqs)
        self.idx_mapping = idx_mapping
        self.with_drafts = with_drafts

    def wait(self) -> None:
        """Make the tokens usable on the current stream."""
        while self.works:
            self.works.pop().wait()

    def update_drafts(self, draft_tokens: torch.Tensor) -> None:
        """Write the drafts of the requests that were kept when they were consumed.

        Args:
            draft_tokens: int64 ``[max_num_reqs, num_speculative_steps]``.
        """
        received = self.posted.draft_tokens
        num_reqs = received.shape[0]
        if self.num_kept == num_reqs:
            draft_tokens[self.idx_mapping] = received
            return
        idx_mapping_np = self.kept_np[:num_reqs]
        keep = idx_mapping_np >= 0
        rows = torch.from_numpy(np.flatnonzero(keep)).to(draft_tokens.device)
        slots = torch.from_numpy(idx_mapping_np[keep]).to(draft_tokens.device)
        draft_tokens[slots] = received[rows]


class HeaderArrival:
    """A header on its way to the host behind its broadcast, on a GPU.

    So the header is checked without a wait for the device. Used again once checked.
    """

    def __init__(self) -> None:
        self.event: Any = torch.cuda.Event()
        self._header = torch.empty(_HEADER, dtype=torch.int64, pin_memory=True)
        self._header_np: NDArray[np.int64] = self._header.numpy()

    def begin(
        self,
        header: torch.Tensor,
        stream: Any,
        expected: tuple[int, int],
        idx_mapping_np: NDArray[np.int64],
    ) -> None:
        """Copy `header` on `stream`, which is the current one, and mark its end."""
        self._expected = expected
        self._idx_mapping_np = idx_mapping_np
        self._header.copy_(header, non_blocking=True)
        self.event.record(stream)

    def check(self) -> bool:
        """Compare the header with what this stage expects, once it is there.

        Returns:
            Whether it has arrived.

        Raises:
            FeedbackOrderError: another step's, or another batch's.
        """
        if not self.event.query():
            return False
        check_header(self._header_np, *self._expected, self._idx_mapping_np)
        return True
