"""Versions: which are taken, which are refused and where, and what adapters define."""

import importlib
import re
from types import SimpleNamespace
from typing import Any

import pytest
import vllm

from pyvllm_pp.host.compat import (
    SUPPORTED,
    adapter,
    check_version,
    replaced_global,
    supported_minor,
    vllm_minor,
)

NAMES = {"HandlerFace", "ManagerFace", "RunnerFace", "WorkerFace", "validation_view"}
LIST = "supported versions: 0.31.x, 0.32.x, 0.33.x"


@pytest.mark.parametrize(
    ("version", "minor"),
    [
        ("0.31.0", "0.31"),
        ("0.31.0+cpu", "0.31"),
        ("0.32.1", "0.32"),
        ("0.32.0.post2", "0.32"),
        ("0.33.12+cu130.local", "0.33"),
    ],
)
def test_patch_post_and_local_releases_count_as_their_minor(
    version: str, minor: str
) -> None:
    assert supported_minor(version) == minor


@pytest.mark.parametrize(
    "version", ["0.12.0", "0.30.0", "0.34.0", "0.3.2", "0.320.0", "1.32.0", "0.30.9"]
)
def test_other_minors_are_refused_with_the_supported_ones(version: str) -> None:
    message = re.escape(f"does not support vLLM {version}; {LIST}") + "$"
    with pytest.raises(RuntimeError, match=message):
        supported_minor(version)


@pytest.mark.parametrize(
    "version",
    ["0.33.0rc1", "0.32.1.dev7+g0a1b2c3", "0.32.1.dev0", "0.33.0a1", "dev", ""],
)
def test_development_builds_and_candidates_are_refused(version: str) -> None:
    message = re.escape(f"does not support vLLM {version}; {LIST} (releases)") + "$"
    with pytest.raises(RuntimeError, match=message):
        supported_minor(version)


def test_the_installed_version_is_supported() -> None:
    assert check_version() == vllm_minor(vllm.__version__)
    assert adapter().__name__.endswith(check_version().replace(".", "_"))


@pytest.mark.parametrize("minor", SUPPORTED)
def test_every_supported_version_has_a_whole_adapter(minor: str) -> None:
    """0.33's names a class of its vLLM, so each is imported where it can be."""
    path = "pyvllm_pp.host.compat.v" + minor.replace(".", "_")
    if minor == "0.33" and check_version() != "0.33":
        with pytest.raises(ImportError, match="PCPBatchMetadata"):
            importlib.import_module(path)
        return
    assert vars(importlib.import_module(path)).keys() >= NAMES


def wanted_config(pp: int, pcp: int) -> Any:
    parallel = SimpleNamespace(
        pipeline_parallel_size=pp,
        prefill_context_parallel_size=pcp,
        distributed_executor_backend="uni",
    )
    return SimpleNamespace(parallel_config=parallel, additional_config={})


def test_a_run_on_an_unsupported_version_is_refused_at_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On CPU before anything of the configuration is read, on a GPU in the worker."""
    from pyvllm_pp.host.cpu.platform import PipelineCpuPlatform
    from pyvllm_pp.host.worker import GPUWorker

    monkeypatch.setattr(vllm, "__version__", "0.34.0")
    with pytest.raises(RuntimeError, match=re.escape(f"vLLM 0.34.0; {LIST}")):
        PipelineCpuPlatform.check_and_update_config(wanted_config(pp=2, pcp=2))
    with pytest.raises(RuntimeError, match=re.escape(f"vLLM 0.34.0; {LIST}")):
        GPUWorker(wanted_config(pp=2, pcp=2))


def test_replacing_a_global_that_is_gone_fails_loudly() -> None:
    from tests.host import batches

    with (
        pytest.raises(RuntimeError, match="has no 'not_there'"),
        replaced_global(batches, "not_there", 1),
    ):
        pass
    original = batches.Request
    with replaced_global(batches, "Request", None):
        assert batches.Request is None
    assert batches.Request is original
