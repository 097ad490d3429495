"""The feedback ring as a state machine: every rule on the core and the reference."""

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from pyvllm_pp import reference
from pyvllm_pp.errors import FeedbackOrderError
from pyvllm_pp.feedback import FeedbackRing
from tests.python.steps import bools, slots

MAX_REQS = 4


def outcome(call: Callable[[], object]) -> object:
    """The result, or the class of the error."""
    try:
        return call()
    except (FeedbackOrderError, ValueError) as error:
        return type(error)


class FeedbackMachine(RuleBasedStateMachine):
    ring: FeedbackRing
    model: reference.FeedbackRing

    @initialize(depth=st.integers(1, 4))
    def start(self, depth: int) -> None:
        self.ring = FeedbackRing(depth=depth, max_num_reqs=MAX_REQS)
        self.model = reference.FeedbackRing(depth=depth, max_num_reqs=MAX_REQS)

    @rule()
    def begin_step(self) -> None:
        assert outcome(self.ring.begin_step) == outcome(self.model.begin_step)

    @rule(
        requests=st.lists(
            st.tuples(st.integers(-1, MAX_REQS), st.booleans()), max_size=MAX_REQS + 1
        )
    )
    def post_any(self, requests: list[tuple[int, bool]]) -> None:
        self._post(requests)

    @rule(requests=st.lists(st.integers(0, MAX_REQS - 1), min_size=1, max_size=4))
    def post_needed(self, requests: list[int]) -> None:
        self._post([(slot, True) for slot in requests])

    def _post(self, requests: list[tuple[int, bool]]) -> None:
        rows = [slot for slot, _ in requests]
        need = [needed for _, needed in requests]
        ours = outcome(lambda: self.ring.post(slots(rows), bools(need)))
        assert ours == outcome(lambda: self.model.post(rows, need))

    @rule(back=st.integers(-1, 6))
    def mark_ready(self, back: int) -> None:
        step = self.model.step - back
        ours = outcome(lambda: self.ring.mark_ready(step))
        assert ours == outcome(lambda: self.model.mark_ready(step))

    @precondition(lambda self: self.model.due_num_reqs > 0)
    @rule()
    def consume_what_is_due(self) -> None:
        due = self.model.step - self.model.depth
        assert outcome(lambda: self.ring.mark_ready(due)) == outcome(
            lambda: self.model.mark_ready(due)
        )
        self.consume()

    @rule()
    def consume(self) -> None:
        def ours() -> object:
            consumed, idx_mapping = self.ring.consume()
            return consumed, idx_mapping.tolist()

        assert outcome(ours) == outcome(self.model.consume)

    @rule(back=st.integers(-1, 6))
    def drop(self, back: int) -> None:
        self.ring.drop(self.model.step - back)
        self.model.drop(self.model.step - back)

    @rule(slot=st.integers(-1, MAX_REQS))
    def free_slot(self, slot: int) -> None:
        ours = outcome(lambda: self.ring.free_slot(slot))
        assert ours == outcome(lambda: self.model.free_slot(slot))

    @invariant()
    def shows_the_same(self) -> None:
        assert self.ring.step == self.model.step
        assert self.ring.due_num_reqs == self.model.due_num_reqs
        for step in range(self.model.step - self.model.depth - 2, self.model.step + 2):
            assert self.ring.state(step) is self.model.state(step)
        for slot in range(MAX_REQS):
            assert self.ring.generation(slot) == self.model.frees[slot]


TestFeedbackMachine = FeedbackMachine.TestCase
TestFeedbackMachine.settings = settings(max_examples=150, stateful_step_count=60)
