"""Room 3: the index arrays of one rank for one step, in reused memory.

PCP 2, one prompt of 7 tokens ``[A B C D E F G]``::

    padded gathered:    [A B G _ | C D E F]
    hidden_restore_idx: [0, 1, 4, 5, 6, 7, 2]     gathered[hidden_restore_idx] == global
    padded_gather_idx:  [0, 1, 6, 0, 2, 3, 4, 5]  global[padded_gather_idx] == gathered

Sampling reads each request's last token alone, here G; with each rank's packed rows,
rank by rank, in ``packed``::

    num_selected_rows:    [1, 0]
    selected_local_idx:   [2] on rank 0       local[selected_local_idx] are packed
    selected_restore_idx: [0]                 packed[selected_restore_idx] == sampled
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyvllm_pp import _core
from pyvllm_pp._core import ArenaRing, device_arena_bytes, host_arena_bytes
from pyvllm_pp.batch import Batch, BoolArray, Int32Array, Int64Array
from pyvllm_pp.plan import Plan, PlanConfig

__all__ = [
    "ArenaRing",
    "DeviceSizes",
    "HostTables",
    "LocalRows",
    "LocalTokens",
    "StepTables",
    "TableWriter",
    "device_arena_bytes",
    "device_tables",
    "host_arena_bytes",
]


class DeviceSizes(NamedTuple):
    """Bytes of each device table, in the order in which they lie in the arena."""

    hidden_restore_idx: int  # int64 [num_tokens]
    padded_gather_idx: int  # int64 [pcp_size * padded_num_tokens]
    idx_mapping: int  # int64 [num_local_reqs]
    selected_local_idx: int  # int64 [num_reqs]
    selected_restore_idx: int  # int64 [num_reqs]
    query_start_loc: int  # int32 [2 * max_num_reqs + 1]
    cu_num_logits: int  # int32 [num_local_reqs + 1]
    logits_indices: int  # int32 [padded_num_reqs]
    gathered_kv_write_mask: int  # bool [pcp_size * padded_num_tokens]
    gathered_is_padding: int  # bool [pcp_size * padded_num_tokens]


class HostTables(NamedTuple):
    """Host arrays of the local batch, never written again: safe to keep."""

    # Those of the step that wrote the device tables.
    req_idx: Int64Array  # [num_local_reqs] local row -> global row
    idx_mapping: Int64Array  # [num_local_reqs] local row -> request slot
    num_scheduled_tokens: Int32Array  # [num_local_reqs]
    query_start_loc: Int32Array  # [padded_num_reqs + 1]
    cu_num_logits: Int32Array  # [num_local_reqs + 1]
    # Fresh at every step.
    start_pos: Int32Array  # [num_local_reqs] position of a row's first token
    prefill_len: Int32Array  # [num_local_reqs]
    num_computed_prefill_tokens: Int32Array  # [num_local_reqs]
    seq_lens_upper_bound: Int32Array  # [padded_num_reqs]
    is_prefilling: BoolArray  # [padded_num_reqs]


class StepTables(NamedTuple):
    """What a :class:`TableWriter` made of one step; device tables lie in the arena."""

    is_new: bool  # False: the device tables written last are this step's too
    num_local_reqs: int
    num_local_tokens: int
    padded_num_reqs: int
    padded_num_tokens: int
    num_selected_rows: tuple[int, ...]  # [pcp_size] rows that each rank packs
    device_sizes: DeviceSizes
    host: HostTables


class TableWriter:
    """Writes the tables of one rank.

    Args:
        config: the configuration that the plans were made with.
        rank: this rank, in ``[0, config.pcp_size)``.

    Raises:
        ValueError: `rank` is outside its range.
    """

    def __init__(self, config: PlanConfig, rank: int) -> None:
        self._writer = _core.TableWriter(config, rank)
        self._written: _core.Plan | None = None
        self._last: StepTables | None = None

    def write(
        self,
        plan: Plan,
        batch: Batch,
        device_arena: NDArray[np.uint8],
        *,
        padded_num_tokens: int = 0,
        padded_num_reqs: int = 0,
        reuse: bool = False,
    ) -> StepTables:
        """Write the tables of `batch`, of which `plan` was made.

        Args:
            plan: a plan made of the batch's scheduled tokens.
            batch: the global batch.
            device_arena: uint8, 8-byte aligned, :func:`device_arena_bytes` long.
            padded_num_tokens: rows of every rank in gathered order; 0 for no padding.
            padded_num_reqs: local rows after graph padding; 0 for no padding.
            reuse: leave the arena alone where the device tables written last are
                this step's too: the same plan, padding and request slots.

        Raises:
            TypeError: an array has another dtype.
            ValueError: the plan is another batch's, a padding does not fit, or the
                arena is too small. Nothing has been written then.
        """
        new, moving = self._writer.write(
            plan=plan,
            num_scheduled_tokens=batch.num_scheduled_tokens,
            is_prefilling=batch.is_prefilling,
            query_start_loc=batch.query_start_loc,
            num_computed_tokens=batch.num_computed_tokens,
            prefill_len=batch.prefill_len,
            idx_mapping=batch.idx_mapping,
            padded_num_tokens=padded_num_tokens,
            padded_num_reqs=padded_num_reqs,
            device_arena=device_arena,
            reuse=reuse,
        )
        self._written = plan
        if new is not None:
            *_, device, host = new
            tables = StepTables(
                True, *new[:5], DeviceSizes(*device), HostTables(*host, *moving)
            )
        else:
            assert self._last is not None
            sizes, host = self._last[1:7], self._last.host[:5]
            tables = StepTables(False, *sizes, HostTables(*host, *moving))
        self._last = tables
        return tables

    def write_local(
        self,
        input_ids: Int32Array,
        positions: Int64Array,
        tokens: "LocalTokens",
        rows: "LocalRows",
        query_start_loc: Int32Array,
    ) -> None:
        """Gather this rank's tokens of the step written last, on the host.

        Args:
            input_ids: the global batch's, ``[num_tokens]`` or longer.
            positions: the same of their positions.
            tokens: where this rank's go, padded with zeros.
            rows: where its rows' sequence lengths go.
            query_start_loc: int32 ``[padded_num_reqs + 1]`` or longer, padded with its
                last value.

        Raises:
            TypeError: an array has another dtype.
            ValueError: no step was written, or an array's length is not the step's.
        """
        if self._written is None:
            raise ValueError("[tables] no step was written, expected write first")
        self._writer.write_local(
            self._written, input_ids, positions, *tokens, *rows, query_start_loc
        )


class LocalTokens(NamedTuple):
    """Host buffers of a rank's tokens."""

    input_ids: Int32Array  # [padded_num_tokens]
    positions: Int64Array  # [padded_num_tokens]
    is_padding: NDArray[np.uint8]  # [padded_num_tokens] 0 or 1


class LocalRows(NamedTuple):
    """Host buffers of a rank's rows."""

    seq_lens: Int32Array  # [padded_num_reqs]


class DeviceTables(NamedTuple):
    """The device tables as NumPy views of a host arena."""

    hidden_restore_idx: Int64Array
    padded_gather_idx: Int64Array
    idx_mapping: Int64Array
    selected_local_idx: Int64Array
    selected_restore_idx: Int64Array
    query_start_loc: Int32Array
    cu_num_logits: Int32Array
    logits_indices: Int32Array
    gathered_kv_write_mask: BoolArray
    gathered_is_padding: BoolArray


def device_tables(arena: NDArray[np.uint8], sizes: DeviceSizes) -> DeviceTables:
    """View the tables in `arena`, as the worker does with tensors."""
    ends = np.cumsum(sizes).tolist()
    starts = [0, *ends[:-1]]
    dtypes = (np.int64,) * 5 + (np.int32,) * 3 + (np.bool_,) * 2
    return DeviceTables(
        *(
            arena[start:end].view(dtype)
            for start, end, dtype in zip(starts, ends, dtypes, strict=True)
        )
    )
