"""Feedback: sampled tokens go from the last stage to the earlier ones, on the core."""

from collections import deque
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from vllm.utils.torch_utils import async_tensor_h2d
from vllm.v1.worker.gpu.input_batch import InputBatch
from vllm.v1.worker.gpu.pp_utils import PPHandler

from pyvllm_pp.batch import Batch, BoolArray
from pyvllm_pp.feedback import Consumed, FeedbackRing, need_sampled_mask
from pyvllm_pp.host.compat import adapter
from pyvllm_pp.host.message import FeedbackMessage, PendingFeedback

# This version's names and arguments of the methods below.
_Face = adapter().HandlerFace


class FeedbackHandler(_Face, PPHandler):  # type: ignore[valid-type,misc]
    """vLLM's PP handler with the ring of the core, one message a step, no host wait.

    The last stage sends step T's tokens in one broadcast; an earlier stage posts the
    receive at step T and waits for it only when it consumes it, at step T + pp_size.
    All batches here are global ones.
    """

    ring: FeedbackRing
    num_received: int

    @classmethod
    def adopt(cls, stock: PPHandler, max_num_reqs: int) -> Self:
        """Take over a handler of vLLM's, with its stream and its process group.

        Building a second one would make a second collective group.
        """
        handler = cls.__new__(cls)
        handler.__dict__.update(stock.__dict__)
        depth = len(stock.queue) or dist.get_world_size(stock.broadcast_group)
        handler.ring = FeedbackRing(depth=depth, max_num_reqs=max_num_reqs)
        handler.num_received = 0
        handler._pending = {}
        handler._unchecked = deque()
        handler._sending = deque()
        handler._is_sent = False
        # On CPU a blocking broadcast would make the stages take turns; on a GPU the
        # call only enqueues on the side stream.
        handler._async_op = handler.device.type == "cpu"
        return handler

    _pending: dict[int, PendingFeedback]
    _unchecked: deque[PendingFeedback]  # consumed, the header not yet on the host
    _sending: deque[tuple[Any, torch.Tensor]]
    _async_op: bool
    _is_sent: bool

    def on_req_idx_freed(self, req_idx: int) -> None:
        """A slot was freed: feedback on its way to it is for nobody."""
        self.ring.free_slot(req_idx)

    def consume_due(
        self,
    ) -> tuple[PendingFeedback, torch.Tensor, NDArray[np.int64]] | None:
        """Begin a step and consume the feedback that is due at it.

        Returns:
            The feedback, and its requests' slots int64 ``[num_reqs]`` on the device and
            on the host, -1 for requests left out. None when no request needs an update.

        Raises:
            FeedbackOrderError: the feedback is that of another step or other requests.
        """
        step = self.ring.begin_step()
        if self.is_last_rank:
            return None
        pending = self._pending.pop(step - self.ring.depth, None)
        if pending is not None:
            pending.wait()
            self._unchecked.append(pending)
        self._check_arrived()
        if pending is not None:
            self.ring.mark_ready(pending.step)
        consumed, idx_mapping_np = self.ring.consume()
        if pending is None or consumed in (Consumed.nothing, Consumed.none):
            return None
        idx_mapping = pending.idx_mapping
        if consumed is Consumed.filtered:
            idx_mapping = async_tensor_h2d(idx_mapping_np, device=self.device)
        return pending, idx_mapping, idx_mapping_np

    def post_receive(self, input_batch: InputBatch, with_drafts: bool) -> bool:
        """Post the receive of this step's tokens, and of its drafts.

        Returns:
            Whether every request of the batch needs its token.
        """
        assert not self.is_last_rank
        need_sampled = self._need_sampled(input_batch)
        if need_sampled is None:
            return False
        self.ring.post(input_batch.idx_mapping_np, need_sampled)
        with torch.cuda.stream(self.broadcast_stream):
            self.broadcast_stream.wait_stream(self._current_stream())
            message = self._new_message(input_batch.num_reqs)
            works = [self._broadcast(message.packed)]
            drafts = None
            if with_drafts:
                drafts = self._receive_drafts(input_batch.num_reqs, works)
            received = PendingFeedback(
                step=self.ring.step,
                digest=self._digest(input_batch),
                message=message,
                idx_mapping=input_batch.idx_mapping,
                idx_mapping_np=input_batch.idx_mapping_np,
                works=works,
                draft_tokens=drafts,
            )
            received.record(self.broadcast_stream, self._current_stream())
        self._pending[self.ring.step] = received
        self.num_received += 1
        return bool(need_sampled.all())

    def broadcast(
        self,
        sampled_token_ids: torch.Tensor,
        num_sampled: torch.Tensor,
        num_rejected: torch.Tensor,
        input_batch: InputBatch,
    ) -> None:
        """Send this step's tokens to the earlier stages, unless none needs them."""
        assert self.is_last_rank
        self._is_sent = self._need_sampled(input_batch) is not None
        if not self._is_sent:
            return
        main_stream = self._current_stream()
        with torch.cuda.stream(self.broadcast_stream):
            self.broadcast_stream.wait_stream(main_stream)
            message = self._new_message(input_batch.num_reqs)
            message.fill(
                self.ring.step,
                self._digest(input_batch),
                sampled_token_ids,
                num_sampled,
                num_rejected,
            )
            self._send(message.packed)
            for tensor in (sampled_token_ids, num_sampled, num_rejected):
                tensor.record_stream(self.broadcast_stream)

    def send_drafts(self, make_drafts: Callable[[], torch.Tensor]) -> None:
        """Send the drafts of a step whose tokens were sent.

        Args:
            make_drafts: makes them, int64 ``[num_reqs, num_speculative_steps]``, on the
                side stream.
        """
        assert self.is_last_rank
        if not self._is_sent:
            return
        with torch.cuda.stream(self.broadcast_stream):
            self.broadcast_stream.wait_stream(self._current_stream())
            drafts = make_drafts().contiguous()
            self._send(drafts)
            drafts.record_stream(self.broadcast_stream)

    def close(self) -> None:
        """Forget what is on its way; nobody will consume it."""
        for step in self._pending:
            self.ring.drop(step)
        self._pending.clear()
        self._unchecked.clear()
        self._sending.clear()

    def _check_arrived(self) -> None:
        """Check the headers that are on the host, in order; the others a step later."""
        while self._unchecked and self._unchecked[0].check():
            self._unchecked.popleft()

    def _receive_drafts(self, num_reqs: int, works: list[Any]) -> torch.Tensor:
        drafts = torch.empty(
            num_reqs, self.num_speculative_steps, dtype=torch.int64, device=self.device
        )
        works.append(self._broadcast(drafts))
        return drafts

    def _new_message(self, num_reqs: int) -> FeedbackMessage:
        return FeedbackMessage.empty(num_reqs, self.max_sample_len, self.device)

    def _broadcast(self, tensor: torch.Tensor) -> Any:
        return dist.broadcast(
            tensor,
            src=self.last_rank,
            group=self.broadcast_group,
            async_op=self._async_op,
        )

    def _send(self, tensor: torch.Tensor) -> None:
        work = self._broadcast(tensor)
        if work is None:
            return
        # A buffer lives until every stage has it; one that none takes after as many
        # steps as the ring is deep means that a stage is gone, and the wait says so.
        self._sending.append((work, tensor))
        while self._sending and self._sending[0][0].is_completed():
            self._sending.popleft()
        while len(self._sending) > 2 * self.ring.depth:
            self._sending.popleft()[0].wait()

    def _current_stream(self) -> Any:
        return torch.cuda.current_stream(self.device)

    def _digest(self, input_batch: InputBatch) -> int:
        return self.ring.digest(
            input_batch.idx_mapping_np, input_batch.num_scheduled_tokens
        )

    @staticmethod
    def _need_sampled(input_batch: InputBatch) -> BoolArray | None:
        batch = Batch(
            num_scheduled_tokens=input_batch.num_scheduled_tokens,
            is_prefilling=input_batch.is_prefilling_np,
            query_start_loc=input_batch.query_start_loc_np,
            num_computed_tokens=input_batch.num_computed_tokens_np,
            prefill_len=input_batch.prefill_len_np,
            idx_mapping=input_batch.idx_mapping_np,
        )
        return need_sampled_mask(batch, input_batch.max_seq_len_np)
