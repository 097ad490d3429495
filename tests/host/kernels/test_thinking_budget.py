"""Thinking budgets against vLLM's kernels."""

from typing import Any

import pytest
import torch
from vllm.v1.worker.gpu.sample.thinking_budget import apply_thinking_budget

from tests.host.kernels.compare import assert_equal, both
from tests.host.kernels.rows import MAX_REQS, Rows


def state_of(seed: int, max_len: int) -> dict[str, Any]:
    # Few different tokens, so that markers turn up everywhere.
    rows = Rows(seed, num_rows=6, vocab_size=4)
    rows.idx_mapping[1::2] = rows.idx_mapping[::2]
    wide = max_len > 1000
    tokens = rows.tokens((MAX_REQS, max_len))
    if wide:
        tokens[:, : max_len // 2] = 3
    markers = [rows.tokens(rows.rng.integers(1, 4)) for _ in range(3)]
    scanned = rows.ints(0, max_len // 2, MAX_REQS)
    return {
        "logits": rows.logits,
        "req_ids": rows.idx_mapping[::2].clone(),
        "expanded_idx_mapping": rows.idx_mapping,
        "thinking_token_budget": rows.ints(-1, 6, MAX_REQS),
        "all_token_ids": tokens,
        "total_len": rows.ints(0, max_len + 1, MAX_REQS),
        "input_ids": rows.tokens(6),
        "expanded_local_pos": torch.arange(6, dtype=torch.int32) % 2,
        "cached_last_start": torch.full((MAX_REQS,), -1, dtype=torch.int32),
        "cached_last_end": torch.full((MAX_REQS,), -1, dtype=torch.int32),
        "cached_scan_pos": scanned * rows.ints(0, 2, MAX_REQS),
        "reasoning_start_token_ids": markers[0],
        "natural_reasoning_end_token_ids": markers[1],
        "reasoning_end_token_ids": markers[2],
    }


@pytest.mark.parametrize("max_len", [12, 2600])
@pytest.mark.parametrize("seed", range(25))
def test_thinking_budget(seed: int, max_len: int) -> None:
    stock, ours = both(
        "_thinking_budget_kernel", apply_thinking_budget, state_of(seed, max_len)
    )
    assert_equal("logits", stock["logits"], ours["logits"])
    assert_equal("scan_pos", stock["cached_scan_pos"], ours["cached_scan_pos"])
    # vLLM's first look stops at the first block, from the end, that has a marker; what
    # counts is which of the two markers came last.
    for side in (stock, ours):
        side["is_thinking"] = side["cached_last_start"] > side["cached_last_end"]
    assert_equal("is_thinking", stock["is_thinking"], ours["is_thinking"])
    if max_len < 1000:
        for name in ("cached_last_start", "cached_last_end"):
            assert_equal(name, stock[name], ours[name])
