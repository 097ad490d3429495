"""Global batches as vLLM's runner makes them, on CPU tensors."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import torch
import vllm
from numpy.typing import NDArray
from vllm.v1.worker.gpu.input_batch import InputBatch

from pyvllm_pp.host.compat import vllm_minor

# The runner's request slots on the device; up to 0.31 they are narrower.
_SLOT_DTYPE = torch.int32 if vllm_minor(vllm.__version__) == "0.31" else torch.int64
_KNOWN_FIELDS = {field.name for field in fields(InputBatch)}


class Request(NamedTuple):
    num_scheduled: int
    num_computed: int  # as the host knows it
    prefill_len: int
    num_drafts: int = 0  # of the scheduled tokens
    num_rejected: int = 0  # computed tokens that the device knows to be rejected

    @property
    def is_prefilling(self) -> bool:
        return self.num_computed < self.prefill_len


@dataclass(frozen=True)
class Topology:
    pcp_size: int
    dcp_size: int = 1
    max_num_reqs: int = 64
    max_num_tokens: int = 4096
    cp_interleave: int = 1
    # Whether the MoE routes the tokens of all PCP ranks (no expert parallelism).
    moe_gathers_tokens: bool | None = None

    @property
    def shard_decode_requests(self) -> bool:
        return self.pcp_size > 1 and self.dcp_size == 1


class Descriptor(NamedTuple):
    """What the managers read of a graph descriptor."""

    cg_mode: Any
    num_tokens: int
    num_reqs: int | None


def random_requests(
    rng: np.random.Generator, num_reqs: int, max_num_tokens: int
) -> list[Request]:
    """Decodes, prompts, continued prompts and rows without tokens, mixed."""
    kinds = rng.choice(
        ["decode", "prompt", "tiny", "continued", "idle", "drafts"],
        size=num_reqs,
        p=rng.dirichlet(np.ones(6)),
    )
    requests: list[Request] = []
    budget = max_num_tokens
    for kind in kinds.tolist():
        request = random_request(rng, kind, max(1, min(200, budget)))
        if request.num_scheduled > budget:
            request = request._replace(num_scheduled=0, num_drafts=0)
        budget -= request.num_scheduled
        requests.append(request)
    return requests


def random_request(rng: np.random.Generator, kind: str, most: int) -> Request:
    """One request of a kind, a prompt with at most `most` tokens."""
    computed, length, some, few = (
        int(most_each * share) + 1
        for most_each, share in zip((299, most, 20, 4), rng.random(4), strict=True)
    )
    if kind == "decode":
        return Request(1, computed, max(1, computed - some))
    if kind == "drafts":
        return Request(1 + few, computed, computed, few, min(some % 5, computed - 1))
    if kind == "idle":
        return Request(0, computed, max(1, computed + some - 10))
    if kind == "tiny":
        length = min(some, length)
        return Request(length, 0, length + few % 3)
    start = computed if kind == "continued" else 0
    return Request(length, start, start + length + (few % 2) * 50)


def global_batch(
    rng: np.random.Generator,
    requests: Sequence[Request],
    padded_num_tokens: int = 0,
    *,
    padded_num_reqs: int = 0,
    slots: Sequence[int] | None = None,
    draft_budget: int | None = None,
) -> InputBatch:
    """The batch of `requests` with random token ids.

    Args:
        rng: draws token ids, and slots where none are given.
        requests: the rows.
        padded_num_tokens: tokens of the graph descriptor, 0 without a graph.
        padded_num_reqs: rows of the graph descriptor, 0 where it has none.
        slots: each row's request slot; drawn from 64 or more where None.
        draft_budget: drafts that adaptive verification admits, None where it is off.
    """
    num_reqs = len(requests)
    columns = np.array(requests, dtype=np.int32).reshape(num_reqs, len(Request._fields))
    scheduled, computed, prefill_len, drafts, rejected = np.ascontiguousarray(columns.T)
    if slots is None:
        slots = rng.permutation(max(64, num_reqs))[:num_reqs].tolist()
    is_prefilling = computed < prefill_len
    values: dict[str, Any] = {
        "req_ids": [f"request-{slot}" for slot in slots],
        "num_reqs": num_reqs,
        "num_scheduled_tokens": scheduled,
        "dcp_local_seq_lens": None,
        "num_computed_tokens_np": computed,
        "prefill_len_np": prefill_len,
        "num_computed_prefill_tokens_np": np.minimum(computed, prefill_len),
        "is_prefilling_np": is_prefilling,
        "has_prefill": bool(is_prefilling.any()),
        "decode_graph_eligible": not is_prefilling.any(),
        "has_structured_output_reqs": bool(rng.random() < 0.5),
        "prompt_lens": None,
        "max_seq_len_np": prefill_len + 10 if is_prefilling.any() else None,
        "max_query_len": None if draft_budget is None else int(scheduled.max()),
    }
    own = _admit(scheduled, drafts, draft_budget)
    rows = max(num_reqs, padded_num_reqs)
    values |= _slot_fields(np.array(slots, dtype=np.intp), drafts)
    values |= _row_fields(own, scheduled, computed, rejected, rows)
    values |= _token_fields(rng, own, computed - rejected, padded_num_tokens)
    return InputBatch(**{n: v for n, v in values.items() if n in _KNOWN_FIELDS})


def _admit(
    scheduled: NDArray[np.int32], drafts: NDArray[np.int32], budget: int | None
) -> NDArray[np.int32]:
    """Tokens that the rows really have: fewer where the drafts' budget binds.

    The runner's host arrays share the budget out evenly, first rows first.
    """
    if budget is None or budget >= drafts.sum():
        return scheduled
    verifying = drafts > 0
    even, extra = divmod(budget, int(verifying.sum()))
    admitted = np.where(verifying, even, 0)
    admitted[np.flatnonzero(verifying)[:extra]] += 1
    out: NDArray[np.int32] = (scheduled - drafts + admitted).astype(np.int32)
    return out


def _slot_fields(slots: NDArray[np.intp], drafts: NDArray[np.int32]) -> dict[str, Any]:
    """Request slots, and the logits rows of each request."""
    num_reqs = len(slots)
    idx_mapping = torch.from_numpy(slots).to(_SLOT_DTYPE, copy=True)
    has_drafts = bool(drafts.any())
    num_logits = torch.from_numpy(drafts).long() + 1
    cu_num_logits = np.zeros(num_reqs + 1, dtype=np.int32)
    np.cumsum(drafts + 1, out=cu_num_logits[1:])
    return {
        "idx_mapping": idx_mapping,
        "idx_mapping_np": slots,
        "expanded_idx_mapping": (
            idx_mapping.repeat_interleave(num_logits) if has_drafts else idx_mapping
        ),
        "expanded_local_pos": torch.zeros(int(cu_num_logits[-1]), dtype=torch.int32),
        "num_draft_tokens": int(drafts.sum()),
        "num_draft_tokens_per_req": drafts if has_drafts else None,
        "cu_num_logits": torch.from_numpy(cu_num_logits.copy()),
        "cu_num_logits_np": cu_num_logits,
    }


def _row_fields(
    own: NDArray[np.int32],
    scheduled: NDArray[np.int32],
    computed: NDArray[np.int32],
    rejected: NDArray[np.int32],
    rows: int,
) -> dict[str, Any]:
    """Starts and lengths of the rows, padded to `rows`."""
    num_reqs = len(own)
    starts = np.full(rows + 1, own.sum(), dtype=np.int32)
    starts[0] = 0
    np.cumsum(own, out=starts[1 : num_reqs + 1])
    seq_lens, upper_bound = np.zeros((2, rows), dtype=np.int32)
    seq_lens[:num_reqs] = computed - rejected + own
    upper_bound[:num_reqs] = computed + scheduled
    return {
        "num_reqs_after_padding": rows,
        "query_start_loc": torch.from_numpy(starts.copy()),
        "query_start_loc_np": starts,
        "seq_lens": torch.from_numpy(seq_lens),
        "seq_lens_cpu_upper_bound": torch.from_numpy(upper_bound),
        "logits_indices": torch.from_numpy(starts[1 : num_reqs + 1] - 1),
    }


def _token_fields(
    rng: np.random.Generator,
    own: NDArray[np.int32],
    first_position: NDArray[np.int32],
    padded_num_tokens: int,
) -> dict[str, Any]:
    """Ids and positions of the tokens, the latter as the device knows them."""
    num_tokens = int(own.sum())
    padded = max(num_tokens, padded_num_tokens)
    positions = np.zeros(padded, dtype=np.int64)
    positions[:num_tokens] = np.repeat(first_position + own - own.cumsum(), own)
    positions[:num_tokens] += np.arange(num_tokens)
    ids = rng.integers(0, 1000, size=padded, dtype=np.int32)
    return {
        "num_tokens": num_tokens,
        "num_tokens_after_padding": padded,
        "input_ids": torch.from_numpy(ids),
        "positions": torch.from_numpy(positions),
        "is_padding": torch.arange(padded) >= num_tokens,
    }


def scheduled_arrays(
    requests: Sequence[Request],
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """What the runner knows when it asks for the dispatch count."""
    return (
        np.array([r.num_scheduled for r in requests], dtype=np.int32),
        np.array([r.is_prefilling for r in requests], dtype=np.bool_),
    )
