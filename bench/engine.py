"""Where the time of a step goes in a real engine, and what is next to be looked at."""

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from bench.section import Section, Table, Target
from pyvllm_pp.cli.bench import step_run
from pyvllm_pp.cli.breakdown import Breakdown, WorkerShare, breakdown
from pyvllm_pp.cli.engine import run_engine
from pyvllm_pp.cli.model import ModelSpec, make_model
from pyvllm_pp.feedback import FeedbackRing, check_header
from pyvllm_pp.host.message import FeedbackMessage
from pyvllm_pp.ranges import Range

_NUM_REQS = 32
_NUM_INPUT = _NUM_OUTPUT = 32
_LIMIT_S = 200.0
_MOST_CHECK = 2.0
_OURS = (Range.plan, Range.tables, Range.restore, Range.feedback)
# The model's own work, the outsides of the two calls of a step, and what waits.
_NOT_HOST = (Range.forward, Range.execute_model, Range.sample_tokens, Range.scheduler)


def measure() -> Section:
    """The breakdown of PP2+PCP2, the next target, and the cost of feedback's check."""
    with tempfile.TemporaryDirectory() as directory:
        model = make_model(Path(directory) / "model", ModelSpec())
        run = step_run(
            model,
            2,
            2,
            requests=_NUM_REQS,
            input_len=_NUM_INPUT,
            output_len=_NUM_OUTPUT,
        )
        shares = breakdown(run.name, run_engine(run, limit_s=_LIMIT_S))
    workers = [worker for worker in shares.workers if worker.title.startswith("PP")]
    first, last = workers[0], workers[-1]
    check = check_us(_NUM_REQS)
    shortest = min(worker.step_us for worker in workers)
    return Section(
        title="A step in a real engine",
        parts=[
            f"`pyvllm-pp bench step`: {_NUM_REQS} requests, {_NUM_INPUT} tokens in and "
            f"{_NUM_OUTPUT} out, a random two-layer MoE MLA model, PP2+PCP2, so four "
            "workers on this machine's cores. Microseconds of wall time a step of each "
            "part, without the parts inside it, under `torch.profiler`, which makes "
            "small operations slower: read it as shares. Ranges in which a stage waits "
            "for another one, or for a core, are longer than their work.",
            _table(shares),
            f"Ours ({', '.join(part.title for part in _OURS)}) are "
            f"{_share(first, _OURS):.1f} % of a step on {first.title} and "
            f"{_share(last, _OURS):.1f} % on {last.title}.",
            f"Next target: {_next_target(first)}; {_next_target(last)}.",
            f"Feedback's check (both digests, the header, its comparison) takes "
            f"{check:.1f} microseconds for {_NUM_REQS} requests.",
        ],
        targets=[
            Target(
                what="check of a feedback, share of the shortest step",
                value=100 * check / shortest,
                limit=_MOST_CHECK,
                kind="less than",
                unit=" %",
            )
        ],
        data={"breakdown": shares.model_dump(), "check_us": check},
    )


def check_us(num_reqs: int) -> float:
    """Microseconds that step and digest take on both stages together, wall time."""
    ring = FeedbackRing(depth=2, max_num_reqs=num_reqs)
    slots = np.arange(num_reqs, dtype=np.int64)
    scheduled = np.ones(num_reqs, dtype=np.int32)
    message = FeedbackMessage.empty(num_reqs, 1, torch.device("cpu"))
    header_np = message.header.numpy()
    digest = ring.digest(slots, scheduled)
    samples = []
    for _ in range(2000):
        begin = time.perf_counter()
        ring.digest(slots, scheduled)
        message.header.copy_(torch.tensor([7, digest], dtype=torch.int64))
        ring.digest(slots, scheduled)
        check_header(header_np, 7, digest, slots)
        samples.append(time.perf_counter() - begin)
    return statistics.median(samples) * 1e6


def _table(shares: Breakdown) -> Table:
    rows: list[list[str | float | int]] = []
    for part in Range:
        values = [worker.us.get(part.name, 0.0) for worker in shares.workers]
        if any(values):
            rows.append([part.title, *values])
    rows.append(["in no range", *(worker.outside_us for worker in shares.workers)])
    rows.append(["a step", *(worker.step_us for worker in shares.workers)])
    return Table(header=["part", *(w.title for w in shares.workers)], rows=rows)


def _share(worker: WorkerShare, parts: tuple[Range, ...]) -> float:
    """Percent of a step."""
    return 100 * sum(worker.us.get(p.name, 0.0) for p in parts) / worker.step_us


def _next_target(worker: WorkerShare) -> str:
    """The parts of vLLM's own host work that cost most beside ours."""
    host = {
        part.title: worker.us.get(part.name, 0.0)
        for part in Range
        if part not in (*_OURS, *_NOT_HOST)
    }
    most = sorted(host, key=lambda title: -host[title])[:3]
    named = [f"{title} ({100 * host[title] / worker.step_us:.0f} %)" for title in most]
    return f"on {worker.title} vLLM's own host work is most in {', '.join(named)}"
