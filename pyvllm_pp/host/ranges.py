"""Ranges of ``torch.profiler`` around the parts of a step.

They are put in place when vLLM's profiler starts and taken away when it stops: a run
without a profiler pays nothing for them.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

from torch.profiler import record_function

from pyvllm_pp.ranges import Range

# Part of the runner (itself where empty), method, range.
_PLACES: tuple[tuple[str, str, Range], ...] = (
    ("", "execute_model", Range.execute_model),
    ("", "sample_tokens", Range.sample_tokens),
    ("", "finish_requests", Range.request_state),
    ("", "free_states", Range.request_state),
    ("", "add_requests", Range.request_state),
    ("", "update_requests", Range.request_state),
    ("", "gather_batch_req_state", Range.request_state),
    ("", "update_pp_decode_requests", Range.feedback),
    ("", "prepare_inputs", Range.prepare_inputs),
    ("", "prepare_attn", Range.block_tables),
    ("", "sample", Range.sample),
    ("", "postprocess_sampled", Range.post_update),
    ("", "postprocess_num_computed_tokens", Range.post_update),
    ("model", "forward", Range.forward),
    ("cudagraph_manager", "run_fullgraph", Range.forward),
    ("model_state", "prepare_attn", Range.attention_metadata),
    ("pcp_manager", "get_num_tokens_for_dispatch", Range.plan),
    ("pcp_manager", "partition_batch", Range.tables),
    ("pcp_manager", "restore_for_sampling", Range.restore),
    ("pp_handler", "receive", Range.feedback),
    ("pp_handler", "broadcast", Range.feedback),
    ("pp_handler", "broadcast_drafts", Range.feedback),
    ("prompt_logprobs_worker", "compute_prompt_logprobs", Range.prompt_logprobs),
)


def ranged(method: Callable[..., Any], name: Range) -> Callable[..., Any]:
    """`method` inside the range `name`."""

    @wraps(method)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with record_function(name.label):
            return method(*args, **kwargs)

    return inside


class _Place(NamedTuple):
    owner: Any
    method: str
    original: Any | None  # where the instance had one of its own


class StepRanges:
    """The ranges of one runner."""

    def __init__(self) -> None:
        self._places: list[_Place] = []

    def install(self, runner: Any) -> None:
        """Put all ranges in place; parts that the run does not have are left out."""
        if self._places:
            return
        for part, method, name in _PLACES:
            owner = getattr(runner, part, None) if part else runner
            if owner is None or not hasattr(owner, method):
                continue
            self._places.append(_Place(owner, method, vars(owner).get(method)))
            setattr(owner, method, ranged(getattr(owner, method), name))

    def remove(self) -> None:
        """Leave every part as it was."""
        for owner, method, original in self._places:
            if original is None:
                delattr(owner, method)
            else:
                setattr(owner, method, original)
        self._places.clear()
