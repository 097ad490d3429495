"""Our manager against vLLM's own, field by field, on the vLLM that is importable."""

# Patches torch for CPU; vLLM's runner modules must come after it.

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from vllm.config import CUDAGraphMode
from vllm.v1.worker.gpu.pcp_manager import PCPManager

from pyvllm_pp.host.pcp import NativePCPManager
from pyvllm_pp.host.settings import Settings
from tests.host.batches import (
    Descriptor,
    Request,
    Topology,
    scheduled_arrays,
)
from tests.host.block_tables import RandomBlockTables

NO_GRAPH = Descriptor(CUDAGraphMode.NONE, 0, None)
_TABLES = (
    "_hidden_restore_idx",
    "_padded_gather_idx",
    "_gathered_kv_write_mask",
    "_local_gather_idx",
)
_STOCK_ARGUMENTS = inspect.signature(PCPManager.__init__).parameters


class StockManager(PCPManager):
    """vLLM's own, which keeps the layout that it makes on the way."""

    layout: tuple[list[list[Any]], list[int]]

    def _build_batch_layout(self, *args: Any, **kwargs: Any) -> Any:
        self.layout = super()._build_batch_layout(*args, **kwargs)
        return self.layout


def make_manager(cls: type, topology: Topology, rank: int, **kwargs: Any) -> Any:
    gathers = topology.moe_gathers_tokens
    values: dict[str, Any] = {
        "pcp_world_size": topology.pcp_size,
        "pcp_rank": rank,
        "device": torch.device("cpu"),
        "shard_decode_requests": topology.shard_decode_requests,
        "max_num_reqs": topology.max_num_reqs,
        "max_num_tokens": topology.max_num_tokens,
        "dcp_world_size": topology.dcp_size,
        "dcp_rank": rank % topology.dcp_size,
        "cp_interleave": topology.cp_interleave,
        "moe_gathers_tokens": topology.dcp_size == 1 if gathers is None else gathers,
        **kwargs,
    }
    return cls(**{k: v for k, v in values.items() if k in _STOCK_ARGUMENTS})


def make_both(topology: Topology, rank: int, seed: int = 0) -> tuple[Any, Any]:
    """Stock's manager and ours, over the same block tables."""
    tables = RandomBlockTables.of(topology, rank, seed)
    native = NativePCPManager.configured(Settings(), 2)
    return (
        make_manager(StockManager, topology, rank, block_tables=tables),
        make_manager(native, topology, rank, block_tables=tables),
    )


def same(stock: Any, ours: Any) -> bool:
    """Equal in type, dtype, shape and every value."""
    if isinstance(stock, torch.Tensor):
        return bool(stock.dtype == ours.dtype and torch.equal(stock, ours))
    if isinstance(stock, np.ndarray):
        return stock.dtype == ours.dtype and np.array_equal(stock, ours)
    if is_dataclass(stock):
        names = [field.name for field in fields(stock)]
        return type(stock) is type(ours) and all(
            same(getattr(stock, name), getattr(ours, name)) for name in names
        )
    return type(stock) is type(ours) and bool(stock == ours)


def assert_same(name: str, stock: Any, ours: Any) -> None:
    assert same(stock, ours), f"{name}: vLLM has {stock}, ours is {ours}"


def assert_same_step(
    stock: Any,
    ours: Any,
    requests: Sequence[Request],
    batch: Any,
    descriptor: Descriptor,
) -> None:
    """Everything that the two managers make of one step."""
    expected, local = assert_same_partition(stock, ours, requests, batch, descriptor)
    stock_blocks, stock_slots = stock.prepare_attn(expected)
    our_blocks, our_slots = ours.prepare_attn(local)
    for group, blocks in enumerate(stock_blocks):
        assert_same(f"block table {group}", blocks, our_blocks[group])
    assert_same("gathered slot mappings", stock_slots, our_slots)
    if batch.num_draft_tokens:
        assert_same_draft_prefill(stock, ours, batch)


def assert_same_partition(
    stock: Any,
    ours: Any,
    requests: Sequence[Request],
    batch: Any,
    descriptor: Descriptor,
) -> tuple[Any, Any]:
    """Dispatch count, layout, local batch and tables; both local batches."""
    arrays = scheduled_arrays(requests)
    assert_same(
        "dispatch count",
        stock.get_num_tokens_for_dispatch(*arrays),
        ours.get_num_tokens_for_dispatch(*arrays),
    )
    expected = stock.partition_batch(batch, descriptor)
    local = ours.partition_batch(batch, descriptor)
    assert_same_layout(stock, ours._planner.plan(*arrays))
    for field in fields(expected):
        name = field.name
        assert_same(f"InputBatch.{name}", getattr(expected, name), getattr(local, name))
    for name in _TABLES:
        assert_same(name, getattr(stock, name), getattr(ours, name))
    assert ours.global_batch is batch
    return expected, local


def assert_same_layout(stock: StockManager, plan: Any) -> None:
    """Each rank's segments and tokens."""
    segments_by_rank, rank_tokens = stock.layout
    for rank, segments in enumerate(segments_by_rank):
        expected = [
            (
                segment.global_batch_req_idx,
                segment.global_batch_slice.start,
                segment.num_tokens,
                segment.rank_local_batch_slice.start,
            )
            for segment in segments
        ]
        ours = [tuple(segment) for segment in plan.segments(rank).tolist()]
        assert_same(f"segments of rank {rank}", expected, ours)
        assert_same(
            f"tokens of rank {rank}", rank_tokens[rank], plan.num_rank_tokens(rank)
        )


def assert_same_draft_prefill(stock: Any, ours: Any, batch: Any) -> None:
    """The local batch with a draft model's token ids in it."""
    ids = batch.input_ids + 1
    for manager in (stock, ours):
        manager.prepare_draft_prefill(batch, ids)
    assert_same(
        "draft prefill",
        stock.draft_prefill_batch.input_ids,
        ours.draft_prefill_batch.input_ids,
    )


def assert_refused(stock: Any, ours: Any, batch: Any, descriptor: Descriptor) -> None:
    """Adaptive verification that leaves drafts out has no right plan on the host.

    vLLM lays out the tokens that were scheduled, over rows that hold fewer: it fails,
    or gives a request the tokens of the next. Ours says so.
    """
    error = _value_error(lambda: stock.partition_batch(batch, descriptor))
    ends = batch.query_start_loc_np[1:]
    assert "broadcast" in error or any(
        segment.global_batch_slice.stop > ends[segment.global_batch_req_idx]
        for segments in stock.layout[0]
        for segment in segments
    ), "vLLM's layout fits the admitted drafts: compare it with ours"
    error = _value_error(lambda: ours.partition_batch(batch, descriptor))
    assert "query_start_loc" in error, f"expected to be refused, got {error!r}"


def _value_error(call: Callable[[], object]) -> str:
    try:
        call()
    except ValueError as error:
        return str(error)
    return ""


def assert_kernels_do_the_same(stock: Any) -> None:
    """vLLM's kernels, and what stands in for them, given the step just partitioned."""
    tables, kept = stock._block_tables, [t.clone() for t in stock._local_block_tables]
    results = []
    for tables.runs_kernels in (True, False):
        for table in stock._local_block_tables:
            table.zero_()
        blocks, _ = stock.prepare_attn(stock._local_batch)
        slots = stock._global_batch_slot_mappings
        results.append([result.clone() for result in (*blocks, slots)])
    for kernel, stand_in in zip(*results, strict=True):
        assert_same("a kernel's stand-in", kernel, stand_in)
    for table, content in zip(stock._local_block_tables, kept, strict=True):
        table.copy_(content)
