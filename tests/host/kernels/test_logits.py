"""Temperature, min-p, penalties, bias, bad words and grammar masks against vLLM's."""

from typing import Any

import numpy as np
import pytest
import torch
from vllm.v1.worker.gpu import structured_outputs
from vllm.v1.worker.gpu.metrics.logits import get_num_nans
from vllm.v1.worker.gpu.sample.bad_words import apply_bad_words
from vllm.v1.worker.gpu.sample.gumbel import apply_temperature
from vllm.v1.worker.gpu.sample.logit_bias import apply_logit_bias
from vllm.v1.worker.gpu.sample.min_p import apply_min_p
from vllm.v1.worker.gpu.sample.penalties import apply_penalties, bincount

from tests.host.kernels.compare import assert_equal, assert_same, run_native
from tests.host.kernels.rows import DTYPES, MAX_REQS, Rows

SEEDS = range(14)
all_dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@all_dtypes
@pytest.mark.parametrize("seed", SEEDS)
def test_temperature(seed: int, dtype: torch.dtype) -> None:
    rows = Rows(seed, dtype, special=seed % 3 == 0)
    state = {
        "logits": rows.logits,
        "expanded_idx_mapping": rows.idx_mapping,
        "temperature": rows.reals([0.0, 1.0, 0.3, 1.7]),
    }
    assert_same("_temperature_kernel", apply_temperature, state)


@all_dtypes
@pytest.mark.parametrize("seed", SEEDS)
def test_min_p(seed: int, dtype: torch.dtype) -> None:
    rows = Rows(seed, dtype, special=seed % 3 == 0)
    state = {
        "logits": rows.logits,
        "expanded_idx_mapping": rows.idx_mapping,
        "min_p": rows.reals([0.0, 0.01, 0.3, 1.0]),
    }
    assert_same("_min_p_kernel", apply_min_p, state)


def penalty_state(rows: Rows) -> dict[str, Any]:
    # Rows of one request follow each other, as with drafts.
    rows.idx_mapping[1::2] = rows.idx_mapping[: rows.num_rows - 1 : 2]
    local_pos = torch.arange(rows.num_rows, dtype=torch.int32) % 2
    num_words = -(-rows.vocab_size // 32)
    return {
        "logits": rows.logits,
        "expanded_idx_mapping": rows.idx_mapping,
        "token_ids": rows.tokens(rows.num_rows),
        "expanded_local_pos": local_pos,
        "repetition_penalty": rows.reals([1.0, 1.5, 0.7]),
        "frequency_penalty": rows.reals([0.0, 0.5, -0.5]),
        "presence_penalty": rows.reals([0.0, 0.25]),
        "prompt_bin_mask": rows.ints(-(2**31), 2**31, (MAX_REQS, num_words)),
        "output_bin_counts": rows.ints(0, 3, (MAX_REQS, rows.vocab_size)),
    }


@all_dtypes
@pytest.mark.parametrize("seed", SEEDS)
def test_penalties(seed: int, dtype: torch.dtype) -> None:
    rows = Rows(seed, dtype, special=seed % 3 == 0)
    assert_same("_penalties_kernel", apply_penalties, penalty_state(rows))


@pytest.mark.parametrize("seed", SEEDS)
def test_bincount(seed: int) -> None:
    rows = Rows(seed, vocab_size=70)
    prompt_len = rows.ints(0, 1500, MAX_REQS)
    prefill_len = prompt_len + rows.ints(0, 900, MAX_REQS)
    state = {
        "expanded_idx_mapping": rows.idx_mapping,
        "all_token_ids": rows.tokens((MAX_REQS, 2500)),
        "prompt_len": prompt_len,
        "prefill_len": prefill_len,
        "prompt_bin_mask": rows.ints(0, 99, (MAX_REQS, 3)),
        "output_bin_counts": rows.ints(0, 3, (MAX_REQS, 70)),
        "max_prefill_len": max([0, *prefill_len[rows.idx_mapping.long()].tolist()]),
    }
    assert_same("_bincount_kernel", bincount, state)


def bias_state(rows: Rows, check_all_masked_rows: bool) -> dict[str, Any]:
    def lists(width: int) -> torch.Tensor:
        return torch.stack(
            [
                torch.from_numpy(
                    rows.rng.permutation(max(width, rows.vocab_size))[:width]
                    % rows.vocab_size
                ).int()
                for _ in range(MAX_REQS)
            ]
        )

    most = min(5, rows.vocab_size)
    allowed, biased, stop = lists(most), lists(most), lists(most)
    return {
        "logits": rows.logits,
        "expanded_idx_mapping": rows.idx_mapping,
        "pos": rows.ints(0, 20, rows.num_rows, "int64"),
        "num_allowed_token_ids": rows.ints(0, most + 1, MAX_REQS)
        * rows.ints(0, 2, MAX_REQS),
        "allowed_token_ids": allowed,
        "num_logit_bias": rows.ints(0, most + 1, MAX_REQS),
        "logit_bias_token_ids": biased,
        "logit_bias": torch.from_numpy(
            rows.rng.normal(0, 5, (MAX_REQS, most)).astype("float32")
        ),
        "min_lens": rows.ints(0, 20, MAX_REQS),
        "num_stop_token_ids": rows.ints(0, most + 1, MAX_REQS),
        "restore_when_all_masked": rows.ints(0, 2, MAX_REQS),
        "stop_token_ids": stop,
        "check_all_masked_rows": check_all_masked_rows,
    }


@all_dtypes
@pytest.mark.parametrize("check_all_masked_rows", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_bias(seed: int, dtype: torch.dtype, check_all_masked_rows: bool) -> None:
    rows = Rows(seed, dtype, special=seed % 3 == 0)
    state = bias_state(rows, check_all_masked_rows)
    assert_same("_bias_kernel", apply_logit_bias, state)


@pytest.mark.parametrize("restores", [0, 1])
def test_stop_tokens_come_back_where_nothing_else_is_left(restores: int) -> None:
    rows = Rows(0, num_rows=1, vocab_size=7)
    rows.logits[0] = torch.tensor(
        [-torch.inf, 2, -torch.inf, -torch.inf, 3, 1, -torch.inf]
    )
    state = bias_state(rows, True)
    state |= {
        "num_allowed_token_ids": torch.zeros(MAX_REQS, dtype=torch.int32),
        "num_logit_bias": torch.zeros(MAX_REQS, dtype=torch.int32),
        "num_stop_token_ids": torch.full((MAX_REQS,), 4, dtype=torch.int32),
        "min_lens": torch.full((MAX_REQS,), 99, dtype=torch.int32),
        "restore_when_all_masked": torch.full((MAX_REQS,), restores, dtype=torch.int32),
        "stop_token_ids": torch.tensor([[1, 4, 5, 0, 0]] * MAX_REQS, dtype=torch.int32),
    }
    after = assert_same("_bias_kernel", apply_logit_bias, state)
    assert after["logits"].isfinite().sum() == 3 * restores


@all_dtypes
@pytest.mark.parametrize("seed", range(20))
def test_bad_words(seed: int, dtype: torch.dtype) -> None:
    rows = Rows(seed, dtype, vocab_size=4)
    rows.idx_mapping[1::2] = rows.idx_mapping[: rows.num_rows - 1 : 2]
    num_words, word_lens = 6, rows.rng.integers(1, 4, (MAX_REQS, 6))
    offsets = np.zeros((MAX_REQS, num_words + 1), dtype="int32")
    offsets[:, 1:] = np.cumsum(word_lens, axis=1)
    prompt_len = rows.ints(1, 5, MAX_REQS)
    state = {
        "logits": rows.logits,
        "expanded_idx_mapping": rows.idx_mapping,
        "bad_word_token_ids": rows.tokens((MAX_REQS, 3 * num_words)),
        "bad_word_offsets": torch.from_numpy(offsets),
        "num_bad_words": rows.ints(0, num_words + 1, MAX_REQS),
        "all_token_ids": rows.tokens((MAX_REQS, 16)),
        "prompt_len": prompt_len,
        "total_len": prompt_len + rows.ints(0, 6, MAX_REQS),
        "input_ids": rows.tokens(rows.num_rows),
        "expanded_local_pos": torch.arange(rows.num_rows, dtype=torch.int32) % 2,
        "max_num_bad_words": num_words,
    }
    assert_same("_bad_words_kernel", apply_bad_words, state)


def grammar(logits: torch.Tensor, rows: torch.Tensor, **rest: Any) -> None:
    bits = rest["bitmask"]
    structured_outputs._apply_grammar_bitmask_kernel[(len(rows), rest["num_blocks"])](
        logits,
        logits.stride(0),
        rows,
        rest["cu_num_logits"],
        bits,
        bits.stride(0),
        logits.shape[1],
        MASK_STRIDE=3,
        BLOCK_SIZE=8192,
    )


@all_dtypes
@pytest.mark.parametrize("seed", SEEDS)
def test_grammar_bitmask(seed: int, dtype: torch.dtype) -> None:
    """The interpreter cannot run this: a mask of its has a type that it refuses."""
    rows = Rows(seed, dtype, num_rows=6)
    starts = [0, 1, 4, 6]
    bits = rows.ints(-(2**31), 2**31, (6, -(-rows.vocab_size // 32)))
    # Of three requests with 1, 3 and 2 rows; some positions have none.
    mapping = [0, 1, 3, 5, 7, 8][seed % 3 :]
    ours = run_native(
        "_apply_grammar_bitmask_kernel",
        grammar,
        {
            "logits": rows.logits,
            "rows": torch.tensor(mapping, dtype=torch.int32),
            "cu_num_logits": torch.tensor(starts, dtype=torch.int32),
            "bitmask": bits,
            "num_blocks": -(-rows.vocab_size // 8192),
        },
    )
    expected = rows.logits.clone()
    for mask, entry in enumerate(mapping):
        row = starts[entry // 3] + entry % 3
        if row < starts[entry // 3 + 1]:
            flags = np.unpackbits(bits[mask].numpy().view("uint8"), bitorder="little")
            kept = torch.from_numpy(flags[: rows.vocab_size].astype(bool))
            expected[row] = expected[row].masked_fill(~kept, -torch.inf)
    assert_equal("logits", expected, ours["logits"])


@all_dtypes
@pytest.mark.parametrize("seed", SEEDS)
def test_num_nans(seed: int, dtype: torch.dtype) -> None:
    """The interpreter cannot run this: it calls a function of the device's library."""
    rows = Rows(seed, dtype, special=True)
    ours = run_native("_num_nans_kernel", get_num_nans, {"logits": rows.logits})
    assert_equal("num_nans", rows.logits.isnan().sum(dim=1).int(), ours["return"])
