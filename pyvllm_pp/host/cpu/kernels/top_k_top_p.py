"""Top-k and top-p, whose kernels Triton's interpreter cannot run."""

import torch

from pyvllm_pp import _kernels


def apply_top_k_top_p(
    logits: torch.Tensor,
    k: torch.Tensor | None,
    p: torch.Tensor | None,
    mask_value: float = float("-inf"),
) -> torch.Tensor:
    """Mask all but the likeliest tokens, in the place of vLLM's Triton function.

    Of the `k` greatest logits the fewest stay whose probabilities reach `p`, at least
    one; of equal logits the first.

    Args:
        logits: ``[num_rows, vocab_size]`` float32.
        k: ``[num_rows]`` integers from 1 on, or None for no limit.
        p: ``[num_rows]`` from 0 to 1, or None for no limit.
        mask_value: what the other logits become.

    Returns:
        The masked logits: `logits` itself where its rows are contiguous.

    Raises:
        TypeError: `logits` is not float32.
        ValueError: a `k` below 1, or fewer limits than rows.
    """
    if logits.stride(-1) != 1:
        logits = logits.contiguous()
    num_rows, vocab_size = logits.shape
    _kernels.top_k_top_p(
        logits,
        num_rows,
        vocab_size,
        logits.stride(0),
        k,
        None if p is None else p.to(torch.float32),
        mask_value,
    )
    return logits
