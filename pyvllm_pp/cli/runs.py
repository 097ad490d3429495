"""What an engine run is asked, and what comes back; both cross processes as JSON."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Call(_Frozen):
    """One ``LLM.generate``: all prompts at once."""

    prompts: list[list[int]]
    # SamplingParams of every prompt, or one of each.
    sampling: dict[str, Any] | list[dict[str, Any]]
    # Prompts to abort, by index, once they have this many tokens.
    abort_after: dict[int, int] = Field(default_factory=dict)
    # A method of the workers that is called before.
    before: str | None = None


class EngineRun(_Frozen):
    """One engine in one topology, and the calls it answers one after the other."""

    model: Path
    calls: list[Call]
    pp: int = Field(1, ge=1)
    pcp: int = Field(1, ge=1)
    tp: int = Field(1, ge=1)
    expert_parallel: bool = False
    max_num_batched_tokens: int = Field(256, ge=1)
    max_num_seqs: int = Field(8, ge=1)
    max_model_len: int | None = None
    dtype: str = "float32"
    kv_cache_mib: int = Field(64, ge=1)
    enable_prefix_caching: bool = False
    # Section `pyvllm_pp` of vLLM's additional_config. Being there at all, even empty,
    # it also selects this backend for a run without PP and PCP; None leaves it out.
    settings: Any = Field(default_factory=dict)
    # Profile the last call; the ones before it warm up.
    profile: bool = False
    # More arguments of vllm.LLM, and variables of the engine's environment.
    engine_args: dict[str, Any] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        """The topology in short, as in ``PP2+PCP2``."""
        sizes = {"PP": self.pp, "PCP": self.pcp, "TP": self.tp}
        return "+".join(f"{k}{v}" for k, v in sizes.items() if v > 1) or "PCP1"

    @property
    def num_workers(self) -> int:
        """Worker processes of the engine."""
        return self.pp * self.pcp * self.tp


class Sample(_Frozen):
    """One continuation of a prompt."""

    token_ids: list[int]
    logprobs: list[float]  # of the chosen token, one a position
    finish_reason: str | None
    stop_reason: int | str | None


class Output(_Frozen):
    """The answer to one prompt."""

    samples: list[Sample]
    num_prompt_logprobs: int  # positions that vLLM answered, the first included
    prompt_logprobs: list[float]  # of each prompt token but the first
    num_cached_tokens: int | None
    is_aborted: bool = False


class CallResult(_Frozen):
    """Answers in the order of the prompts."""

    outputs: list[Output]
    seconds: float
    # Of the engine so far; None where it keeps no statistics.
    num_preemptions: int | None = None
    num_drafts: int | None = None  # tokens that were drafted
    num_accepted_drafts: int | None = None

    def token_ids(self) -> list[list[int]]:
        """The first sample of each prompt."""
        return [output.samples[0].token_ids for output in self.outputs]


class WorkerReport(BaseModel):
    """What a worker says of itself; it may say more than this."""

    model_config = ConfigDict(frozen=True, extra="allow")

    rank: int
    pp_rank: int
    pcp_rank: int
    runner: str
    pcp_manager: str | None = None
    pp_handler: str | None = None
    feedback_steps: int = 0


class RangeTime(_Frozen):
    """Time in one range of :class:`pyvllm_pp.ranges.Range` over a profile."""

    name: str
    calls: int
    own_us: float  # without the ranges inside it


class WorkerProfile(_Frozen):
    """The ranges of one process over a profile; ``scheduler`` or ``rank N``."""

    worker: str
    num_steps: int
    wall_us: float  # from the begin of the first range to the end of the last
    ranges: list[RangeTime]


class EngineResult(_Frozen):
    """All calls of a run, and who computed them: nobody's report without settings."""

    name: str
    calls: list[CallResult]
    workers: list[WorkerReport]
    start_seconds: float
    vllm: str
    profiles: list[WorkerProfile] = []
