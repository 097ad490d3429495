import enum

import numpy as np
from numpy.typing import NDArray

class FeedbackOrderError(RuntimeError): ...

class Partition(enum.Enum):
    dual_chunk_swap = 0
    balanced = 1

class PlanConfig:
    def __init__(
        self,
        *,
        pcp_size: int,
        dcp_size: int,
        shard_decode_requests: bool,
        partition: Partition,
        max_num_reqs: int,
        max_num_tokens: int,
    ) -> None: ...

class Plan:
    def segments(self, rank: int) -> NDArray[np.int32]: ...
    def num_rank_tokens(self, rank: int) -> int: ...
    def is_replicated(self, req_idx: int) -> bool: ...
    @property
    def max_rank_tokens(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def num_reqs(self) -> int: ...
    @property
    def pcp_size(self) -> int: ...
    @property
    def has_prefill(self) -> bool: ...
    @property
    def revision(self) -> int: ...

class Planner:
    def __init__(self, config: PlanConfig) -> None: ...
    def plan(
        self,
        num_scheduled_tokens: NDArray[np.int32],
        is_prefilling: NDArray[np.bool_],
        num_computed_tokens: NDArray[np.int32] | None = None,
    ) -> Plan: ...
    def max_rank_tokens(
        self, num_scheduled_tokens: NDArray[np.int32], is_prefilling: NDArray[np.bool_]
    ) -> int: ...

def device_arena_bytes(config: PlanConfig) -> int: ...
def host_arena_bytes(config: PlanConfig) -> int: ...

_DeviceSizes = tuple[int, int, int, int, int, int, int, int, int, int]
_StandingHostTables = tuple[
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.int32],
]
_MovingHostTables = tuple[
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.bool_],
]
_StandingTables = tuple[
    int, int, int, int, tuple[int, ...], _DeviceSizes, _StandingHostTables
]

class TableWriter:
    def __init__(self, config: PlanConfig, rank: int) -> None: ...
    def write(
        self,
        *,
        plan: Plan,
        num_scheduled_tokens: NDArray[np.int32],
        is_prefilling: NDArray[np.bool_],
        query_start_loc: NDArray[np.int32],
        num_computed_tokens: NDArray[np.int32],
        prefill_len: NDArray[np.int32],
        idx_mapping: NDArray[np.int64],
        padded_num_tokens: int,
        padded_num_reqs: int,
        device_arena: NDArray[np.uint8],
        reuse: bool,
    ) -> tuple[_StandingTables | None, _MovingHostTables]: ...
    def write_local(
        self,
        plan: Plan,
        input_ids: NDArray[np.int32],
        positions: NDArray[np.int64],
        local_input_ids: NDArray[np.int32],
        local_positions: NDArray[np.int64],
        is_padding: NDArray[np.uint8],
        seq_lens: NDArray[np.int32],
        query_start_loc: NDArray[np.int32],
    ) -> None: ...

class ArenaRing:
    def __init__(self, arenas: list[NDArray[np.uint8]]) -> None: ...
    def next(self) -> tuple[int, NDArray[np.uint8]]: ...
    @property
    def depth(self) -> int: ...

class EntryState(enum.Enum):
    empty = 0
    posted = 1
    ready = 2

class Consumed(enum.Enum):
    nothing = 0
    none = 1
    filtered = 2
    all = 3

def need_sampled_mask(
    *,
    num_scheduled_tokens: NDArray[np.int32],
    is_prefilling: NDArray[np.bool_],
    num_computed_tokens: NDArray[np.int32],
    prefill_len: NDArray[np.int32],
    max_seq_len: NDArray[np.int32] | None,
) -> NDArray[np.bool_] | None: ...
def check_header(
    received: NDArray[np.int64], step: int, digest: int, idx_mapping: NDArray[np.int64]
) -> None: ...

class FeedbackRing:
    def __init__(self, *, depth: int, max_num_reqs: int) -> None: ...
    def begin_step(self) -> int: ...
    def post(
        self, idx_mapping: NDArray[np.int64], need_sampled: NDArray[np.bool_]
    ) -> bool: ...
    def post_batch(
        self,
        num_scheduled_tokens: NDArray[np.int32],
        is_prefilling: NDArray[np.bool_],
        num_computed_tokens: NDArray[np.int32],
        prefill_len: NDArray[np.int32],
        idx_mapping: NDArray[np.int64],
        max_seq_len: NDArray[np.int32] | None,
    ) -> int: ...
    def advance(
        self,
        has_arrived: bool,
        header: NDArray[np.int64] | None,
        idx_mapping: NDArray[np.int64],
    ) -> int: ...
    def posted_digest(self, step: int) -> int: ...
    def mark_ready(self, step: int) -> None: ...
    def consume(self) -> tuple[Consumed, NDArray[np.int64]]: ...
    def drop(self, step: int) -> None: ...
    def free_slot(self, slot: int) -> None: ...
    def digest(
        self, idx_mapping: NDArray[np.int64], num_scheduled_tokens: NDArray[np.int32]
    ) -> int: ...
    def state(self, step: int) -> EntryState: ...
    def generation(self, slot: int) -> int: ...
    @property
    def due_num_reqs(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def depth(self) -> int: ...
