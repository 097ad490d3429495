"""What the policy ``balanced`` promises, checked token by token.

Its decisions are free within these rules, so the reference is a judge, not a second
policy: it knows nothing of how the core comes to a plan.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pyvllm_pp.batch import BoolArray, Int32Array
from pyvllm_pp.reference.plan import Plan

# Prompts that are long enough for the promise on attention work.
_LONG_PROMPT = 1024
_TOLERANCE = 0.02


def attention_work(
    made: Plan,
    num_scheduled_tokens: Sequence[int] | Int32Array,
    num_computed_tokens: Sequence[int] | Int32Array,
) -> list[int]:
    """Each rank's sum of its tokens' context lengths, a token counting itself."""
    contexts = [
        int(computed) + position + 1
        for count, computed in zip(
            num_scheduled_tokens, num_computed_tokens, strict=True
        )
        for position in range(int(count))
    ]
    return [
        sum(contexts[token] for token in made.rank_tokens(rank))
        for rank in range(made.pcp_size)
    ]


def broken_promises(
    made: Plan,
    num_scheduled_tokens: Sequence[int] | Int32Array,
    is_prefilling: Sequence[bool] | BoolArray,
    num_computed_tokens: Sequence[int] | Int32Array,
    *,
    shard_decode_requests: bool = True,
) -> list[str]:
    """Say which promises of the policy a plan breaks; nothing when it keeps them all.

    Args:
        made: the plan.
        num_scheduled_tokens: ``[num_reqs]``
        is_prefilling: ``[num_reqs]``
        num_computed_tokens: ``[num_reqs]`` contexts before this step.
        shard_decode_requests: whether a decode is on one rank alone.
    """
    requests = [
        _Request(i, int(count), not prefilling)
        for i, (count, prefilling) in enumerate(
            zip(num_scheduled_tokens, is_prefilling, strict=True)
        )
    ]
    broken = [
        text
        for request in requests
        for text in _broken_of(request, made, shard_decode_requests)
    ]
    broken += _unequal_tokens(requests, made)
    if all(not r.is_decode and r.num_tokens >= _LONG_PROMPT for r in requests):
        work = attention_work(made, num_scheduled_tokens, num_computed_tokens)
        if max(work) * made.pcp_size > (1 + _TOLERANCE) * sum(work):
            broken.append(f"attention work {work} differs by more than 2 %")
    return broken


class _Request(NamedTuple):
    req_idx: int
    num_tokens: int
    is_decode: bool


def _broken_of(request: _Request, made: Plan, shard_decodes: bool) -> Iterator[str]:
    """A request's tokens are all there, in few runs, whole where it is a decode."""
    held = [
        [s.tokens for s in segments if s.req_idx == request.req_idx]
        for segments in made.segments
    ]
    copies = made.pcp_size if request.is_decode and not shard_decodes else 1
    tokens = sorted(token for runs in held for run in runs for token in run)
    expected = range(tokens[0], tokens[0] + request.num_tokens) if tokens else range(0)
    if len(expected) != request.num_tokens or tokens != sorted([*expected] * copies):
        yield f"{request} has the tokens {tokens}"
    if any(len(runs) > 2 for runs in held):
        yield f"{request} has more than two segments on a rank"
    if request.is_decode and any(
        sum(map(len, runs)) % request.num_tokens for runs in held if runs
    ):
        yield f"{request} is not whole"


def _unequal_tokens(requests: Sequence[_Request], made: Plan) -> Iterator[str]:
    """Ranks differ by at most one token, but for the decodes of several tokens."""
    counts = [len(made.rank_tokens(rank)) for rank in range(made.pcp_size)]
    for segments, count in zip(made.segments, counts, strict=True):
        has_prompts = any(not requests[s.req_idx].is_decode for s in segments)
        has_drafts = any(r.is_decode and r.num_tokens > 1 for r in requests)
        if count > min(counts) + 1 and (has_prompts or not has_drafts):
            yield f"rank tokens {counts}"
