"""Random global batches as vLLM's runner makes them, on CPU tensors."""

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from vllm.v1.worker.gpu.input_batch import InputBatch


class Request(NamedTuple):
    num_scheduled: int
    num_computed: int
    prefill_len: int

    @property
    def is_prefilling(self) -> bool:
        return self.num_computed < self.prefill_len


@dataclass(frozen=True)
class Topology:
    pcp_size: int
    dcp_size: int = 1
    max_num_reqs: int = 64
    max_num_tokens: int = 4096

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
    for kind in kinds:
        request = _random_request(rng, str(kind), max(1, min(200, budget)))
        if request.num_scheduled > budget:
            request = request._replace(num_scheduled=0)
        budget -= request.num_scheduled
        requests.append(request)
    return requests


def _random_request(rng: np.random.Generator, kind: str, most: int) -> Request:
    computed = int(rng.integers(1, 300))
    if kind == "decode":
        return Request(1, computed, int(rng.integers(1, computed + 1)))
    if kind == "drafts":
        return Request(int(rng.integers(2, 6)), computed, computed)
    if kind == "idle":
        return Request(0, computed, int(rng.integers(1, 2 * computed)))
    if kind == "tiny":
        length = int(rng.integers(1, min(most, 20) + 1))
        return Request(length, 0, length + int(rng.integers(0, 3)))
    length = int(rng.integers(1, most + 1))
    start = computed if kind == "continued" else 0
    return Request(length, start, start + length + int(rng.integers(0, 2)) * 50)


def global_batch(
    rng: np.random.Generator, requests: list[Request], padded_num_tokens: int = 0
) -> InputBatch:
    """The batch of `requests`, with random token ids and request slots."""
    num_reqs = len(requests)
    scheduled = np.array([r.num_scheduled for r in requests], dtype=np.int32)
    computed = np.array([r.num_computed for r in requests], dtype=np.int32)
    prefill_len = np.array([r.prefill_len for r in requests], dtype=np.int32)
    num_tokens = int(scheduled.sum())
    padded = max(num_tokens, padded_num_tokens)
    query_start_loc = np.zeros(num_reqs + 1, dtype=np.int32)
    np.cumsum(scheduled, out=query_start_loc[1:])
    positions = np.concatenate(
        [np.arange(c, c + s) for c, s in zip(computed, scheduled, strict=True)]
        + [np.zeros(padded - num_tokens)]
    ).astype(np.int64)
    slots = rng.permutation(4 * num_reqs)[:num_reqs].astype(np.intp)
    idx_mapping = torch.from_numpy(slots.copy())
    is_prefilling = computed < prefill_len
    cu_num_logits = np.arange(num_reqs + 1, dtype=np.int32)
    values: dict[str, Any] = {
        "req_ids": [f"request-{slot}" for slot in slots],
        "num_reqs": num_reqs,
        "num_reqs_after_padding": num_reqs,
        "idx_mapping": idx_mapping,
        "idx_mapping_np": slots,
        "expanded_idx_mapping": idx_mapping,
        "expanded_local_pos": torch.zeros(num_reqs, dtype=torch.int32),
        "num_scheduled_tokens": scheduled,
        "num_tokens": num_tokens,
        "num_tokens_after_padding": padded,
        "num_draft_tokens": 0,
        "num_draft_tokens_per_req": None,
        "query_start_loc": torch.from_numpy(query_start_loc.copy()),
        "query_start_loc_np": query_start_loc,
        "seq_lens": torch.from_numpy(computed + scheduled),
        "seq_lens_cpu_upper_bound": torch.from_numpy(computed + scheduled),
        "dcp_local_seq_lens": None,
        "num_computed_tokens_np": computed,
        "prefill_len_np": prefill_len,
        "num_computed_prefill_tokens_np": np.minimum(computed, prefill_len),
        "is_prefilling_np": is_prefilling,
        "has_prefill": bool(is_prefilling.any()),
        "decode_graph_eligible": not is_prefilling.any(),
        "input_ids": torch.from_numpy(
            rng.integers(0, 1000, size=padded).astype(np.int32)
        ),
        "positions": torch.from_numpy(positions),
        "is_padding": torch.arange(padded) >= num_tokens,
        "logits_indices": torch.from_numpy(query_start_loc[1:] - 1),
        "cu_num_logits": torch.from_numpy(cu_num_logits.copy()),
        "cu_num_logits_np": cu_num_logits,
        "has_structured_output_reqs": False,
        "prompt_lens": None,
        "max_seq_len_np": prefill_len + 10,
    }
    known = {field.name for field in fields(InputBatch)}
    return InputBatch(**{name: v for name, v in values.items() if name in known})


def scheduled_arrays(
    requests: list[Request],
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """What the runner knows when it asks for the dispatch count."""
    return (
        np.array([r.num_scheduled for r in requests], dtype=np.int32),
        np.array([r.is_prefilling for r in requests], dtype=np.bool_),
    )
