"""Top-k and top-p by definition: the interpreter cannot run vLLM's kernels."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch

from pyvllm_pp.host.cpu.kernels.top_k_top_p import apply_top_k_top_p
from tests.host.kernels.compare import assert_equal
from tests.host.kernels.rows import VOCAB_SIZES, Rows


def kept(row: np.ndarray, top_k: int, top_p: float) -> list[int]:
    """Tokens that stay, by sorting: greater logits first, of equal ones the first."""
    order = [t for t in np.lexsort((np.arange(row.size), -row)) if row[t] > -np.inf]
    order = order[:top_k]
    if top_p >= 1 or not order:
        return sorted(order)
    weights = np.exp(row[order].astype("float64") - float(row[order[0]]))
    mass = np.cumsum(weights) / weights.sum()
    # Float noise decides where the sum meets the limit exactly.
    assert np.abs(mass - np.float32(top_p)).min() > 1e-9 or len(set(weights)) == 1
    return sorted(order[: int(np.searchsorted(mass, np.float32(top_p))) + 1])


def check(rows: Rows, top_k: torch.Tensor | None, top_p: torch.Tensor | None) -> None:
    before = rows.logits.clone()
    after = apply_top_k_top_p(rows.logits, top_k, top_p)
    assert after is rows.logits
    for i in range(rows.num_rows):
        k = rows.vocab_size if top_k is None else int(top_k[i])
        p = 1.0 if top_p is None else float(top_p[i])
        expected = torch.full_like(before[i], -torch.inf)
        tokens = kept(before[i].numpy(), k, p)
        expected[tokens] = before[i, tokens]
        assert_equal(f"row {i}", expected, after[i])


@pytest.mark.parametrize("which", ["k", "p", "k and p"])
@pytest.mark.parametrize("seed", range(28))
def test_what_stays(seed: int, which: str) -> None:
    rows = Rows(seed)
    if seed % 5 == 4:
        rows.logits[:, ::2] = -torch.inf
    dtype = "int64" if seed % 3 else "int32"
    top_k = rows.ints(1, rows.vocab_size + 1, rows.num_rows, dtype)
    if seed % 2:
        top_k = top_k.clamp(max=5)
    top_p = torch.from_numpy(rows.rng.random(rows.num_rows).astype("float32"))
    if seed % 4 == 3:
        top_p[:] = 0.999
    check(rows, top_k if "k" in which else None, top_p if "p" in which else None)


@settings(max_examples=200, deadline=None)
@given(
    logits=st.lists(st.integers(-8, 8) | st.just(-np.inf), min_size=1, max_size=70),
    top_k=st.integers(1, 70),
    top_p=st.floats(0, 1, width=32),
)
def test_equal_logits_stay_from_the_first_on(
    logits: list[float], top_k: int, top_p: float
) -> None:
    rows = Rows(0, num_rows=1, vocab_size=len(logits))
    rows.logits[0] = torch.tensor(logits)
    check_k = torch.tensor([min(top_k, len(logits))])
    limit = torch.tensor([top_p], dtype=torch.float32)
    before = rows.logits.clone()[0]
    after = apply_top_k_top_p(rows.logits, check_k, limit)[0]
    stays = (after > -torch.inf).nonzero().flatten().tolist()
    assert torch.equal(after[stays], before[stays])
    order = sorted(
        (t for t in range(len(logits)) if logits[t] > -np.inf),
        key=lambda t: (-logits[t], t),
    )
    # Some first ones of the order; how many is the other test's.
    assert stays == sorted(order[: len(stays)])
    assert bool(order) == bool(stays)
    assert len(stays) <= int(check_k)
    weights = np.exp(np.array([logits[t] for t in order[: int(check_k)]]))
    if stays and top_p < 1:
        mass = weights / weights.sum()
        assert mass[: len(stays)].sum() >= top_p - 1e-6
        assert mass[: len(stays) - 1].sum() < top_p + 1e-6


@pytest.mark.parametrize("vocab_size", VOCAB_SIZES)
@pytest.mark.parametrize("seed", range(4))
def test_equals_vllms_own_for_torch(seed: int, vocab_size: int) -> None:
    rows = Rows(seed, num_rows=5, vocab_size=vocab_size)
    top_k = rows.ints(1, vocab_size + 1, 5)
    top_p = torch.tensor([0.1, 0.5, 0.9, 0.99, 1.0])
    expected = apply_top_k_top_p_pytorch(rows.logits.clone(), top_k.clone(), top_p)
    assert_equal("logits", expected, apply_top_k_top_p(rows.logits, top_k, top_p))


def test_special_rows() -> None:
    inf, nan = torch.inf, torch.nan
    logits = torch.tensor(
        [
            [-inf, -inf, -inf, -inf],  # nothing to choose from
            [1.0, nan, 3.0, 2.0],
            [1.0, inf, 3.0, inf],
            [nan, nan, nan, nan],
            [0.0, -0.0, 0.0, -1.0],
        ]
    )
    top_k, top_p = torch.full((5,), 2), torch.full((5,), 0.5)
    after = apply_top_k_top_p(logits.clone(), top_k, None)
    assert_equal("k", after[0], logits[0])
    assert_equal(
        "k", after[1:3], torch.tensor([[-inf, -inf, 3, 2], [-inf, inf, -inf, inf]])
    )
    assert_equal("k", after[3], logits[3])
    assert_equal("k", after[4], torch.tensor([0.0, -0.0, -inf, -inf]))
    after = apply_top_k_top_p(logits.clone(), None, top_p)
    assert_equal("p", after[0], logits[0])
    assert_equal("p", after[1], torch.tensor([-inf, -inf, 3, -inf]))
    # With infinite logits there are no probabilities to limit.
    assert_equal("p", after[2:4], logits[2:4])


def test_memory_and_arguments() -> None:
    logits = torch.randn(6, 4).t()
    after = apply_top_k_top_p(logits, torch.full((4,), 2), None)
    assert after.is_contiguous()
    assert ((after > -torch.inf).sum(dim=1) == 2).all()
    masked = apply_top_k_top_p(torch.randn(2, 5), torch.ones(2).int(), None, -1e9)
    assert ((masked == -1e9).sum(dim=1) == 4).all()
    empty = torch.empty(0, 5)
    assert apply_top_k_top_p(empty, torch.empty(0, dtype=torch.int32), None) is empty
    with pytest.raises(TypeError, match="logits is float64, expected float32"):
        apply_top_k_top_p(torch.randn(2, 5).double(), torch.ones(2).int(), None)
    with pytest.raises(ValueError, match=r"k\[1\] is 0, expected 1 or more"):
        apply_top_k_top_p(torch.randn(2, 5), torch.tensor([1, 0]), None)
    with pytest.raises(ValueError, match="of k, which has 1"):
        apply_top_k_top_p(torch.randn(2, 5), torch.tensor([1]), None)
