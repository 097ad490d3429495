"""The program of an engine process: one request file in, one result file out.

``python -m pyvllm_pp.cli.child DIRECTORY``. Start it through
:func:`pyvllm_pp.cli.engine.run_engine`, which bounds its time and its processes.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

from pyvllm_pp.cli import profiling
from pyvllm_pp.cli.runs import (
    Call,
    CallResult,
    EngineResult,
    EngineRun,
    Output,
    Sample,
    WorkerProfile,
    WorkerReport,
)

# Fields of CallResult, and vLLM's metrics; it has those of drafts where there are some.
_COUNTERS = {
    "num_preemptions": "vllm:num_preemptions",
    "num_drafts": "vllm:spec_decode_num_draft_tokens",
    "num_accepted_drafts": "vllm:spec_decode_num_accepted_tokens",
}
REQUEST, RESULT, PHASE = "request.json", "result.json", "phase"


def main(directory: Path) -> None:
    """Run the engine of ``DIRECTORY/request.json``."""
    run = EngineRun.model_validate_json((directory / REQUEST).read_text())
    _write(directory / PHASE, "starting")
    begin = time.monotonic()
    traces = profiling.prepare() if run.profile else None
    llm = start(run, traces)
    start_seconds = time.monotonic() - begin
    _write(directory / PHASE, "generating")
    calls, profiles = _answer(llm, run.calls, traces)
    result = EngineResult(
        name=run.name,
        calls=calls,
        # vLLM's own workers have none.
        workers=[] if run.settings is None else _worker_reports(llm),
        start_seconds=start_seconds,
        vllm=_vllm_version(),
        profiles=profiles,
    )
    _write(directory / RESULT, result.model_dump_json())
    _write(directory / PHASE, "stopping")


def _answer(
    llm: Any, calls: list[Call], traces: Path | None
) -> tuple[list[CallResult], list[WorkerProfile]]:
    """Answer all calls, the last one under the profiler if `traces` says where."""
    if traces is None:
        return [generate(llm, call) for call in calls], []
    *warm_up, last = calls
    answers = [generate(llm, call) for call in warm_up]
    answer, profiles = profiling.profiled(llm, traces, lambda: generate(llm, last))
    return [*answers, answer], profiles


def start(run: EngineRun, traces: Path | None = None) -> Any:
    """The engine of `run`, ready for calls, and for a profiler if `traces` is given."""
    from vllm import LLM
    from vllm.platforms import current_platform

    arguments: dict[str, Any] = {
        "model": str(run.model),
        "skip_tokenizer_init": True,
        "dtype": run.dtype,
        "pipeline_parallel_size": run.pp,
        "prefill_context_parallel_size": run.pcp,
        "tensor_parallel_size": run.tp,
        "enable_expert_parallel": run.expert_parallel,
        "max_num_batched_tokens": run.max_num_batched_tokens,
        "max_num_seqs": run.max_num_seqs,
        "max_model_len": run.max_model_len,
        "enable_prefix_caching": run.enable_prefix_caching,
        "enforce_eager": True,
        "kv_cache_memory_bytes": run.kv_cache_mib << 20,
    }
    if run.settings is not None:
        arguments["additional_config"] = {"pyvllm_pp": run.settings}
    if not current_platform.is_cpu():
        arguments["worker_cls"] = "pyvllm_pp.GPUWorker"
    if traces is not None:
        arguments["profiler_config"] = profiling.profiler_config(traces)
    return LLM(**{**arguments, **run.engine_args})


def generate(llm: Any, call: Call) -> CallResult:
    """Answer one call."""
    if call.before is not None:
        llm.collective_rpc(call.before)
    # vLLM replaces defaults of each object, so no two prompts share one.
    each = call.sampling
    if isinstance(each, dict):
        each = [each] * len(call.prompts)
    params = [_sampling_params(kwargs) for kwargs in each]
    prompts = [{"prompt_token_ids": prompt} for prompt in call.prompts]
    begin = time.monotonic()
    if call.abort_after:
        outputs = _generate_and_abort(llm.llm_engine, prompts, params, call.abort_after)
    else:
        outputs = llm.generate(prompts, params, use_tqdm=False)
    seconds = time.monotonic() - begin
    return CallResult(
        outputs=[_output(output, output.prompt_token_ids) for output in outputs],
        seconds=seconds,
        **_counters(llm),
    )


def _sampling_params(kwargs: dict[str, Any]) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    structured = kwargs.get("structured_outputs")
    if structured is not None:
        params = StructuredOutputsParams(**structured)
        kwargs = {**kwargs, "structured_outputs": params}
    bias = kwargs.get("logit_bias")
    if bias is not None:
        # JSON has text for keys.
        kwargs = {**kwargs, "logit_bias": {int(k): v for k, v in bias.items()}}
    return SamplingParams(detokenize=False, **kwargs)


def _generate_and_abort(
    engine: Any, prompts: list[Any], params: list[Any], abort_after: dict[int, int]
) -> list[Any]:
    """As ``LLM.generate``; an aborted request has the tokens seen until then."""
    for index, (prompt, each) in enumerate(zip(prompts, params, strict=True)):
        engine.add_request(str(index), prompt, each)
    latest: dict[str, Any] = {}
    while engine.has_unfinished_requests():
        for output in engine.step():
            latest[output.request_id] = output
            limit = abort_after.get(int(output.request_id))
            num_tokens = len(output.outputs[0].token_ids)
            if limit is not None and num_tokens >= limit and not output.finished:
                engine.abort_request([output.request_id])
    return [latest[str(index)] for index in range(len(prompts))]


def _counters(llm: Any) -> dict[str, int]:
    """Counters of :class:`CallResult`, of the engine so far."""
    if not llm.llm_engine.log_stats:
        return {}
    values = {metric.name: metric for metric in llm.get_metrics()}
    return {
        field: int(values[name].value)
        for field, name in _COUNTERS.items()
        if name in values
    }


def _output(output: Any, prompt: list[int]) -> Output:
    given = output.prompt_logprobs or []
    return Output(
        samples=[_sample(sample) for sample in output.outputs],
        num_prompt_logprobs=len(given),
        # vLLM has nothing to say about the first token of a prompt.
        prompt_logprobs=[
            entries[token].logprob
            for entries, token in zip(given, prompt, strict=False)
            if entries is not None
        ],
        num_cached_tokens=output.num_cached_tokens,
        is_aborted=not output.finished,
    )


def _sample(sample: Any) -> Sample:
    token_ids = list(sample.token_ids)
    return Sample(
        token_ids=token_ids,
        logprobs=[
            entries[token].logprob
            for entries, token in zip(sample.logprobs or [], token_ids, strict=False)
        ],
        finish_reason=sample.finish_reason,
        stop_reason=sample.stop_reason,
    )


def _worker_reports(llm: Any) -> list[WorkerReport]:
    reports = llm.collective_rpc("pyvllm_pp_report")
    return [WorkerReport.model_validate(report) for report in reports]


def _vllm_version() -> str:
    import vllm

    return str(vllm.__version__).split("+", maxsplit=1)[0]


def _write(path: Path, text: str) -> None:
    """Write so that a reader sees all of it or nothing."""
    partial = path.with_suffix(".part")
    partial.write_text(text)
    os.replace(partial, path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
