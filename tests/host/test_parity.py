"""Our manager equals vLLM's own: any steps in a row, and a fault is found and shrunk.

Runs on the vLLM that is importable; ``test_parity_versions.py`` runs it on the others.
"""

import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyvllm_pp.host.pcp import NativePCPManager
from tests.host import compare as compare_module
from tests.host.batches import Request, Topology
from tests.host.compare import DifferenceError, compare, compare_block
from tests.host.kinds import kinds, kinds_of
from tests.host.steps import MAX_POSITION, Block, Step, random_block
from tests.host.sweep import Share, never_met, shares

lengths = st.integers(1, 200)
contexts = st.integers(1, MAX_POSITION - 250)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    pcp_size = draw(st.integers(1, 8))
    return Topology(
        pcp_size,
        dcp_size=pcp_size * draw(st.integers(1, 3)) if draw(st.booleans()) else 1,
        cp_interleave=draw(st.sampled_from([1, 4, 16])),
        moe_gathers_tokens=draw(st.booleans()),
    )


@st.composite
def decodes(draw: st.DrawFn) -> Request:
    computed, drafts = draw(contexts), draw(st.integers(0, 4))
    prefill_len = draw(st.integers(1, computed))
    rejected = draw(st.integers(0, min(4, computed - 1))) if drafts else 0
    return Request(1 + drafts, computed, prefill_len, drafts, rejected)


@st.composite
def prefills(draw: st.DrawFn) -> Request:
    computed = draw(st.one_of(st.just(0), contexts))
    scheduled = draw(st.one_of(st.integers(0, 17), lengths))
    return Request(
        scheduled, computed, computed + max(1, scheduled + draw(lengths) - 1)
    )


@st.composite
def steps(draw: st.DrawFn) -> Step:
    rows = st.one_of(
        st.lists(decodes(), min_size=1, max_size=12),
        st.lists(st.one_of(decodes(), prefills()), min_size=1, max_size=12),
    )
    requests = draw(rows.filter(lambda rows: any(row.num_scheduled for row in rows)))
    has_prefill = any(request.is_prefilling for request in requests)
    modes = ["NONE", "PIECEWISE"] + ["FULL"] * (not has_prefill)
    slots = st.lists(
        st.integers(0, 63), min_size=len(requests), max_size=len(requests), unique=True
    )
    step = Step(tuple(requests), tuple(draw(slots)), draw(st.sampled_from(modes)))
    extra = st.integers(0, 8)
    if step.cg_mode != "NONE":
        step = step._replace(extra_tokens=draw(extra), extra_reqs=draw(extra))
    # The runner orders verification first, which adaptive verification relies on.
    verifies = [request.num_drafts > 0 for request in requests]
    if any(verifies) and verifies == sorted(verifies, reverse=True):
        budgets = st.one_of(st.none(), st.integers(0, step.num_drafts))
        step = step._replace(draft_budget=draw(budgets))
    return step


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(topologies(), st.lists(steps(), min_size=1, max_size=3), st.data())
def test_any_steps_in_a_row_equal_vllms(
    topology: Topology, steps: list[Step], data: st.DataObject
) -> None:
    rank = data.draw(st.integers(0, topology.pcp_size - 1))
    difference = compare_block(Block(topology, rank, tuple(steps)))
    if difference is not None:
        raise difference.error


@pytest.mark.parametrize("pcp_size", range(1, 9))
def test_every_rank_equals_vllms(pcp_size: int) -> None:
    block = random_block(seed=pcp_size, index=0, num_steps=4)
    topology = Topology(pcp_size, dcp_size=1)
    for rank in range(pcp_size):
        difference = compare_block(block._replace(topology=topology, rank=rank))
        assert difference is None, (rank, difference)


def test_a_thousand_requests_equal_vllms() -> None:
    block = random_block(seed=0, index=15, num_steps=1)
    assert "more than 1,000 requests" in kinds(block, 0, is_rank_idle=False)
    assert compare_block(block) is None


def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours with a fault: no write mask for a decode behind a row without tokens."""
    original = NativePCPManager.partition_batch

    def partition_batch(self: Any, batch: Any, descriptor: Any) -> Any:
        local = original(self, batch, descriptor)
        if (batch.num_scheduled_tokens == 0).any() and not batch.has_prefill:
            mask = self._gathered_kv_write_mask
            self._gathered_kv_write_mask = mask.new_zeros(mask.shape)
        return local

    monkeypatch.setattr(NativePCPManager, "partition_batch", partition_batch)


def test_a_fault_is_found_and_shrunk(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken(monkeypatch)
    with pytest.raises(DifferenceError) as caught:
        compare(20_000, seed=3)
    text = str(caught.value)
    found = re.search(r"seed 3, block (\d+), step (\d+): AssertionError: _gath", text)
    assert found is not None, text
    # The smallest batch of that fault: one row with a token and one without.
    assert text.count("Step(") == 1
    assert text.count("Request(") == 2
    assert text.count("num_scheduled=0") == 1
    assert text.count("num_scheduled=1") == 1

    # The same seed and block alone show it again, and the process says so.
    with pytest.raises(SystemExit, match=r"error: vLLM .* seed 3"):
        compare_module.main(batches=20, seed=3, first=int(found[1]))
    assert capsys.readouterr().out == ""


def test_a_process_prints_its_counts(capsys: pytest.CaptureFixture[str]) -> None:
    compare_module.main(batches=30, seed=1)
    counts = json.loads(capsys.readouterr().out)
    assert counts["batches"] == 30
    assert sum(counts.get(f"PCP {size}", 0) for size in range(1, 9)) == 30


def test_shares_are_even_whole_and_apart() -> None:
    given = list(shares(1_000_000, ["0.31", "0.32", "0.33"]))
    assert sum(share.num_batches for share in given) == 1_000_000
    by_minor = {
        minor: sum(s.num_batches for s in given if s.minor == minor)
        for minor in ("0.31", "0.32", "0.33")
    }
    assert max(by_minor.values()) - min(by_minor.values()) <= 1
    # A block has a step or more, so these ranges of blocks do not meet.
    ends = [0, *(share.first + share.num_batches for share in given)]
    assert [share.first for share in given] == ends[:-1]
    assert list(shares(2, ["0.31", "0.32"])) == [
        Share("0.31", 1, 0),
        Share("0.32", 1, 1),
    ]


def test_a_kind_that_was_never_met_is_named() -> None:
    counts = dict.fromkeys(kinds_of("0.32"), 1)
    del counts["mixed"]
    met: Any = {
        "0.31": dict.fromkeys(kinds_of("0.31"), 1),
        "0.32": counts | {"mixed": 0},
    }
    assert never_met(met) == ["0.32: mixed"]
