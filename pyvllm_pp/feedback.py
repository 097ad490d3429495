"""Room 4: sampled tokens on their way from the last stage to an earlier one."""

from pyvllm_pp import _core
from pyvllm_pp._core import Consumed, EntryState, FeedbackRing, check_header
from pyvllm_pp.batch import Batch, BoolArray, Int32Array

__all__ = [
    "Consumed",
    "EntryState",
    "FeedbackRing",
    "check_header",
    "need_sampled_mask",
]


def need_sampled_mask(
    batch: Batch, max_seq_len: Int32Array | None = None
) -> BoolArray | None:
    """Requests whose sampled token can be needed in a later step.

    The rule is that of vLLM's ``compute_need_sampled_mask``: last prefill chunks and
    decodes, without those whose one sampled token reaches `max_seq_len`.

    Args:
        batch: the global batch.
        max_seq_len: int32 ``[num_reqs]``, prompt plus largest output; None when the
            batch has no prefill.

    Returns:
        A bool array ``[num_reqs]``, or None when no request needs its token.
    """
    return _core.need_sampled_mask(
        num_scheduled_tokens=batch.num_scheduled_tokens,
        is_prefilling=batch.is_prefilling,
        num_computed_tokens=batch.num_computed_tokens,
        prefill_len=batch.prefill_len,
        max_seq_len=max_seq_len,
    )
