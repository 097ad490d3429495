"""C20: more ranks than devices is an error that spells out the ranks."""

from types import SimpleNamespace
from typing import Any

import pytest

from pyvllm_pp.host.ranks import check_ranks


def parallel(nodes: int = 1, data_parallel: int = 1) -> Any:
    return SimpleNamespace(
        tensor_parallel_size=2,
        prefill_context_parallel_size=2,
        pipeline_parallel_size=3,
        local_world_size=12 // nodes,
        nnodes_within_dp=nodes,
        data_parallel_size_local=data_parallel,
    )


def test_c20_enough_devices_pass() -> None:
    check_ranks(parallel(), 12, "GPUs")
    check_ranks(parallel(nodes=2), 6, "GPUs")


def test_c20_more_ranks_than_devices() -> None:
    expected = r"^TP 2 x PCP 2 x PP 3 = 12 ranks on this node, but 8 visible GPUs$"
    with pytest.raises(ValueError, match=expected):
        check_ranks(parallel(), 8, "visible GPUs")
    with pytest.raises(ValueError, match=r"PP 3 over 2 nodes = 6 ranks"):
        check_ranks(parallel(nodes=2), 4, "visible GPUs")
    with pytest.raises(ValueError, match=r"PP 3 x DP 2 = 24 ranks"):
        check_ranks(parallel(data_parallel=2), 12, "visible GPUs")
