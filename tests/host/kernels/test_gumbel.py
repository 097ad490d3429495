"""Random and greedy sampling: the tokens of vLLM's kernel, draw by draw."""

from typing import Any

import pytest
import torch
from vllm.v1.worker.gpu.sample import gumbel

from tests.host.kernels.compare import (
    assert_equal,
    assert_same,
    both,
    native_kernels,
    run_native,
)
from tests.host.kernels.rows import DTYPES, MAX_REQS, Rows

SEEDS = range(14)
KERNEL = "_gumbel_sample_kernel"


def draw_state(rows: Rows) -> dict[str, Any]:
    limit = 2**63 - 1
    return {
        "logits": rows.logits,
        "expanded_idx_mapping": rows.idx_mapping,
        "temperature": rows.reals([0.0, 1.0, 0.5]),
        "seed": rows.ints(-limit, limit, MAX_REQS, "int64"),
        "pos": rows.ints(0, 2**31 - 1, rows.num_rows, "int64"),
        "apply_temperature": True,
        "is_drafting": False,
    }


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("seed", SEEDS)
def test_tokens(seed: int, dtype: torch.dtype) -> None:
    state = draw_state(Rows(seed, dtype))
    state["is_drafting"] = seed % 3 == 1
    state["apply_temperature"] = seed % 3 == 2
    assert_same(KERNEL, gumbel.gumbel_sample, state)


@pytest.mark.parametrize("seed", SEEDS)
def test_tokens_in_float64(seed: int) -> None:
    state = draw_state(Rows(seed)) | {"use_fp64": True}
    assert_same(KERNEL, gumbel.gumbel_sample, state)


@pytest.mark.parametrize("seed", range(30))
def test_a_thousand_draws_of_each_seed(seed: int) -> None:
    """Also what none of a few draws shows: noise in its tails, ties, masked tokens."""
    rows = Rows(seed, num_rows=30, vocab_size=1024)
    rows.idx_mapping = torch.zeros(30, dtype=torch.int64)
    rows.logits[:, ::3] = -torch.inf
    rows.logits[:, 1::3] = 2.0
    state = draw_state(rows) | {"temperature": torch.ones(MAX_REQS)}
    state["pos"] = torch.arange(30) + 30 * seed
    assert_same(KERNEL, gumbel.gumbel_sample, state)


def local(rows: Rows, state: dict[str, Any]) -> dict[str, Any]:
    """The kernel's own outputs: the best token of each block and its noised logit."""
    num_blocks = -(-rows.vocab_size // 1024)
    best = torch.full((rows.num_rows, num_blocks + 1), -7, dtype=torch.int64)
    value = torch.full((rows.num_rows, num_blocks + 2), -7.0)
    gumbel._gumbel_sample_kernel[(rows.num_rows, num_blocks)](
        best,
        best.stride(0),
        value,
        value.stride(0),
        *(None, 0, 0, None, None, 0),
        state["logits"],
        state["logits"].stride(0),
        state["expanded_idx_mapping"],
        state["seed"],
        state["pos"],
        state["temperature"],
        rows.vocab_size,
        BLOCK_SIZE=1024,
        IS_DRAFTING=False,
        APPLY_TEMPERATURE=True,
        USE_FP64=False,
        PER_TOKEN_COL=False,
    )
    return {"best": best, "value": value}


@pytest.mark.parametrize("seed", SEEDS)
def test_noised_logits(seed: int) -> None:
    rows = Rows(seed)
    rows.idx_mapping[seed % 3 :: 3] = -1
    state = draw_state(rows)
    stock = local(rows, state)
    with native_kernels() as launched:
        ours = local(rows, state)
    assert launched == {KERNEL}
    assert_equal("best", stock["best"], ours["best"])
    # Logarithms differ in the last bits.
    torch.testing.assert_close(ours["value"], stock["value"], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nan_loses_and_infinity_wins(temperature: float) -> None:
    rows = Rows(0, num_rows=5, vocab_size=1500)
    rows.logits[0, 7:] = torch.nan
    rows.logits[1] = -torch.inf
    rows.logits[1, 1200] = 0
    rows.logits[2, 1400:1450] = torch.inf
    rows.logits[3] = -torch.inf
    rows.logits[4, :1024] = torch.nan
    # The interpreter cannot reduce a block of nothing but NaN: one other is left.
    rows.logits[0, 1030] = rows.logits[4, 5] = -50
    state = draw_state(rows) | {"temperature": torch.full((MAX_REQS,), temperature)}
    stock, ours = both(KERNEL, gumbel.gumbel_sample, state)
    assert_equal("tokens", stock["return"], ours["return"])
    assert ours["return"][1:4].tolist() == [1200, 1400, 0]


def test_a_row_of_nothing_but_nan_gives_a_token() -> None:
    rows = Rows(0, num_rows=1, vocab_size=1500)
    rows.logits[:] = torch.nan
    with native_kernels():
        assert 0 <= gumbel.gumbel_sample(**draw_state(rows)).item() < 1500


@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_raw_logits_are_kept(dtype: torch.dtype, per_token: bool) -> None:
    """The interpreter cannot run this: a mask of its has a type that it refuses."""
    rows = Rows(3, dtype, num_rows=6, vocab_size=1100)
    rows.idx_mapping[2] = -1
    column = rows.ints(0, 4, 6) if per_token else torch.tensor(2)
    raw = rows.logits * 2
    state = draw_state(rows) | {"is_drafting": True}
    cached = state | {
        "logits_cache": torch.full((MAX_REQS, 4, 1105), -7.0, dtype=dtype),
        "logits_cache_col": column,
        "logits_cache_source": raw,
    }
    expected = cached["logits_cache"].clone()
    for row, slot in enumerate(rows.idx_mapping.tolist()):
        if slot >= 0:
            expected[slot, column.expand(6)[row], :1100] = raw[row]
    after = run_native(KERNEL, gumbel.gumbel_sample, cached)
    assert_equal("cache", expected, after["logits_cache"])
    without = run_native(KERNEL, gumbel.gumbel_sample, state)
    assert_equal("tokens", without["return"], after["return"])
