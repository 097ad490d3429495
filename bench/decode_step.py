"""A decode step's host work around the forward, with vLLM's own classes on the CPU."""

# Patches torch for CPU; vLLM's runner modules must come after it.
import vllm.v1.worker.cpu.shm  # noqa: F401  # isort: skip

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.worker.gpu.block_table import BlockTables
from vllm.v1.worker.gpu.input_batch import (
    InputBuffers,
    combine_sampled_and_draft_tokens,
    post_update,
    prepare_pos_seq_lens,
)
from vllm.v1.worker.gpu.sample.sampler import Sampler
from vllm.v1.worker.gpu.states import RequestState

from tests.host.batches import Request, global_batch

CPU = torch.device("cpu")
_MAX_MODEL_LEN, _BLOCK_SIZE, _NUM_PROMPT = 256, 16, 40


class DecodeSteps:
    """Requests that decode, a token a step each, and the logits of every step.

    A request's tokens are a function of the kernels alone, whatever the others do.
    """

    def __init__(self, num_reqs: int, vocab_size: int, **sampling: Any) -> None:
        self.num_reqs = num_reqs
        self.states = RequestState(
            num_reqs, _MAX_MODEL_LEN, _MAX_MODEL_LEN * num_reqs, 1, vocab_size, CPU
        )
        self.tables = BlockTables(
            block_sizes=[_BLOCK_SIZE],
            max_num_reqs=num_reqs,
            max_num_batched_tokens=_MAX_MODEL_LEN,
            max_num_blocks_per_group=[_MAX_MODEL_LEN // _BLOCK_SIZE],
            device=CPU,
        )
        self.buffers = InputBuffers(num_reqs, _MAX_MODEL_LEN, CPU)
        config: Any = SimpleNamespace(reasoning_config=None, speculative_config=None)
        self.sampler = Sampler(config, num_reqs, vocab_size, CPU, self.states)
        self.logits = torch.empty(num_reqs, vocab_size)
        for slot in range(num_reqs):
            self._add_request(slot, vocab_size, sampling)
        self.states.apply_staged_writes()
        self.tables.apply_staged_writes()
        self.sampler.apply_staged_writes()
        requests = [Request(1, _NUM_PROMPT, _NUM_PROMPT)] * num_reqs
        self.batch = global_batch(
            np.random.default_rng(0), requests, slots=range(num_reqs)
        )

    def _add_request(self, slot: int, vocab_size: int, sampling: Any) -> None:
        rng = np.random.default_rng(slot)
        self.logits[slot] = torch.from_numpy(rng.normal(0, 3, vocab_size))
        # The last free slot is the one that is taken.
        self.states.free_indices.remove(slot)
        self.states.free_indices.append(slot)
        prompt = rng.integers(0, vocab_size, _NUM_PROMPT).tolist()
        self.states.add_request(
            f"request-{slot}", _NUM_PROMPT, prompt, _NUM_PROMPT - 1, 100
        )
        blocks = rng.integers(1, 9999, 3).tolist()
        self.tables.append_block_ids(slot, (blocks,), overwrite=True)
        seed = {} if sampling["temperature"] == 0 else {"seed": slot}
        self.sampler.add_request(slot, SamplingParams(**sampling, **seed))

    def run(self, step: int) -> torch.Tensor:
        """Input preparation, sampling and the update of one step.

        Returns:
            ``[num_reqs]`` sampled tokens.
        """
        self._prepare(step)
        output = self.sampler(self.logits, self.batch)
        post_update(
            self.batch.idx_mapping,
            self.states.num_computed_tokens.gpu,
            self.states.last_sampled_tokens,
            self.sampler.penalties_state.output_bin_counts,
            output.sampled_token_ids,
            output.num_sampled,
            output.num_rejected,
            self.batch.query_start_loc,
            self.states.all_token_ids.gpu,
            self.states.total_len.gpu,
        )
        return output.sampled_token_ids.view(-1)

    def _prepare(self, step: int) -> None:
        # In the mean one request in sixteen fills a block.
        for slot in range(step % _BLOCK_SIZE, self.num_reqs, _BLOCK_SIZE):
            self.tables.append_block_ids(slot, ([slot + 7],), overwrite=False)
        self.tables.apply_staged_writes()
        batch, buffers, states = self.batch, self.buffers, self.states
        prepare_pos_seq_lens(
            batch.idx_mapping,
            batch.query_start_loc,
            states.num_computed_tokens.gpu,
            buffers.positions,
            buffers.seq_lens,
        )
        batch.positions = buffers.positions[: self.num_reqs]
        batch.input_ids = buffers.input_ids[: self.num_reqs]
        batch.logits_indices = combine_sampled_and_draft_tokens(
            buffers.input_ids,
            batch.idx_mapping,
            states.last_sampled_tokens,
            batch.query_start_loc,
            buffers.seq_lens,
            states.prefill_len.gpu,
            states.draft_tokens,
            batch.cu_num_logits,
            self.num_reqs,
        )
        self.tables.gather_block_tables(batch.idx_mapping, self.num_reqs)
        self.tables.compute_slot_mappings(
            batch.idx_mapping, batch.query_start_loc, batch.positions, self.num_reqs
        )
