"""Random steps of every kind that a sweep has to meet."""

from typing import NamedTuple

import numpy as np

from tests.host.batches import Request, Topology, random_request, random_requests

# Positions that a request's block table reaches.
MAX_POSITION = 640
_MAX_PROMPT = 200
_LARGE = Topology(1, max_num_reqs=1500, max_num_tokens=8192)


class Step(NamedTuple):
    """One scheduled step; equal steps give equal batches."""

    requests: tuple[Request, ...]
    slots: tuple[int, ...]  # request slot of each row
    cg_mode: str = "NONE"  # of vLLM's CUDAGraphMode
    extra_tokens: int = 0  # graph tokens beyond the largest rank's
    extra_reqs: int = 0  # graph rows beyond the requests
    draft_budget: int | None = None  # of adaptive verification, None where it is off
    runs_kernels: bool = False  # whether vLLM's own kernels fill the block tables
    seed: int = 0  # of the token ids

    @property
    def num_tokens(self) -> int:
        return sum(request.num_scheduled for request in self.requests)

    @property
    def num_drafts(self) -> int:
        return sum(request.num_drafts for request in self.requests)

    @property
    def budget_binds(self) -> bool:
        """Whether adaptive verification leaves drafts out."""
        return self.draft_budget is not None and self.draft_budget < self.num_drafts


class Block(NamedTuple):
    """Steps that one manager sees in a row."""

    topology: Topology
    rank: int
    steps: tuple[Step, ...]


def random_block(seed: int, index: int, num_steps: int) -> Block:
    """Block `index` of a sweep; one in sixteen has two steps of a thousand requests."""
    rng = np.random.default_rng([seed, index])
    is_large = index % 16 == 15
    topology = random_topology(rng, is_large)
    rank = int(rng.integers(topology.pcp_size))
    steps: list[Step] = []
    for _ in range(min(2, num_steps) if is_large else num_steps):
        if steps and rng.random() < 0.2 and can_go_on(steps[-1]):
            steps.append(next_step(steps[-1]))
        else:
            steps.append(random_step(rng, topology, is_large))
    return Block(topology, rank, tuple(steps))


def random_topology(rng: np.random.Generator, is_large: bool = False) -> Topology:
    pcp_size = int(rng.integers(1, 9))
    tp_size = int(rng.integers(2, 4))
    return Topology(
        pcp_size,
        dcp_size=int(rng.choice([1, 1, pcp_size, tp_size * pcp_size])),
        max_num_reqs=_LARGE.max_num_reqs if is_large else 64,
        max_num_tokens=_LARGE.max_num_tokens if is_large else 4096,
        cp_interleave=int(rng.choice([1, 1, 4, 16])),
        moe_gathers_tokens=bool(rng.random() < 0.5),
    )


def random_step(
    rng: np.random.Generator, topology: Topology, is_large: bool = False
) -> Step:
    """A batch, and a graph that fits it: none, piecewise or for decodes only."""
    kind = str(rng.choice(["decodes", "verification", "prefills", "mixed", "mixed"]))
    if is_large:
        num_reqs = int(rng.integers(1001, 1300))
    else:
        # Mostly few: stock's cost, and what there is to find, lies in the kinds.
        num_reqs = 1 + int(rng.geometric(0.2)) % 40
    requests = _requests_of(rng, kind, num_reqs, topology)
    if sum(request.num_scheduled for request in requests) == 0:
        requests[0] = Request(3, 0, 5)
    draft_budget = _random_budget(rng, requests) if kind == "verification" else None
    has_prefill = any(request.is_prefilling for request in requests)
    share = rng.random()
    mode = (
        "NONE" if share < 0.5 else "PIECEWISE" if has_prefill or share < 0.7 else "FULL"
    )
    slots = rng.permutation(topology.max_num_reqs)[:num_reqs].tolist()
    return Step(
        tuple(requests),
        tuple(slots),
        cg_mode=mode,
        extra_tokens=0 if mode == "NONE" else int(rng.integers(0, 9)),
        extra_reqs=int(rng.integers(0, 9)) if mode == "FULL" else 0,
        draft_budget=draft_budget,
        runs_kernels=_can_interpret(topology, num_reqs) and bool(rng.random() < 0.01),
        seed=int(rng.integers(2**31)),
    )


def _can_interpret(topology: Topology, num_reqs: int) -> bool:
    """The interpreter takes milliseconds a row, and fails on slots under DCP."""
    return num_reqs <= 6 and topology.dcp_size == 1


def _requests_of(
    rng: np.random.Generator, kind: str, num_reqs: int, topology: Topology
) -> list[Request]:
    budget = topology.max_num_tokens // 2
    if kind == "mixed":
        return random_requests(rng, num_reqs, budget)
    if kind == "decodes":
        return [random_request(rng, "decode", 1) for _ in range(num_reqs)]
    if kind == "verification":
        drafting = int(rng.integers(1, num_reqs + 1))
        kinds = ["drafts"] * drafting + ["decode"] * (num_reqs - drafting)
        return [random_request(rng, kind, 1) for kind in kinds]
    most = max(1, min(_MAX_PROMPT, budget // num_reqs))
    kinds = rng.choice(["prompt", "tiny", "continued"], size=num_reqs).tolist()
    return [random_request(rng, kind, most) for kind in kinds]


def _random_budget(rng: np.random.Generator, requests: list[Request]) -> int | None:
    """Half of the time adaptive verification is off; seldom its budget binds."""
    num_drafts = sum(request.num_drafts for request in requests)
    share = rng.random()
    if share < 0.5:
        return None
    return num_drafts if share < 0.9 else int(rng.integers(num_drafts))


def can_go_on(step: Step) -> bool:
    return not step.num_drafts and all(
        not request.is_prefilling and request.num_computed + 1 < MAX_POSITION
        for request in step.requests
    )


def next_step(step: Step) -> Step:
    """The same decodes one token later: the tables can stand."""
    requests = tuple(
        request._replace(num_computed=request.num_computed + request.num_scheduled)
        for request in step.requests
    )
    return step._replace(requests=requests, seed=step.seed ^ 1, runs_kernels=False)
