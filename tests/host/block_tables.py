"""vLLM's block tables with random blocks, and without its interpreted kernels."""

import inspect
from operator import is_
from typing import Any

import numpy as np
import torch
from vllm.v1.attention.backends.utils import PAD_SLOT_ID
from vllm.v1.worker.gpu.block_table import BlockTables

from tests.host.batches import Topology
from tests.host.steps import MAX_POSITION

# Two KV cache groups, the second without context parallelism under DCP.
_BLOCK_SIZES = [16, 64]
_IS_SHARDED = [True, False]


class RandomBlockTables(BlockTables):
    """Full of random blocks; its two kernels in torch, unless ``runs_kernels``.

    The kernels run in Triton's interpreter here, for milliseconds a row. What stands in
    for them is compared with them in every sweep.
    """

    runs_kernels = False
    # What the first of two managers asked for, and the answer.
    _asked: tuple[Any, ...] = ()
    _answer: torch.Tensor

    @classmethod
    def of(cls, topology: Topology, rank: int, seed: int) -> "RandomBlockTables":
        values: dict[str, Any] = {
            "block_sizes": _BLOCK_SIZES,
            "kernel_block_sizes": _BLOCK_SIZES,
            "max_num_reqs": topology.max_num_reqs,
            "max_num_batched_tokens": topology.max_num_tokens,
            "max_num_blocks_per_group": [MAX_POSITION // size for size in _BLOCK_SIZES],
            "device": torch.device("cpu"),
            "cp_size": topology.dcp_size,
            "cp_rank": rank % topology.dcp_size,
            "cp_interleave": topology.cp_interleave,
            "dcp_sharded": _IS_SHARDED,
        }
        known = inspect.signature(BlockTables.__init__).parameters
        tables = cls(**{name: value for name, value in values.items() if name in known})
        tables.fill(np.random.default_rng(seed))
        return tables

    def fill(self, rng: np.random.Generator) -> None:
        for group, table in enumerate(self.block_tables):
            blocks = rng.integers(1, 5000, size=table.gpu.shape, dtype=np.int32)
            table.gpu.copy_(torch.from_numpy(blocks))
            most = table.gpu.shape[1] + 1
            self.num_blocks.np[group] = rng.integers(1, most, size=self.max_num_reqs)
        self.num_blocks.copy_to_uva()

    def gather_block_tables(
        self, idx_mapping: torch.Tensor, num_reqs_padded: int, **kwargs: Any
    ) -> Any:
        """Each row's blocks over what the row held before; padded rows of zeros."""
        if self.runs_kernels:
            return super().gather_block_tables(idx_mapping, num_reqs_padded, **kwargs)
        num_reqs, slots = len(idx_mapping), idx_mapping.long()
        for group, out in enumerate(kwargs["out"]):
            blocks = self.block_tables[group].gpu[slots]
            num_blocks = self.num_blocks.gpu[group][slots]
            is_block = torch.arange(blocks.shape[1]) < num_blocks[:, None]
            torch.where(is_block, blocks, out[:num_reqs], out=out[:num_reqs])
            out[num_reqs:num_reqs_padded].zero_()
        return tuple(out[:num_reqs_padded] for out in kwargs["out"])

    def compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
        **kwargs: Any,
    ) -> Any:
        """Where each token's KV goes; -1 for a token that is another rank's."""
        if self.runs_kernels:
            return super().compute_slot_mappings(
                idx_mapping, query_start_loc, positions, num_tokens_padded, **kwargs
            )
        out = kwargs["out"]
        asked = (idx_mapping, query_start_loc, positions)
        if len(self._asked) == 3 and all(map(is_, asked, self._asked)):
            return out.copy_(self._answer)[:, :num_tokens_padded]
        num_reqs = len(idx_mapping)
        lengths = query_start_loc[1 : num_reqs + 1] - query_start_loc[:num_reqs]
        slots = idx_mapping.long().repeat_interleave(lengths)
        num_tokens = len(slots)
        out[:, num_tokens:] = PAD_SLOT_ID
        for group in range(self.num_kv_cache_groups):
            out[group, :num_tokens] = self._slots(group, slots, positions[:num_tokens])
        self._asked, self._answer = asked, out
        return out[:, :num_tokens_padded]

    def _slots(
        self, group: int, slots: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        size, table = self.block_sizes[group], self.block_tables[group].gpu
        if self.cp_size == 1 or not _IS_SHARDED[group]:
            return table[slots, positions // size].long() * size + positions % size
        # Runs of `cp_interleave` tokens go round the ranks.
        turn, within = positions // self.cp_interleave, positions % self.cp_interleave
        own = turn // self.cp_size * self.cp_interleave + within
        block = table[slots, positions // (size * self.cp_size)].long()
        is_own = turn % self.cp_size == self.cp_rank
        return torch.where(is_own, block * size + own % size, PAD_SLOT_ID)
