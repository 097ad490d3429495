"""Feedback: sampled tokens go from the last stage to the earlier ones, on the core."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import torch
import torch.distributed as dist
from vllm.config import VllmConfig
from vllm.utils.torch_utils import async_tensor_h2d
from vllm.v1.worker.gpu.input_batch import InputBatch
from vllm.v1.worker.gpu.pp_utils import PPHandler

from pyvllm_pp.batch import Batch, BoolArray
from pyvllm_pp.feedback import FeedbackRing, need_sampled_mask
from pyvllm_pp.host.compat import adapter
from pyvllm_pp.host.message import FeedbackMessage, HeaderArrival, ReceiveSlot

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

    @staticmethod
    def validate_config(vllm_config: VllmConfig) -> None:
        """Refuse what cannot work, before anything is built.

        Raises:
            NotImplementedError: drafts with PP under vLLM's synchronous scheduler. That
                asks the workers for a step's drafts when the next one is under way, and
                gives them to requests that it did not schedule with them.
        """
        num_stages = vllm_config.parallel_config.pipeline_parallel_size
        if (
            num_stages > 1
            and vllm_config.speculative_config is not None
            and not vllm_config.scheduler_config.async_scheduling
        ):
            raise NotImplementedError(
                "drafts (speculative_config) with pipeline_parallel_size="
                f"{num_stages} need async_scheduling=True, got False"
            )

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
        handler._slots = deque()
        if not handler.is_last_rank:
            handler._slots.extend(
                ReceiveSlot(
                    max_num_reqs,
                    handler.max_sample_len,
                    handler.num_speculative_steps,
                    handler.device,
                )
                for _ in range(depth + 1)
            )
        handler._unchecked = deque()
        handler._checked = []
        handler._sending = deque()
        handler._is_sent = False
        # On CPU a blocking broadcast would make the stages take turns; on a GPU the
        # call only enqueues on the side stream.
        handler._on_host = handler.device.type == "cpu"
        handler._broadcast = partial(
            dist.broadcast,
            src=handler.last_rank,
            group=handler.broadcast_group,
            async_op=handler._on_host,
        )
        return handler

    # The present step's first, then the one that is due; none on the last stage.
    _slots: deque[ReceiveSlot]
    _unchecked: deque[HeaderArrival]  # consumed, the header not yet on the host
    _checked: list[HeaderArrival]  # free to be used again
    _sending: deque[tuple[Any, torch.Tensor]]
    _on_host: bool
    _broadcast: Callable[[torch.Tensor], Any]
    _is_sent: bool

    def on_req_idx_freed(self, req_idx: int) -> None:
        """A slot was freed: feedback on its way to it is for nobody."""
        self.ring.free_slot(req_idx)

    def consume_due(self) -> ReceiveSlot | None:
        """Begin a step and consume the feedback that is due at it.

        Returns:
            The feedback; its ``idx_mapping`` is -1 for requests left out. None when no
            request needs an update.

        Raises:
            FeedbackOrderError: the feedback is that of another step or other requests.
        """
        slots = self._slots
        if not slots:  # the last stage
            self.ring.begin_step()
            return None
        slots.rotate(-1)
        due = slots[1]
        num_reqs = due.num_reqs
        if num_reqs:
            if due.works:
                due.wait()
            if not self._on_host:
                self._await_on_device(due)
        num_kept = self.ring.advance(num_reqs > 0, due.header_np, due.kept_np)
        due.num_reqs = 0
        due.num_kept = num_kept
        if num_kept == 0:
            return None
        if num_kept < num_reqs:
            kept = due.posted.kept_idx_mapping
            due.idx_mapping = (
                kept
                if self._on_host
                else async_tensor_h2d(kept.numpy(), device=self.device)
            )
        return due

    def post_receive(self, input_batch: InputBatch, with_drafts: bool) -> bool:
        """Post the receive of this step's tokens, and of its drafts.

        Returns:
            Whether every request of the batch needs its token.
        """
        num_needed = self.ring.post_batch(
            input_batch.num_scheduled_tokens,
            input_batch.is_prefilling_np,
            input_batch.num_computed_tokens_np,
            input_batch.prefill_len_np,
            input_batch.idx_mapping_np,
            input_batch.max_seq_len_np,
        )
        if num_needed == 0:
            return False
        num_reqs = input_batch.num_reqs
        slot = self._slots[0]
        slot.begin(num_reqs, input_batch.idx_mapping, with_drafts)
        if self._on_host:
            self._receive_into(slot)
        else:
            self._receive_on_stream(slot, input_batch)
        self.num_received += 1
        return bool(num_needed == num_reqs)

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
        for step in range(max(0, self.ring.step - self.ring.depth), self.ring.step + 1):
            self.ring.drop(step)
        for slot in self._slots:
            slot.num_reqs = 0
            slot.works.clear()
        self._unchecked.clear()
        self._sending.clear()

    def _receive_into(self, slot: ReceiveSlot) -> None:
        # None where the call does not return before the end.
        work = self._broadcast(slot.posted.message.packed)
        if work is not None:
            slot.works.append(work)
        if slot.with_drafts:
            work = self._broadcast(slot.posted.draft_tokens)
            if work is not None:
                slot.works.append(work)

    def _receive_on_stream(self, slot: ReceiveSlot, input_batch: InputBatch) -> None:
        """Post on the side stream, and let the header follow to the host."""
        arrival = self._checked.pop() if self._checked else HeaderArrival()
        step = self.ring.step
        with torch.cuda.stream(self.broadcast_stream):
            self.broadcast_stream.wait_stream(self._current_stream())
            self._receive_into(slot)
            arrival.begin(
                slot.posted.message.header,
                self.broadcast_stream,
                (step, self.ring.posted_digest(step)),
                input_batch.idx_mapping_np,
            )
        slot.arrival = arrival

    def _await_on_device(self, due: ReceiveSlot) -> None:
        """Make the main stream wait; check the headers that are on the host by now."""
        assert due.arrival is not None
        self._current_stream().wait_event(due.arrival.event)
        self._unchecked.append(due.arrival)
        due.arrival = None
        self._check_arrived()

    def _check_arrived(self) -> None:
        """Check the headers that are on the host, in order; the others a step later."""
        while self._unchecked and self._unchecked[0].check():
            self._checked.append(self._unchecked.popleft())

    def _new_message(self, num_reqs: int) -> FeedbackMessage:
        return FeedbackMessage.empty(num_reqs, self.max_sample_len, self.device)

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
