"""Make a block of steps that shows a difference as small as it stays one."""

from collections.abc import Callable, Iterator
from typing import Any

from tests.host.batches import Request
from tests.host.steps import Block, Step

Fails = Callable[[Block], bool]


def shrunk(block: Block, fails: Fails) -> Block:
    """The smallest block found that still fails.

    Args:
        block: one that fails at its last step.
        fails: whether a block does, on managers of its own.

    Returns:
        A block that fails, or `block` itself where it does not do so again.
    """
    if not fails(block):
        return block
    smaller: Block | None = block
    while smaller is not None:
        block = smaller
        smaller = next(filter(fails, _smaller(block)), None)
    return block


def _smaller(block: Block) -> Iterator[Block]:
    """Smaller blocks, the much smaller first."""
    steps = block.steps
    for length in _lengths(len(steps)):
        yield block._replace(steps=steps[-length:])
    for index in range(len(steps) - 1):
        yield block._replace(steps=(*steps[:index], *steps[index + 1 :]))
    for index, step in enumerate(steps):
        for simpler in _simpler_steps(step):
            yield block._replace(steps=(*steps[:index], simpler, *steps[index + 1 :]))


def _lengths(length: int) -> Iterator[int]:
    """1, 2, 4 and so on, below `length`."""
    shorter = 1
    while shorter < length:
        yield shorter
        shorter *= 2


def _simpler_steps(step: Step) -> Iterator[Step]:
    yield from _without_rows(step)
    plain: dict[str, Any] = {
        "cg_mode": "NONE",
        "extra_tokens": 0,
        "extra_reqs": 0,
        "draft_budget": None,
        "runs_kernels": False,
        "seed": 0,
    }
    for name, value in plain.items():
        if getattr(step, name) != value:
            yield step._replace(**{name: value})
    for row, request in enumerate(step.requests):
        for simpler in _simpler_requests(request):
            requests = (*step.requests[:row], simpler, *step.requests[row + 1 :])
            if any(other.num_scheduled for other in requests):
                yield step._replace(requests=requests)


def _without_rows(step: Step) -> Iterator[Step]:
    """Without half of the rows, a quarter, and so on to single ones."""
    num_reqs = len(step.requests)
    size = num_reqs // 2
    while size:
        for start in range(0, num_reqs, size):
            requests = step.requests[:start] + step.requests[start + size :]
            if any(request.num_scheduled for request in requests):
                slots = step.slots[:start] + step.slots[start + size :]
                yield step._replace(requests=requests, slots=slots)
        size //= 2


def _simpler_requests(request: Request) -> Iterator[Request]:
    scheduled, computed, prefill_len, drafts, rejected = request
    if drafts or rejected:
        yield Request(scheduled, computed, prefill_len)
    if request.is_prefilling and computed:
        yield Request(scheduled, 0, max(scheduled, 1))
    if not request.is_prefilling and computed > 1 and not rejected:
        yield Request(scheduled, 1, 1, drafts)
    for fewer in {scheduled // 2, scheduled - 1}:
        if drafts < fewer < scheduled:
            yield request._replace(num_scheduled=fewer)
