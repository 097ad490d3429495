"""Block tables, staged writes and slot mappings against vLLM's kernels."""

from typing import Any

import numpy as np
import pytest
import torch
from vllm.v1.worker.gpu.block_table import BlockTables
from vllm.v1.worker.gpu.buffer_utils import StagedWriteTensor
from vllm.v1.worker.gpu.cp_utils import prepare_dcp_local_seq_lens

from tests.host.kernels.compare import assert_equal, native_kernels

CPU = torch.device("cpu")
SEEDS = range(10)
MAX_REQS, MAX_TOKENS = 12, 400


def staged(seed: int, dtype: torch.dtype, size: int | tuple[int, int]) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    tensor = StagedWriteTensor(size, dtype=dtype, device=CPU)
    if isinstance(size, int):
        for row in range(0, size, 2):
            tensor.stage_write_elem(row, int(rng.integers(100)))
    else:
        for _ in range(seed % 5):
            start = int(rng.integers(size[1]))
            count = int(rng.integers(size[1] - start + 1))
            row = int(rng.integers(size[0]))
            tensor.stage_write(row, start, rng.integers(0, 99, count).tolist())
    tensor.apply_write()
    return tensor.gpu


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32])
@pytest.mark.parametrize("size", [(5, 1500), (3, 4), 7])
def test_staged_writes(seed: int, dtype: torch.dtype, size: Any) -> None:
    expected = staged(seed, dtype, size)
    with native_kernels() as launched:
        actual = staged(seed, dtype, size)
    assert_equal("gpu", expected, actual)
    assert (expected.any()) == ("_apply_write_kernel" in launched and actual.any())


class Tables:
    """Tables with random blocks, and a batch of their requests."""

    def __init__(self, seed: int, num_groups: int, **cp: Any) -> None:
        rng = np.random.default_rng(seed)
        self.num_reqs = int(rng.integers(0, MAX_REQS - 2))
        block_sizes = [16, 128, 1][:num_groups]
        num_blocks = [-(-300 // size) for size in block_sizes]
        enabled = [True, False, True][:num_groups]
        self.tables = BlockTables(
            block_sizes=block_sizes,
            max_num_reqs=MAX_REQS,
            max_num_batched_tokens=MAX_TOKENS,
            max_num_blocks_per_group=num_blocks,
            device=CPU,
            slot_mapping_enabled=enabled if seed % 2 else None,
            dcp_sharded=[bool(i % 2 == 0) for i in range(num_groups)],
            **cp,
        )
        for slot in range(MAX_REQS):
            blocks = tuple(rng.integers(1, 9999, n).tolist() for n in num_blocks)
            self.tables.append_block_ids(slot, blocks, overwrite=True)
        self.tables.apply_staged_writes()
        self.idx_mapping = torch.from_numpy(rng.permutation(MAX_REQS)[: self.num_reqs])
        counts = rng.integers(0, 30, self.num_reqs)
        self.query_start_loc = torch.tensor([0, *np.cumsum(counts)], dtype=torch.int32)
        starts = np.repeat(rng.integers(0, 250, self.num_reqs), counts)
        within = np.concatenate([np.arange(n) for n in [0, *counts]])
        self.positions = torch.from_numpy(starts + within)
        for table in self.tables.input_block_tables:
            table.fill_(-5)
        self.tables.slot_mappings.fill_(-5)

    def gather(self) -> Any:
        return self.tables.gather_block_tables(self.idx_mapping, self.num_reqs + 2)

    def slots(self) -> torch.Tensor:
        self.tables.compute_slot_mappings(
            self.idx_mapping, self.query_start_loc, self.positions, MAX_TOKENS
        )
        return self.tables.slot_mappings


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("num_groups", [1, 3])
def test_gather_block_tables(seed: int, num_groups: int) -> None:
    expected = Tables(seed, num_groups).gather()
    with native_kernels() as launched:
        actual = Tables(seed, num_groups).gather()
    assert_equal("tables", expected, actual)
    assert {"_apply_write_kernel", "_gather_block_tables_kernel"} <= launched


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("num_groups", [1, 3])
def test_slot_mappings(seed: int, num_groups: int) -> None:
    expected, ours = Tables(seed, num_groups), Tables(seed, num_groups)
    if seed % 3 == 0:
        for tables in (expected, ours):
            tables.idx_mapping[::2] = -1
    stock = expected.slots()
    with native_kernels() as launched:
        assert_equal("slots", stock, ours.slots())
    assert "_compute_slot_mappings_kernel" in launched
    assert (stock >= -1).all()


def slot_of(tables: Tables, group: int, row: int, position: int) -> int:
    """Runs of `interleave` positions are dealt out to the ranks in turn."""
    stock = tables.tables
    slot = int(tables.idx_mapping[row])
    if slot < 0 or not stock.slot_mapping_enabled[group]:
        return -1
    if stock.dcp_sharded[group]:
        owners = np.arange(position + 1) // stock.cp_interleave % stock.cp_size
        if owners[-1] != stock.cp_rank:
            return -1
        position = int((owners == stock.cp_rank).sum()) - 1
    size = stock.block_sizes[group]
    return int(stock.block_tables[group].gpu[slot, position // size]) * size + (
        position % size
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("cp_rank", "interleave"), [(0, 1), (3, 1), (1, 4)])
def test_slot_mappings_of_a_context_parallel_rank(
    seed: int, cp_rank: int, interleave: int
) -> None:
    """The interpreter cannot run this: a mask of its has a type that it refuses."""
    # A block of 1 token cannot be dealt out in runs of 4.
    tables = Tables(
        seed,
        2 if interleave > 1 else 3,
        cp_size=4,
        cp_rank=cp_rank,
        cp_interleave=interleave,
    )
    tables.idx_mapping[seed % 3 :: 3] = -1
    with native_kernels():
        slots = tables.slots()
    starts = tables.query_start_loc.tolist()
    for group in range(tables.tables.num_kv_cache_groups):
        expected = [
            slot_of(tables, group, row, int(tables.positions[token]))
            for row in range(tables.num_reqs)
            for token in range(starts[row], starts[row + 1])
        ]
        padding = [-1] * (MAX_TOKENS - len(expected))
        assert slots[group].tolist() == expected + padding


def test_a_position_past_the_table_is_refused() -> None:
    tables = Tables(1, 1)
    tables.positions[:] = 304
    before = tables.tables.slot_mappings.clone()
    with native_kernels(), pytest.raises(ValueError, match=r"positions\[0\] is 304"):
        tables.slots()
    assert_equal("slots", before, tables.tables.slot_mappings)


@pytest.mark.parametrize("num_reqs", [0, 1, 5, 200])
@pytest.mark.parametrize(("rank", "interleave"), [(0, 1), (2, 1), (1, 8)])
def test_dcp_local_seq_lens(num_reqs: int, rank: int, interleave: int) -> None:
    seq_lens = torch.arange(num_reqs, dtype=torch.int32) * 7 % 300

    def lens() -> torch.Tensor:
        out = torch.full((200,), -5, dtype=torch.int32)
        prepare_dcp_local_seq_lens(out, seq_lens, num_reqs, 4, rank, interleave)
        return out

    expected = lens()
    with native_kernels() as launched:
        assert_equal("lens", expected, lens())
    assert launched == {"_dcp_local_seq_lens_kernel"}
