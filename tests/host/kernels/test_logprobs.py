"""Logprobs, ranks, prompt logprobs, sampling masks and traces against vLLM's."""

from typing import Any

import pytest
import torch
from vllm.v1.worker.gpu.sample import logprob
from vllm.v1.worker.gpu.sample.output import SamplingMaskTensors
from vllm.v1.worker.gpu.sample.prompt_logprob import get_prompt_logprobs_token_ids
from vllm.v1.worker.gpu.sample.trace_replay import apply_trace_tokens

from tests.host.kernels.compare import assert_same, both, copy_of, native_kernels
from tests.host.kernels.rows import DTYPES, MAX_REQS, Rows

SEEDS = range(14)
all_dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@all_dtypes
@pytest.mark.parametrize("num_tokens", [1, 6])
@pytest.mark.parametrize("seed", SEEDS)
def test_token_logprobs(seed: int, num_tokens: int, dtype: torch.dtype) -> None:
    rows = Rows(seed, dtype)
    if seed % 3 == 0:
        rows.logits[:, ::2] = -torch.inf
    if seed % 5 == 0:
        rows.logits[:, 0] = torch.inf
    state = {
        "logits": rows.logits,
        "token_ids": rows.tokens((rows.num_rows, num_tokens), "int64"),
    }
    stock, ours = both(
        "_topk_log_softmax_kernel", logprob.compute_token_logprobs, state
    )
    torch.testing.assert_close(
        ours["return"], stock["return"], rtol=2e-6, atol=2e-6, equal_nan=True
    )


@all_dtypes
@pytest.mark.parametrize("seed", SEEDS)
def test_ranks(seed: int, dtype: torch.dtype) -> None:
    rows = Rows(seed, dtype, special=seed % 2 == 0)
    tokens = rows.tokens(rows.num_rows, "int32" if seed % 3 else "int64")

    def ranks(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        out = torch.empty(rows.num_rows, dtype=torch.int64)
        logprob._ranks_kernel[(rows.num_rows,)](
            out,
            logits,
            logits.stride(0),
            tokens,
            rows.vocab_size,
            BLOCK_SIZE=8192,
        )
        return out

    assert_same("_ranks_kernel", ranks, {"logits": rows.logits, "tokens": tokens})


@pytest.mark.parametrize("num_logprobs", [0, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_logprobs_of_tokens_that_requests_ask_for(seed: int, num_logprobs: int) -> None:
    rows = Rows(seed, vocab_size=40)
    requested = logprob.LogprobTokenIdsState(MAX_REQS, torch.device("cpu"))
    counts = rows.ints(0, 5, MAX_REQS)
    requested.num_token_ids.np[:] = counts.numpy()
    requested.num_token_ids.copy_to_uva()
    requested.token_ids.gpu[:] = rows.tokens(tuple(requested.token_ids.gpu.shape))
    state = {
        "logits": rows.logits,
        "num_logprobs": num_logprobs,
        "sampled_token_ids": rows.tokens(rows.num_rows, "int64"),
        "logprob_token_ids_state": requested,
        "expanded_idx_mapping": rows.idx_mapping,
        "max_per_req_token_ids": 4,
    }
    stock = logprob.compute_topk_scores(**copy_of(state))
    with native_kernels() as launched:
        ours = logprob.compute_topk_scores(**copy_of(state))
    assert "_fill_logprob_token_ids_kernel" in launched
    torch.testing.assert_close(ours.logprob_token_ids, stock.logprob_token_ids)
    torch.testing.assert_close(ours.logprobs, stock.logprobs, rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(ours.selected_token_ranks, stock.selected_token_ranks)


@pytest.mark.parametrize("seed", SEEDS)
def test_prompt_targets(seed: int) -> None:
    rows = Rows(seed, vocab_size=99)
    counts = rows.rng.integers(0, 30, rows.num_rows)
    state: dict[str, Any] = {
        "num_tokens": int(counts.sum()),
        "query_start_loc": torch.tensor([0, *counts.cumsum()], dtype=torch.int32),
        "idx_mapping": rows.idx_mapping,
        "num_computed_tokens": rows.ints(0, 60, MAX_REQS),
        "all_token_ids": rows.tokens((MAX_REQS, 128)),
    }
    assert_same(
        "_prompt_logprobs_token_ids_kernel", get_prompt_logprobs_token_ids, state
    )


def test_a_prompt_that_fills_its_row_has_no_last_target() -> None:
    rows = Rows(0, vocab_size=99)
    state: dict[str, Any] = {
        "num_tokens": 4,
        "query_start_loc": torch.tensor([0, 4], dtype=torch.int32),
        "idx_mapping": torch.tensor([MAX_REQS - 1]),
        "num_computed_tokens": torch.full((MAX_REQS,), 4, dtype=torch.int32),
        "all_token_ids": rows.tokens((MAX_REQS, 8)),
    }
    with native_kernels():
        targets = get_prompt_logprobs_token_ids(**state)
    assert targets.tolist() == [*state["all_token_ids"][-1, 5:].tolist(), 0]


@all_dtypes
@pytest.mark.parametrize("rows_per_request", [1, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_sampling_masks(seed: int, rows_per_request: int, dtype: torch.dtype) -> None:
    rows = Rows(seed, dtype, num_rows=9, special=True)
    num_reqs = 9 // rows_per_request
    state: dict[str, Any] = {
        "logits": rows.logits,
        "cu_num_logits": torch.arange(num_reqs + 1, dtype=torch.int32)
        * rows_per_request,
        "num_sampled_tokens": rows.ints(0, rows_per_request + 1, num_reqs),
        "max_num_kept": 5,
        "rows_per_request": rows_per_request,
    }
    stock, ours = both(
        "_compact_sampling_mask_kernel", SamplingMaskTensors.from_logits, state
    )
    sampled = state["num_sampled_tokens"].numpy()
    assert ours["return"].counts.tolist() == stock["return"].counts.tolist()
    for row, count in enumerate(ours["return"].counts.tolist()):
        # Rows without a sampled token are left as they were, which is anything.
        if count:
            kept = min(count, 5, rows.vocab_size)
            for name, width in (("token_ids", kept), ("packed_mask", None)):
                mine = getattr(ours["return"], name)[row, :width].tolist()
                assert mine == getattr(stock["return"], name)[row, :width].tolist()
    assert ours["return"].tolists(sampled) is not None


@pytest.mark.parametrize("seed", SEEDS)
def test_trace_replay(seed: int) -> None:
    rows = Rows(seed, vocab_size=99)
    rows.idx_mapping[::3] = -1
    prompt_len = rows.ints(1, 9, MAX_REQS)
    state = {
        "sampled": rows.tokens(rows.num_rows, "int64"),
        "idx_mapping": rows.idx_mapping,
        "trace_token_ids": rows.tokens((MAX_REQS, 32)),
        "trace_len": rows.ints(0, 9, MAX_REQS),
        "total_len": prompt_len + rows.ints(0, 9, MAX_REQS),
        "prompt_len": prompt_len,
    }
    assert_same("_trace_replay_kernel", apply_trace_tokens, state)
