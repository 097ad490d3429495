"""Input preparation against vLLM's kernels in the interpreter."""

import numpy as np
import pytest
import torch
from vllm.v1.worker.gpu import input_batch

from tests.host.kernels.compare import State, assert_same

SEEDS = range(12)
# Rows of a batch: none, one, several, and more than there are requests in a block.
NUM_REQS = (0, 1, 2, 7, 40)
MAX_REQS, MAX_LEN = 48, 300


class Requests:
    """Random requests, some within their prefill, some with drafts."""

    def __init__(self, seed: int, index_dtype: torch.dtype = torch.int64) -> None:
        self.rng = np.random.default_rng(seed)
        self.num_reqs = NUM_REQS[seed % len(NUM_REQS)]
        self.index_dtype = index_dtype
        slots = self.rng.permutation(MAX_REQS)[: self.num_reqs]
        self.idx_mapping = torch.tensor(slots, dtype=index_dtype)
        self.prefill_len = self.ints(1, 200, MAX_REQS)
        self.num_computed_tokens = self.ints(0, 220, MAX_REQS)
        query_lens = self.rng.integers(0, 60, self.num_reqs)
        self.num_logits = self.rng.integers(1, 4, self.num_reqs)
        query_lens = np.maximum(query_lens, self.num_logits)
        self.query_start_loc = self.cumulative(query_lens)
        self.cu_num_logits = self.cumulative(self.num_logits)
        self.max_tokens = int(query_lens.sum()) + 8
        self.all_token_ids = self.ints(0, 1000, (MAX_REQS, MAX_LEN))

    def ints(
        self, low: int, high: int, size: int | tuple[int, int], dtype: str = "int32"
    ) -> torch.Tensor:
        return torch.from_numpy(self.rng.integers(low, high, size).astype(dtype))

    def cumulative(self, counts: np.ndarray) -> torch.Tensor:
        return torch.tensor([0, *np.cumsum(counts)], dtype=torch.int32)

    @property
    def seq_lens(self) -> torch.Tensor:
        lens = self.query_start_loc.diff()
        return self.num_computed_tokens[self.idx_mapping.long()] + lens


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("num_lookahead", [1, 3])
def test_prepare_prefill_inputs(seed: int, num_lookahead: int) -> None:
    reqs = Requests(seed, torch.int32 if seed % 2 else torch.int64)
    assert_same(
        "_prepare_prefill_inputs_kernel",
        input_batch.prepare_prefill_inputs,
        {
            "input_ids": torch.full((reqs.max_tokens,), -7, dtype=torch.int32),
            "next_prefill_tokens": torch.full(
                (num_lookahead, MAX_REQS), -7, dtype=torch.int32
            ),
            "idx_mapping": reqs.idx_mapping,
            "query_start_loc": reqs.query_start_loc,
            "all_token_ids": reqs.all_token_ids,
            "prefill_len": reqs.prefill_len,
            "num_computed_tokens": reqs.num_computed_tokens,
        },
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("pos_dtype", [torch.int32, torch.int64])
def test_prepare_pos_seq_lens(seed: int, pos_dtype: torch.dtype) -> None:
    reqs = Requests(seed, torch.int32 if seed % 2 else torch.int64)
    assert_same(
        "_prepare_pos_seq_lens_kernel",
        input_batch.prepare_pos_seq_lens,
        {
            "idx_mapping": reqs.idx_mapping,
            "query_start_loc": reqs.query_start_loc,
            "num_computed_tokens": reqs.num_computed_tokens,
            "pos": torch.full((reqs.max_tokens,), -7, dtype=pos_dtype),
            "seq_lens": torch.full((MAX_REQS,), -7, dtype=torch.int32),
        },
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("num_new", [0, 1])
def test_combine_sampled_and_draft_tokens(seed: int, num_new: int) -> None:
    reqs = Requests(seed, torch.int32 if seed % 2 else torch.int64)
    assert_same(
        "_combine_sampled_and_draft_tokens_kernel",
        input_batch.combine_sampled_and_draft_tokens,
        {
            "input_ids": reqs.ints(0, 1000, reqs.max_tokens),
            "idx_mapping": reqs.idx_mapping,
            "last_sampled_tokens": reqs.ints(0, 1000, MAX_REQS, "int64"),
            "query_start_loc": reqs.query_start_loc,
            "seq_lens": reqs.seq_lens,
            "prefill_len": reqs.prefill_len,
            "draft_tokens": reqs.ints(0, 1000, (MAX_REQS, 3), "int64"),
            "cu_num_logits": reqs.cu_num_logits,
            "num_logits": int(reqs.cu_num_logits[-1]),
            "num_new_sampled_tokens": num_new,
        },
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_expand_idx_mapping(seed: int, index_dtype: torch.dtype) -> None:
    reqs = Requests(seed, index_dtype)
    assert_same(
        "_expand_idx_mapping_kernel",
        input_batch.expand_idx_mapping,
        {
            "idx_mapping": reqs.idx_mapping,
            "total_num_logits": int(reqs.cu_num_logits[-1]),
            "cu_num_logits": reqs.cu_num_logits,
            "max_expand_len": 3,
        },
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_get_num_sampled_and_rejected(seed: int) -> None:
    reqs = Requests(seed, torch.int32 if seed % 2 else torch.int64)
    sampled = reqs.rng.integers(0, reqs.num_logits + 1).astype("int32")
    assert_same(
        "_get_num_sampled_and_rejected_kernel",
        input_batch.get_num_sampled_and_rejected,
        {
            "num_sampled": torch.from_numpy(sampled),
            "seq_lens": reqs.seq_lens,
            "cu_num_logits": reqs.cu_num_logits,
            "idx_mapping": reqs.idx_mapping,
            "prefill_len": reqs.prefill_len,
        },
    )


def update_state(reqs: Requests) -> State:
    # Some rows were filtered out, as after feedback of freed slots.
    reqs.idx_mapping[reqs.rng.random(reqs.num_reqs) < 0.3] = -1
    return {
        "idx_mapping": reqs.idx_mapping,
        "num_computed_tokens": reqs.num_computed_tokens,
        "last_sampled_tokens": reqs.ints(0, 64, MAX_REQS, "int64"),
        "output_bin_counts": reqs.ints(0, 5, (MAX_REQS, 64)),
        "sampled_tokens": reqs.ints(0, 64, (reqs.num_reqs, 4), "int64"),
        "num_sampled": reqs.ints(0, 5, reqs.num_reqs),
        "num_rejected": reqs.ints(0, 4, reqs.num_reqs),
        "query_start_loc": reqs.query_start_loc,
        "all_token_ids": reqs.all_token_ids,
        "total_len": reqs.ints(0, MAX_LEN - 4, MAX_REQS),
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_post_update(seed: int) -> None:
    state = update_state(Requests(seed, torch.int32 if seed % 2 else torch.int64))
    if seed % 3 == 0:
        state["output_bin_counts"] = None
    if seed % 4 == 0:
        state["query_start_loc"] = None
    assert_same("_post_update_kernel", input_batch.post_update, state)


@pytest.mark.parametrize("seed", SEEDS)
def test_post_update_num_computed_tokens(seed: int) -> None:
    reqs = Requests(seed, torch.int32 if seed % 2 else torch.int64)
    assert_same(
        "_post_update_num_computed_tokens_kernel",
        input_batch.post_update_num_computed_tokens,
        {
            "idx_mapping": reqs.idx_mapping,
            "num_computed_tokens": reqs.num_computed_tokens,
            "query_start_loc": reqs.query_start_loc,
        },
    )
