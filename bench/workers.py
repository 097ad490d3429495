"""A worker that keeps a timeline, and uses stock's feedback handler and ours in turn.

vLLM takes it by name: ``worker_cls="bench.workers.SwitchingWorker"``.
"""

# Patches torch for CPU; vLLM's runner modules must come after it.
import vllm.v1.worker.cpu.shm  # noqa: F401  # isort: skip

import functools
import time
from collections.abc import Callable
from typing import Any

from vllm.distributed.parallel_state import get_pp_group
from vllm.v1.worker.gpu.pp_utils import PPHandler

from pyvllm_pp.host.cpu.worker import PipelineCPUWorker
from pyvllm_pp.host.pp import FeedbackHandler

HANDLERS = ("stock", "ours")


class Timeline:
    """When this process did what, in seconds of the machine's clock."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, float, float]] = []

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, each run of it kept under `name`."""

        @functools.wraps(call)
        def run(*args: Any, **kwargs: Any) -> Any:
            begin = time.monotonic()
            try:
                return call(*args, **kwargs)
            finally:
                self.spans.append((name, begin, time.monotonic()))

        return run


class SwitchingWorker(PipelineCPUWorker):
    """Changes the handler of feedback whenever it was idle: with every call of a run.

    So both handlers are measured in one engine, in turn. The first call is stock's.
    """

    def init_device(self) -> None:
        super().init_device()
        self._num_calls = 0
        self._timeline = Timeline()
        self._timelines: dict[str, list[tuple[str, float, float]]] = {}
        # What both handlers are made of: one stream and one process group.
        self._parts = vars(self.model_runner.pp_handler).copy()
        group: Any = get_pp_group()
        for name in ("irecv_tensor_dict", "isend_tensor_dict"):
            setattr(group, name, self._timed("wait for the other stage", group, name))

    def execute_model(self, scheduler_output: Any) -> Any:
        """A step; the first one after an idle time begins another call."""
        known = self.model_runner.req_states.req_id_to_index.keys()
        is_idle = known <= set(scheduler_output.finished_req_ids)
        if is_idle and scheduler_output.scheduled_new_reqs:
            self._next_handler()
        return self._timeline.timed("forward", super().execute_model)(scheduler_output)

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Sample, or on an earlier stage receive."""
        name = "sample" if get_pp_group().is_last_rank else "receive"
        return self._timeline.timed(name, super().sample_tokens)(grammar_output)

    def pyvllm_pp_report(self) -> dict[str, Any]:
        """The report, and the timeline of each handler's last call."""
        return {**super().pyvllm_pp_report(), "timelines": self._timelines}

    def _next_handler(self) -> None:
        name = HANDLERS[self._num_calls % len(HANDLERS)]
        self._num_calls += 1
        self._timeline.spans = self._timelines[name] = []
        handler: Any = object.__new__(PPHandler)
        handler.__dict__.update(self._parts)
        if not handler.is_last_rank:
            handler.queue = type(handler.queue)([None] * get_pp_group().world_size)
        handler.req_idx_gen_np = self._parts["req_idx_gen_np"].copy()
        if name == "ours":
            max_num_reqs = self.model_runner.max_num_reqs
            handler = FeedbackHandler.adopt(handler, max_num_reqs)
        consume = self._timed("wait for tokens", handler, "get_prev_sampled_outputs")
        handler.get_prev_sampled_outputs = consume
        self.model_runner.pp_handler = handler

    def _timed(self, name: str, owner: object, method: str) -> Callable[..., Any]:
        return self._timeline.timed(name, getattr(owner, method))
