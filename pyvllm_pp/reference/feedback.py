"""The feedback's state machine, with a dictionary of the steps in flight."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from pyvllm_pp.batch import Batch, BoolArray, Int32Array
from pyvllm_pp.errors import FeedbackOrderError
from pyvllm_pp.feedback import Consumed, EntryState


def need_sampled_mask(
    batch: Batch, max_seq_len: Int32Array | None = None
) -> BoolArray | None:
    """Requests whose sampled token a later step can need; None when there are none."""
    mask: list[bool] = []
    for i, count in enumerate(batch.num_scheduled_tokens):
        prompt = int(batch.prefill_len[i])
        samples = int(batch.num_computed_tokens[i]) + int(count) >= prompt
        ends_here = (
            max_seq_len is not None
            and bool(batch.is_prefilling[i])
            and prompt + 1 >= int(max_seq_len[i])
        )
        mask.append(samples and not ends_here)
    return np.array(mask, dtype=np.bool_) if any(mask) else None


class _Entry:
    """The feedback of one step: a slot, its generation and its need, a request."""

    def __init__(self, requests: list[tuple[int, int, bool]]) -> None:
        self.requests = requests
        self.is_ready = False


class FeedbackRing:
    """The state machine of feedback, with a dictionary of the steps in flight.

    Raises the errors of :class:`pyvllm_pp.feedback.FeedbackRing` for the same calls.
    """

    def __init__(self, *, depth: int, max_num_reqs: int) -> None:
        self.depth = depth
        self.max_num_reqs = max_num_reqs
        self.step = -1
        self.frees: Counter[int] = Counter()  # how often each slot was freed
        self._in_flight: dict[int, _Entry] = {}
        self._consumed = False

    def begin_step(self) -> int:
        """Start the next step; the feedback due at the present one must be gone."""
        if self.step - self.depth in self._in_flight:
            raise FeedbackOrderError(f"step {self.step - self.depth} is still there")
        self.step += 1
        self._consumed = False
        return self.step

    def post(self, slots: Sequence[int], need_sampled: Sequence[bool]) -> bool:
        """Empty -> posted, unless nobody needs a token of this step."""
        self._check_started()
        if len(slots) != len(need_sampled) or len(slots) > self.max_num_reqs:
            raise ValueError(f"{len(slots)} slots, {len(need_sampled)} needs")
        for slot in slots:
            self._check_slot(slot)
        if self.step in self._in_flight:
            raise FeedbackOrderError(f"step {self.step} is posted again")
        if not any(need_sampled):
            return False
        self._in_flight[self.step] = _Entry(
            [(s, self.frees[s], n) for s, n in zip(slots, need_sampled, strict=True)]
        )
        return True

    def mark_ready(self, step: int) -> None:
        """Posted -> ready."""
        if self.state(step) is not EntryState.posted:
            raise FeedbackOrderError(f"step {step} is {self.state(step).name}")
        self._in_flight[step].is_ready = True

    def consume(self) -> tuple[Consumed, list[int]]:
        """Ready -> empty, for the step `depth` steps ago; -1 for a request left out."""
        self._check_started()
        due = self.step - self.depth
        if self._consumed or self.state(due) is EntryState.posted:
            raise FeedbackOrderError(f"step {due} is not ready, or consumed")
        self._consumed = True
        if due not in self._in_flight:
            return Consumed.nothing, []
        requests = self._in_flight.pop(due).requests
        slots = [
            slot if need and frees == self.frees[slot] else -1
            for slot, frees, need in requests
        ]
        if max(slots) < 0:
            return Consumed.none, slots
        return (Consumed.filtered if min(slots) < 0 else Consumed.all), slots

    def drop(self, step: int) -> None:
        """Any state -> empty."""
        self._in_flight.pop(step, None)

    def free_slot(self, slot: int) -> None:
        """Count a freed request slot."""
        self._check_slot(slot)
        self.frees[slot] += 1

    def state(self, step: int) -> EntryState:
        """Where the feedback of `step` stands."""
        if step not in self._in_flight:
            return EntryState.empty
        return EntryState.ready if self._in_flight[step].is_ready else EntryState.posted

    @property
    def due_num_reqs(self) -> int:
        """Number of requests of the feedback due at this step."""
        entry = self._in_flight.get(self.step - self.depth)
        return 0 if entry is None else len(entry.requests)

    def digest(self, slots: Sequence[int], num_scheduled_tokens: Sequence[int]) -> int:
        """FNV-1a over slot, frees and tokens of each request; MurmurHash3's fmix64."""
        mask = (1 << 64) - 1
        offset, prime = 0xCBF29CE484222325, 0x100000001B3
        lanes = [offset] * 4
        requests = zip(slots, num_scheduled_tokens, strict=True)
        for i, (slot, count) in enumerate(requests):
            word = slot ^ (self.frees[slot] % (1 << 32) << 32)
            word ^= count % (1 << 32) * 0x9E3779B97F4A7C15 & mask
            lanes[i % 4] = ((lanes[i % 4] ^ word) * prime) & mask
        value = offset
        for lane in lanes:
            value = ((value ^ lane) * prime) & mask
        for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, 1):
            value = ((value ^ (value >> 33)) * factor) & mask
        return value - (1 << 64) if value >> 63 else value

    def _check_started(self) -> None:
        if self.step < 0:
            raise FeedbackOrderError("no step has begun")

    def _check_slot(self, slot: int) -> None:
        if not 0 <= slot < self.max_num_reqs:
            raise ValueError(f"slot {slot} is outside [0, {self.max_num_reqs})")
