"""What engines are asked, grouped by the configuration of the engine.

An engine answers all calls of its group one after the other, so a scenario costs what
it generates and not an engine of its own.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from pyvllm_pp.cli.model import ModelSpec
from pyvllm_pp.cli.runs import Call, EngineRun
from tests.e2e.hooks import hook
from tests.e2e.prompts import call, greedy, mixed, prompt

_EIGHTH = list(range(0, 1024, 8))
_SHARED = prompt(500, seed=50)
# A whole number of blocks: all of it is in the cache when it comes again.
_REPEATED = prompt(256, seed=51)


@dataclass(frozen=True)
class Group:
    """An engine's configuration beside its topology, and its calls by name."""

    name: str
    calls: dict[str, Call]
    text: str = ""  # what is special about it, for the table
    spec: ModelSpec = field(default_factory=ModelSpec)
    engine: dict[str, Any] = field(default_factory=dict)  # fields of EngineRun
    # The group whose calls of the same names are compared with; None for itself.
    control: "Group | None" = None
    needs_tokenizer: bool = False

    def __str__(self) -> str:
        return self.name

    def only(
        self, name: str, text: str, names: tuple[str, ...], **more: Any
    ) -> "Group":
        """Some calls of this group, compared with it, in an engine that differs."""
        calls = {key: self.calls[key] for key in names}
        engine = {**self.engine, **more}
        return Group(name, calls, text, self.spec, engine, self.control or self)


@dataclass(frozen=True)
class Topology:
    """Sizes of the groups of workers."""

    pp: int = 1
    pcp: int = 1
    tp: int = 1
    expert_parallel: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        sizes = {"PP": self.pp, "PCP": self.pcp, "TP": self.tp}
        names = [f"{key}{size}" for key, size in sizes.items() if size > 1]
        return "+".join(names + ["EP"] * self.expert_parallel) or "PCP1"

    def run(self, group: Group, model: Any) -> EngineRun:
        return EngineRun(
            model=model,
            calls=list(group.calls.values()),
            **{**vars(self), "max_num_seqs": 4, "max_model_len": 1024, **group.engine},
        )


PCP1 = Topology()
PCP2 = Topology(pcp=2)
PCP4 = Topology(pcp=4)
PCP8 = Topology(pcp=8)
PP2 = Topology(pp=2)
PP3 = Topology(pp=3)
PP2_PCP2 = Topology(pp=2, pcp=2)
PP2_PCP2_EP = Topology(pp=2, pcp=2, expert_parallel=True)
PP2_TP2 = Topology(pp=2, tp=2)
TP2_PCP2 = Topology(tp=2, pcp=2)
PP3_PCP2 = Topology(pp=3, pcp=2)

_QUEUE = [1, 2, 3, 7, 12, 33, 64, 100, 150, 257, 300, 511, 640, 900]

BASE = Group(
    "base",
    {
        "607 and 7 tokens, prompt logprobs": call([607, 7], 8, prompt_logprobs=0),
        "14 prompts of 1 to 900, queueing": call(_QUEUE, 24),
        "6 prompts of 1 to 300": call([300, 1, 40, 9, 130, 2], 8),
        "one prompt of 1": call([1], 4),
        "prompts of 1": call([1, 1, 1, 1, 1], 6),
        "one prompt of 2": call([2], 4),
        "one prompt of 6": call([6], 2),
        "one prompt of 9": call([9], 2),
        "one prompt of 10": call([10], 2),
        "one prompt of 18": call([18], 2),
        "one prompt of 203": call([203], 4),
        "one prompt of 607": call([607], 2),
        "after a long one, a prompt of 3": call([3], 4),
        "three mixed": mixed([40, 3, 300], [greedy(9), greedy(12), greedy(5)]),
        "max_tokens 1, all": call([5, 70, 300], 1),
        "max_tokens 1, some": mixed(
            [5, 70, 300, 20], [greedy(1), greedy(6), greedy(1), greedy(6)]
        ),
        "stop tokens": call([30, 31, 32, 33], 32, stop_token_ids=_EIGHTH),
        "n=2 with seeds": mixed(
            [25, 90],
            [greedy(8, temperature=0.9, n=2, seed=seed) for seed in (11, 12)],
        ),
        "one wants prompt logprobs": mixed(
            [300, 40, 9], [greedy(6, prompt_logprobs=0), greedy(6), greedy(6)]
        ),
        "after a dummy batch": call([50, 4], 6).model_copy(
            update={"before": "execute_dummy_batch"}
        ),
        "aborts, slots reused": mixed(
            [80, 12, 200, 31, 7, 60, 150, 22],
            [greedy(16)] * 8,
            abort_after={0: 3, 2: 6, 4: 1},
        ),
    },
)
SHORT_CALLS = (
    "607 and 7 tokens, prompt logprobs",
    "6 prompts of 1 to 300",
    "one prompt of 1",
    "one prompt of 10",
    "three mixed",
)
SHORT = BASE.only("short", "", SHORT_CALLS)
SINGLE = BASE.only("single", "", ("one prompt of 1", "one prompt of 18"))
SKIP_PADDING = [
    BASE.only(
        f"skip padding {value}",
        f"VLLM_MOE_SKIP_PADDING={value}",
        SHORT_CALLS,
        env={"VLLM_MOE_SKIP_PADDING": value},
    )
    for value in ("0", "1")
]
ASYNC = BASE.only(
    "async",
    "async scheduling kept on",
    (*SHORT_CALLS, "max_tokens 1, some", "aborts, slots reused"),
    engine_args={"async_scheduling": True},
    env=hook("keep_async_scheduling"),
)
COMPILED = BASE.only(
    "compiled",
    "torch.compile",
    SHORT_CALLS,
    engine_args={"enforce_eager": False},
)
ONE_TOKEN = BASE.only("one token", "nothing but max_tokens 1", ("max_tokens 1, all",))

PREFIX = Group(
    "prefix",
    {
        "a 500-token prefix, first": Call(
            prompts=[_SHARED + prompt(20, 1)], sampling=greedy(4)
        ),
        "a shared 500-token prefix": Call(
            prompts=[_SHARED + prompt(n, 2) for n in (1, 5, 30, 77, 200)],
            sampling=greedy(8),
        ),
        "a prompt of 256": Call(prompts=[_REPEATED], sampling=greedy(4)),
        "a fully computed prompt in a freed slot": Call(
            prompts=[prompt(9), _REPEATED, prompt(40)], sampling=greedy(6)
        ),
    },
    "prefix caching",
    engine={"enable_prefix_caching": True},
)

_TIGHT = {
    "preemption": call([100, 90, 110, 95], 60),
    "aborts": mixed(
        [60, 80, 50, 40], [greedy(30)] * 4, abort_after={0: 4, 1: 9, 3: 20}
    ),
    "a prompt that needs all blocks": call([390], 4),
}
ROOMY = Group("roomy", _TIGHT, engine={"max_model_len": 400})
# 416 tokens, and four requests of up to 170.
TIGHT = Group(
    "tight",
    _TIGHT,
    "KV cache of 26 blocks",
    engine={
        "max_model_len": 400,
        "engine_args": {"num_gpu_blocks_override": 26, "disable_log_stats": False},
    },
    control=ROOMY,
)

LAYERS = Group(
    "layers",
    {
        "three prompts": call([40, 3, 300], 9),
        "607 and 7 tokens, prompt logprobs": call([607, 7], 8, prompt_logprobs=0),
    },
    "4 layers",
    spec=ModelSpec(num_layers=4),
)

_MTP = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}}
_MTP_SPEC = ModelSpec(num_mtp_layers=1)
MTP_MODEL = Group(
    "mtp model",
    {
        "607 and 7 tokens, prompt logprobs": call([607, 7], 8, prompt_logprobs=0),
        "8 prompts of 1 to 300, queueing": call([300, 1, 40, 9, 130, 2, 3, 64], 24),
        "max_tokens 1, some": mixed(
            [5, 70, 300, 20], [greedy(1), greedy(6), greedy(1), greedy(6)]
        ),
        "stop tokens": call([30, 31, 32, 33], 32, stop_token_ids=_EIGHTH),
        "n=2 with seeds": mixed(
            [25, 90],
            [greedy(8, temperature=0.9, n=2, seed=seed) for seed in (11, 12)],
        ),
        "aborts, slots reused": mixed(
            [80, 12, 200, 31, 7, 60, 150, 22],
            [greedy(16)] * 8,
            abort_after={0: 3, 2: 6, 4: 1},
        ),
    },
    spec=_MTP_SPEC,
)
# Greedy tokens are those without drafts; random ones come from another stream.
MTP = MTP_MODEL.only(
    "mtp",
    "2 MTP drafts a step",
    tuple(MTP_MODEL.calls),
    engine_args={**_MTP, "disable_log_stats": False},
)
MTP_ITSELF = replace(MTP, control=None)
_MTP_ROOMY = replace(ROOMY, name="mtp roomy", spec=_MTP_SPEC)
MTP_TIGHT = Group(
    "mtp tight",
    _TIGHT,
    "2 MTP drafts a step, KV cache of 26 blocks",
    spec=_MTP_SPEC,
    engine={
        "max_model_len": 400,
        "engine_args": {
            **_MTP,
            "num_gpu_blocks_override": 26,
            "disable_log_stats": False,
        },
    },
    control=_MTP_ROOMY,
)

STRUCTURED = Group(
    "structured",
    {
        "structured output: regex": call(
            [20, 70],
            24,
            ignore_eos=False,
            structured_outputs={"regex": "[0-9]{3}-[a-f]{4}"},
        ),
        "structured output: choice, beside free ones": mixed(
            [20, 300, 9],
            [
                greedy(
                    16,
                    ignore_eos=False,
                    structured_outputs={"choice": ["left", "right"]},
                ),
                greedy(10),
                greedy(10),
            ],
        ),
        "structured output: JSON schema": call(
            [33],
            48,
            ignore_eos=False,
            structured_outputs={
                "json": {
                    "type": "object",
                    "properties": {"on": {"type": "boolean"}},
                    "required": ["on"],
                    "additionalProperties": False,
                }
            },
        ),
    },
    "with a tokenizer",
    engine={"engine_args": {"skip_tokenizer_init": False}},
    needs_tokenizer=True,
)
