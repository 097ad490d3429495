from types import SimpleNamespace
from typing import Any

import pytest

from pyvllm_pp.host.settings import Settings, is_wanted
from pyvllm_pp.plan import Partition


def config(pp: int = 1, pcp: int = 1, additional: Any = None) -> Any:
    parallel = SimpleNamespace(
        pipeline_parallel_size=pp, prefill_context_parallel_size=pcp
    )
    return SimpleNamespace(parallel_config=parallel, additional_config=additional or {})


def test_defaults() -> None:
    settings = Settings.read({})
    assert settings.partition_policy() is Partition.dual_chunk_swap
    assert settings.restore == "selected"
    assert Settings.read(None) == settings
    assert Settings.read({"pyvllm_pp": {"restore": "dense"}}).restore == "dense"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"partiton": "x"},
            r"unknown key 'partiton'; valid keys: \['kernels', 'partition'",
        ),
        ({"partition": "x"}, r"is 'x'; valid values: \['dual_chunk_swap'"),
        ({"restore": None}, r"is None; valid values: \['dense', 'selected'\]"),
    ],
)
def test_unknown_settings_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings.read({"pyvllm_pp": given})


def test_settings_that_are_no_mapping_are_refused() -> None:
    with pytest.raises(TypeError, match="is 'dense', expected a mapping"):
        Settings.read({"pyvllm_pp": "dense"})


def test_wanted_only_for_pp_pcp_or_own_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYVLLM_PP", raising=False)
    assert not is_wanted(config())
    assert is_wanted(config(pp=2))
    assert is_wanted(config(pcp=2))
    assert is_wanted(config(additional={"pyvllm_pp": {}}))
    monkeypatch.setenv("PYVLLM_PP", "0")
    assert not is_wanted(config(pp=2, pcp=2))
