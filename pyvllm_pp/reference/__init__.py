"""Slow, clear truth of the core, written token by token from its rules.

The oracle of the tests: no reuse, no fast path, one loop a rule. A rank's order, the
gathered order and the restore are all read off lists of tokens, never computed from
offsets, so that a mistake in the core's arithmetic cannot be made here too.
"""

from pyvllm_pp.reference.balance import attention_work, broken_promises
from pyvllm_pp.reference.feedback import FeedbackRing, need_sampled_mask
from pyvllm_pp.reference.plan import Plan, Segment, plan, plan_of
from pyvllm_pp.reference.tables import (
    Tables,
    gathered_tokens,
    sampled_tokens,
    selected_tokens,
    tables,
)

__all__ = [
    "FeedbackRing",
    "Plan",
    "Segment",
    "Tables",
    "attention_work",
    "broken_promises",
    "gathered_tokens",
    "need_sampled_mask",
    "plan",
    "plan_of",
    "sampled_tokens",
    "selected_tokens",
    "tables",
]
