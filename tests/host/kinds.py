"""The kinds of step that a sweep has to meet, and those that a step is of."""

from collections.abc import Iterator

from tests.host.batches import Topology
from tests.host.steps import Block, can_go_on, next_step

_MOE_KIND = "MoE over the gathered tokens"
_KINDS = (
    *(f"PCP {size}" for size in range(1, 9)),
    "DCP 1",
    "DCP = PCP",
    "DCP = TP * PCP",
    "decodes only",
    "prefills only",
    "mixed",
    "chunked continuation",
    "prompt shorter than 2 * PCP",
    "zero-token row",
    "draft tokens",
    "rejected drafts, device behind host",
    "adaptive verification",
    "adaptive verification that leaves drafts out: refused",
    "piecewise graph padding",
    "full decode-only graph padding",
    "more than 1,000 requests",
    "rank without tokens",
    "same decodes as the step before",
    _MOE_KIND,
    "block tables by vLLM's own kernels",
)


def kinds_of(minor: str) -> list[str]:
    """Every kind of step that a sweep over a version has to meet."""
    has_gathered_mask = minor not in ("0.31", "0.32")
    return [kind for kind in _KINDS if has_gathered_mask or kind != _MOE_KIND]


def kinds(block: Block, index: int, *, is_rank_idle: bool) -> Iterator[str]:
    """The kinds that a block's step is of."""
    topology, step = block.topology, block.steps[index]
    prefills = [request for request in step.requests if request.is_prefilling]
    rows = {
        "chunked continuation": any(
            r.num_computed and r.num_scheduled for r in prefills
        ),
        "prompt shorter than 2 * PCP": any(
            0 < r.num_scheduled < 2 * topology.pcp_size for r in prefills
        ),
        "zero-token row": any(r.num_scheduled == 0 for r in step.requests),
        "draft tokens": step.num_drafts > 0,
        "rejected drafts, device behind host": any(
            r.num_rejected for r in step.requests
        ),
        "more than 1,000 requests": len(step.requests) > 1000,
        "rank without tokens": is_rank_idle,
    }
    whole = {
        "decodes only": not prefills,
        "prefills only": len(prefills) == len(step.requests),
        "mixed": 0 < len(prefills) < len(step.requests),
        "adaptive verification": step.draft_budget is not None
        and not step.budget_binds,
        "adaptive verification that leaves drafts out: refused": step.budget_binds,
        "piecewise graph padding": step.cg_mode == "PIECEWISE"
        and step.extra_tokens > 0,
        "full decode-only graph padding": step.cg_mode == "FULL"
        and step.extra_reqs > 0,
        "same decodes as the step before": index > 0
        and step == next_step(block.steps[index - 1])
        and can_go_on(block.steps[index - 1]),
        _MOE_KIND: bool(topology.moe_gathers_tokens),
        "block tables by vLLM's own kernels": step.runs_kernels,
    }
    yield f"PCP {topology.pcp_size}"
    yield _dcp_kind(topology)
    yield from (kind for kind, holds in {**rows, **whole}.items() if holds)


def _dcp_kind(topology: Topology) -> str:
    if topology.dcp_size == 1:
        return "DCP 1"
    is_pcp = topology.dcp_size == topology.pcp_size
    return "DCP = PCP" if is_pcp else "DCP = TP * PCP"
