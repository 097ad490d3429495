"""Restore for sampling: which rows travel, and that they are the right ones."""

from typing import Any

import numpy as np
import pytest
import torch

from pyvllm_pp.host.pcp import NativePCPManager
from pyvllm_pp.host.restore import Readers, SampledRows
from pyvllm_pp.host.settings import Settings
from tests.host import versions
from tests.host.batches import Request, Topology, global_batch
from tests.host.parity import NO_GRAPH, make_manager
from tests.host.restore_ranks import STEPS, nothing_else_reads, run

HIDDEN = 128
DECODES_ALONE = ["63 decodes", "1 decode"]


@pytest.fixture(scope="module", params=[2, 4])
def ranks(request: pytest.FixtureRequest) -> list[Any]:
    return run(request.param, HIDDEN)


@pytest.mark.parametrize("name", [step.name for step in STEPS])
def test_sampled_rows_are_bit_equal_and_never_cost_more(
    name: str, ranks: list[Any]
) -> None:
    for rank in ranks:
        step = rank[name]
        assert step["bit_equal"]
        assert step["selected"]["rows"] <= step["dense"]["rows"]
        assert step["selected"]["num_bytes"] <= step["dense"]["num_bytes"]
        # All ranks see the same rows come.
        assert step["selected"]["rows"] == ranks[0][name]["selected"]["rows"]


def test_four_prompts_move_four_rows(ranks: list[Any]) -> None:
    for rank in ranks:
        step = rank["4 prompts of 512"]
        assert step["dense"] == {
            "calls": 1,
            "rows": 2048,
            "num_bytes": 2048 * HIDDEN * 2,
        }
        assert step["selected"] == {"calls": 1, "rows": 4, "num_bytes": 4 * HIDDEN * 2}


def test_decodes_alone_are_gathered_as_ever(ranks: list[Any]) -> None:
    for rank in ranks:
        for name in DECODES_ALONE:
            assert rank[name]["selected"] == rank[name]["dense"]
        padded = rank["3 decodes in a graph of 8"]
        assert padded["selected"]["rows"] == 3
        assert padded["dense"]["rows"] == 8 * len(ranks)


def sampled_rows(num_reqs: int = 3) -> tuple[SampledRows, Any]:
    batch = global_batch(np.random.default_rng(0), [Request(5, 0, 5)] * num_reqs)
    return SampledRows(torch.arange(2.0 * num_reqs).view(num_reqs, 2), batch), batch


@pytest.mark.parametrize(
    "index", [slice(None), 0, torch.tensor([0]), slice(0, 3), None, (0, 1)]
)
def test_rows_that_were_not_restored_cannot_be_read(index: Any) -> None:
    rows, _ = sampled_rows()
    with pytest.raises(TypeError, match="expected the 3 logits_indices of the batch"):
        rows[index]


def test_a_reader_that_wants_a_tensor_fails() -> None:
    rows: Any
    rows, _ = sampled_rows()
    with pytest.raises(AttributeError):
        _ = rows.shape
    with pytest.raises(TypeError):
        torch.nn.functional.linear(rows, torch.ones(2, 2))


def manager_of(readers: Readers | None, settings: Settings | None = None) -> Any:
    cls = NativePCPManager.configured(settings or Settings(), 2, readers)
    return make_manager(cls, Topology(2), 0)


def is_dense(manager: Any, batch: Any, aux: Any = None) -> bool:
    """Whether a step is restored whole, with the collective left out."""
    manager.partition_batch(batch, NO_GRAPH)
    before = manager.restore_counts.dense_steps
    with pytest.raises(AssertionError, match="not initialized"):
        manager.restore_for_sampling(torch.zeros(len(batch.input_ids), 4), aux)
    return bool(manager.restore_counts.dense_steps > before)


def prompts() -> Any:
    return global_batch(
        np.random.default_rng(1), [Request(40, 0, 40), Request(1, 9, 4)]
    )


def test_selected_is_the_default_and_needs_no_more_than_sampling() -> None:
    assert not is_dense(manager_of(nothing_else_reads()), prompts())
    assert is_dense(
        manager_of(nothing_else_reads(), Settings(restore="dense")), prompts()
    )
    assert is_dense(manager_of(None), prompts())


def test_auxiliary_states_are_restored_whole() -> None:
    aux = [torch.zeros(22, 4)]
    assert is_dense(manager_of(nothing_else_reads()), prompts(), aux)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("speculator", object()),
        ("num_speculative_steps", 1),
        ("use_aux_hidden_state_outputs", True),
        ("is_pooling_model", True),
    ],
)
def test_runs_that_read_more_are_dense(name: str, value: Any) -> None:
    readers = nothing_else_reads()
    setattr(readers._runner, name, value)
    assert is_dense(manager_of(readers), prompts())


def test_more_logits_than_requests_are_dense() -> None:
    batch = prompts()
    batch.cu_num_logits_np = np.array([0, 1, 3], dtype=np.int32)
    assert is_dense(manager_of(nothing_else_reads()), batch)


def prompt_logprobs(batch: Any, row: int) -> Readers:
    readers = nothing_else_reads()
    wanted = readers._runner.prompt_logprobs_worker.uses_prompt_logprobs
    wanted[batch.idx_mapping_np[row]] = True
    return readers


def test_prompt_logprobs_are_dense_until_the_prompt_is_done() -> None:
    """C12: and only in the steps that have a part of that prompt."""
    batch = prompts()
    assert is_dense(manager_of(prompt_logprobs(batch, row=0)), batch)
    assert not is_dense(manager_of(prompt_logprobs(batch, row=1)), batch)


def test_scores_of_given_prompt_tokens_are_dense() -> None:
    batch = prompts()
    readers = nothing_else_reads()
    scores = readers._runner.prompt_logprobs_worker.token_id_scores
    scores["some other request"] = object()
    assert not is_dense(manager_of(readers), batch)
    scores[batch.req_ids[0]] = object()
    assert is_dense(manager_of(readers), batch)


@pytest.mark.parametrize("minor", [pin.minor for pin in versions.pins()])
def test_other_versions_restore_the_same(minor: str) -> None:
    """Their own managers and groups; the names that decide are looked up there too."""
    env = versions.environment(versions.folder_of(minor))
    for rank in run(2, HIDDEN, env):
        assert all(step["bit_equal"] for step in rank.values())
        assert rank["4 prompts of 512"]["selected"]["rows"] == 4
