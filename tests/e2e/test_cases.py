"""Small cases from public bug reports of systems like ours, in real vLLM.

Those that no request can bring about (C3's tables, C4's zero-token row, C10's rank
lengths) have their tests at the level of plan and tables.
"""

import pytest

from tests.e2e.engines import Engines
from tests.e2e.scenarios import (
    BASE,
    LAYERS,
    ONE_TOKEN,
    PCP1,
    PCP2,
    PCP4,
    PCP8,
    PP2,
    PP2_PCP2,
    PP3,
    PREFIX,
    ROOMY,
    SHORT,
    SINGLE,
    STRUCTURED,
    TIGHT,
    Group,
    Topology,
)

LAST = "one prompt of 18"


def test_c1_two_token_prompt_at_pcp2(engines: Engines) -> None:
    engines.check(BASE, "one prompt of 2", PCP2, PCP1)


@pytest.mark.parametrize(
    ("group", "topology"), [(BASE, PCP2), (SHORT, PCP4), (SINGLE, PCP8)], ids=str
)
def test_c2_one_token_prompt_alone(
    engines: Engines, group: Group, topology: Topology
) -> None:
    engines.check(group, "one prompt of 1", topology, PCP1)


@pytest.mark.parametrize(
    ("group", "topology", "length"),
    [(BASE, PCP2, 6), (BASE, PCP2, 9), (SHORT, PCP4, 10), (SINGLE, PCP8, 18)],
    ids=str,
)
def test_c3_single_prompts(
    engines: Engines, group: Group, topology: Topology, length: int
) -> None:
    engines.check(group, f"one prompt of {length}", topology, PCP1)


def test_c4_decodes_beside_a_short_prompt(engines: Engines) -> None:
    engines.check(BASE, "6 prompts of 1 to 300", PCP2, PCP1)


def test_c5_one_decode_at_pcp4(engines: Engines) -> None:
    """Three of four ranks have no token in every step but the first."""
    result = engines.check(SHORT, "one prompt of 1", PCP4, PCP1)
    assert len(result.token_ids()[0]) == 4


def test_c7_three_mixed_requests(engines: Engines) -> None:
    engines.check(BASE, "three mixed", PP2_PCP2, PCP1)


def test_c8_length_not_divisible_by_four(engines: Engines) -> None:
    engines.check(BASE, "one prompt of 203", PP2_PCP2, PCP2)


@pytest.mark.parametrize("topology", [PCP2, PP2_PCP2], ids=str)
def test_c9_a_dummy_batch_leaves_no_state(engines: Engines, topology: Topology) -> None:
    engines.check(BASE, "after a dummy batch", topology, PCP1)


@pytest.mark.parametrize("topology", [PCP2, PP2_PCP2], ids=str)
def test_c11_a_long_step_then_a_short_one(engines: Engines, topology: Topology) -> None:
    engines.check(BASE, "one prompt of 607", topology, PCP1)
    engines.check(BASE, "after a long one, a prompt of 3", topology, PCP1)


@pytest.mark.parametrize("topology", [PCP2, PP2_PCP2], ids=str)
def test_c12_one_request_wants_prompt_logprobs(
    engines: Engines, topology: Topology
) -> None:
    result = engines.check(BASE, "one wants prompt logprobs", topology, PCP1)
    assert [len(output.prompt_logprobs) for output in result.outputs] == [299, 0, 0]


def test_c13_three_stages(engines: Engines) -> None:
    engines.check(LAYERS, "three prompts", PP3, PCP1)
    workers = engines.finished(LAYERS, PP3).result.workers
    assert [worker.feedback_steps > 0 for worker in workers] == [True, True, False]


@pytest.mark.parametrize("topology", [PP2, PP2_PCP2], ids=str)
def test_c14_one_token_for_all_sends_no_feedback(
    engines: Engines, topology: Topology
) -> None:
    engines.check(ONE_TOKEN, "max_tokens 1, all", topology, PCP1)
    workers = engines.finished(ONE_TOKEN, topology).result.workers
    assert [worker.feedback_steps for worker in workers] == [0] * len(workers)


@pytest.mark.parametrize("topology", [PP2, PP2_PCP2], ids=str)
def test_c14_mixed_with_longer_ones_keeps_it(
    engines: Engines, topology: Topology
) -> None:
    result = engines.check(BASE, "max_tokens 1, some", topology, PCP1)
    assert [len(tokens) for tokens in result.token_ids()] == [1, 6, 1, 6]
    first, *_ = engines.finished(BASE, topology).result.workers
    assert first.feedback_steps > 0


@pytest.mark.parametrize("topology", [PCP2, PP2_PCP2], ids=str)
def test_c15_a_fully_computed_request_in_a_freed_slot(
    engines: Engines, topology: Topology
) -> None:
    name = "a fully computed prompt in a freed slot"
    result = engines.check(PREFIX, name, topology, PCP1)
    # All but the last block, whose last token must be computed to be sampled from.
    assert [output.num_cached_tokens for output in result.outputs] == [0, 240, 0]
    alone = engines.call(PREFIX, topology, "a prompt of 256").outputs[0].samples[0]
    assert result.outputs[1].samples[0].token_ids[:4] == alone.token_ids


@pytest.mark.parametrize("topology", [PP2, PP2_PCP2], ids=str)
def test_c16_abort_with_a_token_in_flight(engines: Engines, topology: Topology) -> None:
    """Eight requests in four slots: those that are freed are taken at once."""
    result = engines.check(BASE, "aborts, slots reused", topology, PCP1)
    aborted = [output.is_aborted for output in result.outputs]
    assert aborted == [index in (0, 2, 4) for index in range(8)]
    # Some answers are seen at once, so an abort may come a few tokens late.
    lengths = [len(output.samples[0].token_ids) for output in result.outputs]
    assert all(length < 16 for length, cut in zip(lengths, aborted, strict=True) if cut)


def test_c16_what_an_abort_held_is_free_again(engines: Engines) -> None:
    engines.check(TIGHT, "aborts", PP2_PCP2, PCP1)
    engines.check(TIGHT, "a prompt that needs all blocks", PP2_PCP2, PCP1)


def test_preemption_happened(engines: Engines) -> None:
    engines.check(TIGHT, "preemption", PP2_PCP2, PCP1)
    assert (engines.call(TIGHT, PP2_PCP2, "preemption").num_preemptions or 0) > 0
    assert ROOMY.engine["max_model_len"] == TIGHT.engine["max_model_len"]


def test_shared_prefix_is_taken_from_the_cache(engines: Engines) -> None:
    result = engines.check(PREFIX, "a shared 500-token prefix", PP2_PCP2, PCP1)
    # 31 whole blocks of the 500 tokens.
    assert [output.num_cached_tokens for output in result.outputs] == [496] * 5


def test_stop_tokens_stop(engines: Engines) -> None:
    result = engines.check(BASE, "stop tokens", PP2_PCP2, PCP1)
    samples = [output.samples[0] for output in result.outputs]
    stopped = [sample for sample in samples if sample.finish_reason == "stop"]
    assert stopped
    assert all(sample.token_ids[-1] % 8 == 0 for sample in stopped)
    assert all(token % 8 for sample in stopped for token in sample.token_ids[:-1])


def test_seeds_give_two_samples_each(engines: Engines) -> None:
    result = engines.check(BASE, "n=2 with seeds", PP2_PCP2, PCP1)
    for output in result.outputs:
        first, second = (sample.token_ids for sample in output.samples)
        assert first != second


def test_c17_structured_output(engines: Engines) -> None:
    import json
    import re

    def text(name: str) -> str:
        answers = engines.check(STRUCTURED, name, PP2_PCP2, PCP1)
        return engines.text(STRUCTURED, answers.token_ids()[0])

    assert re.fullmatch("[0-9]{3}-[a-f]{4}", text("structured output: regex"))
    choice = text("structured output: choice, beside free ones")
    assert choice in ("left", "right")
    answer = json.loads(text("structured output: JSON schema"))
    assert set(answer) == {"on"}
    assert isinstance(answer["on"], bool)
