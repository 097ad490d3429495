"""Feedback on an earlier stage, against stock's handler, collectives left out."""

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from vllm.v1.worker.gpu import pp_utils

from bench.section import Section, Table, Target
from bench.timing import NUM_SAMPLES
from pyvllm_pp.host.pp import FeedbackHandler
from tests.host.batches import Request, global_batch

_NUM_REQS = 256
# Steps between post and consume, a long pipeline; a sample times all of them at once.
_DEPTH = 8
_WANTED = 10.0


class _EarlierStage:
    """The first of many stages, without processes."""

    is_last_rank = False
    last_rank = _DEPTH - 1
    world_size = _DEPTH

    def make_sibling_device_group(self, group_desc: str) -> str:
        """A group that no collective uses."""
        return group_desc


@contextmanager
def _without_collectives() -> Iterator[None]:
    with (
        patch.object(pp_utils, "get_pp_group", _EarlierStage),
        patch.object(dist, "broadcast", lambda *_, **__: None),
        patch.object(torch.distributed, "broadcast", lambda *_, **__: None),
    ):
        yield


def _batch() -> Any:
    """Decodes, as most steps have; one prompt so that every rule is looked at."""
    requests = [Request(1, 100, 100)] * (_NUM_REQS - 1) + [Request(16, 0, 16)]
    return global_batch(np.random.default_rng(0), requests)


def _arrive(handler: FeedbackHandler, token: int) -> None:
    """What the collective would have done: tokens and the sender's header."""
    ring = handler.ring
    for age in range(_DEPTH):
        slot = handler._slots[-age]
        if slot.num_reqs:
            message, step = slot.posted.message, ring.step - age
            message.header.copy_(torch.tensor([step, ring.posted_digest(step)]))
            message.sampled_tokens.fill_(token)


def _cycle(handler: Any, batch: Any) -> float:
    """Microseconds of a step's consume and post, over as many steps as are pending."""
    begin = time.thread_time_ns()
    for _ in range(_DEPTH):
        handler.get_prev_sampled_outputs(None)
        handler.receive(batch)
    return (time.thread_time_ns() - begin) / _DEPTH / 1e3


def _check(stock: Any, ours: Any, batch: Any) -> None:
    """Both consume the same slots, before and after requests end."""
    for freed in (None, 3, 7):
        for handler in (stock, ours):
            if freed is not None:
                handler.on_req_idx_freed(int(batch.idx_mapping_np[freed]))
        _arrive(ours, token=5)
        outputs = [h.get_prev_sampled_outputs(None) for h in (stock, ours)]
        for handler in (stock, ours):
            handler.receive(batch)
        assert torch.equal(outputs[0]["idx_mapping"], outputs[1]["idx_mapping"])
        assert outputs[0]["sampled_tokens"].shape == outputs[1]["sampled_tokens"].shape
        assert outputs[1]["sampled_tokens"].unique().tolist() == [5]


@torch.inference_mode()
def measure() -> Section:
    """The ratio of both handlers, and what the check of the requests costs."""
    batch = _batch()
    with _without_collectives():
        cpu = torch.device("cpu")
        stock = pp_utils.PPHandler(4 * _NUM_REQS, 0, cpu)
        ours = FeedbackHandler.adopt(
            pp_utils.PPHandler(4 * _NUM_REQS, 0, cpu), 4 * _NUM_REQS
        )
        for handler in (stock, ours):
            _cycle(handler, batch)
        _check(stock, ours, batch)
        samples: list[list[float]] = [[], []]
        for _ in range(NUM_SAMPLES):
            for handler, times in zip((stock, ours), samples, strict=True):
                _arrive(ours, token=5)  # before either, for the caches' sake
                times.append(_cycle(handler, batch))
    stock_us, ours_us = (statistics.median(times) for times in samples)
    return Section(
        title="Feedback",
        parts=[
            f"A step of an earlier stage at {_NUM_REQS} requests: consume what is due "
            "and post the receive, both as the runner calls them, with a broadcast "
            "that does nothing on either side. Ours also makes and compares the digest "
            "of the requests, which stock does not. Microseconds.",
            Table(
                header=["handler", "a step"],
                rows=[["stock", stock_us], ["ours", ours_us]],
            ),
        ],
        targets=[
            Target(what="consume and post", value=stock_us / ours_us, limit=_WANTED)
        ],
        data={"stock_us": stock_us, "ours_us": ours_us},
    )
