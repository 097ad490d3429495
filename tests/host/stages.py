"""PP2 x PCP2 in four real processes over gloo: what each of them does.

Run as ``python -m tests.host.stages RANK INIT_FILE [ENDING]``: all scenarios, or one
ending, after which the group is no more. The model is a stand-in (a row's hidden state
is its token's position); the groups, the collectives, the manager and the handler are
the real ones.
"""

# Patches torch for CPU; vLLM's runner modules must come after it.
import vllm.v1.worker.cpu.shm  # noqa: F401  # isort: skip

import inspect
import os
import sys
from typing import Any

import numpy as np
import pytest
import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed.parallel_state import (
    get_pcp_group,
    get_pp_group,
    init_distributed_environment,
    initialize_model_parallel,
)
from vllm.v1.worker.gpu.pp_utils import PPHandler

from pyvllm_pp.errors import FeedbackOrderError
from pyvllm_pp.feedback import EntryState
from pyvllm_pp.host.pcp import NativePCPManager
from pyvllm_pp.host.pp import FeedbackHandler
from pyvllm_pp.host.settings import Settings
from tests.host.batches import Request, Topology, global_batch
from tests.host.parity import NO_GRAPH, make_manager

PP_SIZE, PCP_SIZE, MAX_REQS, MAX_TOKENS = 2, 2, 16, 256
# Since 0.33 the caller says whether drafts come too.
_RECEIVE = inspect.signature(PPHandler.receive).parameters
WITHOUT_DRAFTS = (False,) if "recv_drafts" in _RECEIVE else ()


def token_of(step: int, slot: int) -> int:
    """The token that the last stage samples for a slot at a step."""
    return 1000 * step + slot


def requests_of(step: int) -> list[Request]:
    """Decodes, a short prompt, a chunk in the middle of one, a row without tokens."""
    return [
        Request(1, 20 + step, 10),
        Request(7, 0, 7),
        Request(30, 30 * step, 1000),
        Request(0, 5, 9),
        Request(1, 11 + step, 11),
    ][: 3 + step % 3]


class Stage:
    """One process: its manager, its handler, and its requests' tokens."""

    def __init__(self) -> None:
        device = torch.device("cpu")
        self.is_last = get_pp_group().is_last_rank
        self.manager: Any = make_manager(
            NativePCPManager.configured(Settings(), PP_SIZE),
            Topology(PCP_SIZE, max_num_reqs=MAX_REQS, max_num_tokens=MAX_TOKENS),
            get_pcp_group().rank_in_group,
        )
        self.handler = FeedbackHandler.adopt(PPHandler(MAX_REQS, 0, device), MAX_REQS)
        self.received: dict[int, dict[int, int]] = {}

    def step(self, step: int, permute: bool = False) -> None:
        """Consume, partition, "forward", then sample or post the receive."""
        outputs = self.handler.get_prev_sampled_outputs()
        if outputs is not None:
            self._take(step, outputs)
        batch = self._batch(step, permute)
        local = self.manager.partition_batch(batch, NO_GRAPH)
        if not self.is_last:
            assert local is not self.manager.global_batch
            self.handler.receive(self.manager.global_batch, *WITHOUT_DRAFTS)
            return
        hidden = local.positions.float().unsqueeze(1) * 3
        restored, _, restored_batch = self.manager.restore_for_sampling(hidden, None)
        assert restored_batch is batch
        assert torch.equal(restored, batch.positions.float().unsqueeze(1) * 3)
        slots = batch.idx_mapping
        tokens = (1000 * step + slots).unsqueeze(1)
        counts = torch.ones(batch.num_reqs, dtype=torch.int32)
        self.handler.broadcast(tokens, counts, counts - 1, batch)

    def _batch(self, step: int, permute: bool) -> Any:
        requests = requests_of(step)
        batch = global_batch(np.random.default_rng(step), requests)
        # Slots are the rows of a fixed permutation, as free slots are handed out.
        slots = np.array([3, 0, 7, 9, 5], dtype=np.intp)[: len(requests)]
        if permute:
            slots = np.roll(slots, 1)
        batch.idx_mapping_np = slots
        batch.idx_mapping = torch.from_numpy(slots.copy())
        batch.max_seq_len_np = batch.prefill_len_np + 1000
        return batch

    def _take(self, step: int, outputs: dict[str, torch.Tensor]) -> None:
        slots = outputs["idx_mapping"].tolist()
        tokens = outputs["sampled_tokens"][:, 0].tolist()
        assert outputs["num_sampled"].tolist() == [1] * len(slots)
        assert outputs["num_rejected"].tolist() == [0] * len(slots)
        self.received[step] = {
            slot: token for slot, token in zip(slots, tokens, strict=True) if slot >= 0
        }


def feedback_reaches_requests(stage: Stage) -> None:
    """Tokens of step T arrive at T + pp_size, at the global requests that need them."""
    for step in range(8):
        stage.step(step)
    if stage.is_last:
        return
    for step in range(2, 8):
        sent = step - PP_SIZE
        rows = requests_of(sent)
        slots = [3, 0, 7, 9, 5][: len(rows)]
        expected = {
            slot: token_of(sent, slot)
            for slot, row in zip(slots, rows, strict=True)
            if row.num_computed + row.num_scheduled >= row.prefill_len
        }
        assert stage.received[step] == expected, (step, stage.received[step], expected)
    assert stage.handler.num_received == 8


def freed_slot_is_left_out(stage: Stage) -> None:
    """A request ends while its token is in flight, and its slot is taken again."""
    for step in range(2):
        stage.step(step)
    stage.handler.on_req_idx_freed(3)
    for step in range(2, 5):
        stage.step(step)
    if not stage.is_last:
        assert stage.received[2] == {0: token_of(0, 0)}
        assert stage.received[3] == {0: token_of(1, 0)}
        assert stage.received[4][3] == token_of(2, 3)


def aborted_requests_leave_nothing_waiting(stage: Stage) -> None:
    """All requests end while their tokens are in flight; other steps go on."""
    for step in range(2):
        stage.step(step)
    for slot in range(MAX_REQS):
        stage.handler.on_req_idx_freed(slot)
    for step in range(2, 6):
        stage.step(step)
    if not stage.is_last:
        assert sorted(stage.received) == [4, 5]
        states = [stage.handler.ring.state(step) for step in range(6)]
        assert states == [EntryState.empty] * 4 + [EntryState.posted] * 2


def permuted_requests_are_caught(stage: Stage) -> None:
    """One stage orders its requests differently: an error, not a wrong token."""
    expect_feedback_error(stage, "permuted_requests_are_caught", permute=True)


def swapped_steps_are_caught(stage: Stage) -> None:
    """The last stage sends a step's feedback as another's."""
    if stage.is_last:
        stage.handler.ring.begin_step()
    expect_feedback_error(stage, "swapped_steps_are_caught", permute=False)


def expect_feedback_error(stage: Stage, name: str, *, permute: bool) -> None:
    def run() -> None:
        for step in range(3):
            stage.step(step, permute=permute and not stage.is_last)

    if stage.is_last:
        run()
        return
    with pytest.raises(FeedbackOrderError, match="expected step 0") as caught:
        run()
    print(f"{name} caught: {caught.value}")


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        feedback_reaches_requests,
        freed_slot_is_left_out,
        aborted_requests_leave_nothing_waiting,
        permuted_requests_are_caught,
        swapped_steps_are_caught,
    )
}


def shutdown_leaves_no_wait(stage: Stage) -> None:
    """An earlier stage has posted a receive that nothing will be sent for."""
    for step in range(2 if stage.is_last else 3):
        stage.step(step)
    stage.handler.close()
    states = [stage.handler.ring.state(step) for step in range(3)]
    assert set(states) == {EntryState.empty}


def lost_stage_ends_the_wait(stage: Stage) -> None:
    """The last stage dies before it sends: an error where its tokens are needed."""
    if stage.is_last:
        os._exit(1)
    stage.step(0)
    stage.step(1)
    with pytest.raises(RuntimeError, match=r"[Cc]onnection"):
        stage.step(2)


ENDINGS = {
    ending.__name__: ending
    for ending in (shutdown_leaves_no_wait, lost_stage_ends_the_wait)
}


def main() -> None:
    rank, init_file = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(4, rank, f"file://{init_file}", rank, "gloo")
        initialize_model_parallel(
            pipeline_model_parallel_size=PP_SIZE,
            prefill_context_model_parallel_size=PCP_SIZE,
        )
        if len(sys.argv) > 3:
            ENDINGS[sys.argv[3]](Stage())
            print(f"{sys.argv[3]}: done", flush=True)
            return
        for name, scenario in SCENARIOS.items():
            stage = Stage()
            scenario(stage)
            stage.handler.close()
            torch.distributed.barrier()
            print(f"{name}: done", flush=True)


if __name__ == "__main__":
    main()
