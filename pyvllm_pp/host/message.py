"""The message of one step's feedback, and one that is on its way."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from pyvllm_pp.errors import FeedbackOrderError

_HEADER = 2  # step, digest


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
        num_tokens = num_reqs * max_sample_len
        packed = torch.empty(
            _HEADER + num_tokens + num_reqs, dtype=torch.int64, device=device
        )
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


@dataclass
class PendingFeedback:
    """A message that was posted and has not been consumed."""

    step: int
    digest: int
    message: FeedbackMessage
    idx_mapping: torch.Tensor  # int64 [num_reqs], on the device
    idx_mapping_np: NDArray[np.int64]  # [num_reqs]
    works: list[Any]
    draft_tokens: torch.Tensor | None = None  # int64 [num_reqs, num_speculative_steps]
    event: Any = None
    host_header: torch.Tensor | None = None  # int64 [2]

    def record(self, broadcast_stream: Any, main_stream: Any) -> None:
        """Mark the arrival on the side stream; the main stream uses the tensors later.

        On a GPU the header is copied to the host behind the broadcast, so that
        checking it needs no wait.
        """
        packed = self.message.packed
        self.host_header = self.message.header
        if packed.is_cuda:
            self.host_header = torch.empty(_HEADER, dtype=torch.int64, pin_memory=True)
            self.host_header.copy_(self.message.header, non_blocking=True)
        self.event = broadcast_stream.record_event()
        packed.record_stream(main_stream)
        if self.draft_tokens is not None:
            self.draft_tokens.record_stream(main_stream)

    def wait(self) -> None:
        """Make the tokens usable on the current stream."""
        for work in self.works:
            if work is not None:
                work.wait()
        if self.message.packed.is_cuda:
            stream = torch.cuda.current_stream(self.message.packed.device)
            stream.wait_event(self.event)

    def check(self) -> bool:
        """Compare the header with what this stage expects, once it is on the host.

        Returns:
            Whether it has arrived; False only on a GPU, where nothing waits for it.

        Raises:
            FeedbackOrderError: another step's, or another batch's.
        """
        assert self.host_header is not None
        if self.message.packed.is_cuda and not self.event.query():
            return False
        step, digest = self.host_header.tolist()
        if (step, digest) != (self.step, self.digest):
            raise FeedbackOrderError(
                f"[feedback] received the feedback of step {step} with the requests' "
                f"digest {digest:#x}, expected step {self.step} with {self.digest:#x} "
                f"(slots {self.idx_mapping_np.tolist()[:8]})"
            )
        return True

    def update_drafts(
        self, draft_tokens: torch.Tensor, idx_mapping_np: NDArray[np.int64]
    ) -> None:
        """Write the drafts of the kept requests, those with a slot that is not -1.

        Args:
            draft_tokens: int64 ``[max_num_reqs, num_speculative_steps]``.
            idx_mapping_np: int64 ``[num_reqs]``, -1 for requests left out.
        """
        assert self.draft_tokens is not None
        keep = idx_mapping_np >= 0
        if keep.all():
            draft_tokens[self.idx_mapping] = self.draft_tokens
            return
        rows = torch.from_numpy(np.flatnonzero(keep)).to(draft_tokens.device)
        slots = torch.from_numpy(idx_mapping_np[keep]).to(draft_tokens.device)
        draft_tokens[slots] = self.draft_tokens[rows]
