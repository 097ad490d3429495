"""Whether a run's ranks have the devices that they need."""

from typing import Any


def check_ranks(parallel_config: Any, num_devices: int, devices: str) -> None:
    """Refuse more ranks on this node than there are devices.

    Args:
        parallel_config: vLLM's.
        num_devices: how many there are.
        devices: what they are, for the message.

    Raises:
        ValueError: spells out the ranks and the devices.
    """
    local_size = parallel_config.data_parallel_size_local
    num_ranks = parallel_config.local_world_size * local_size
    if num_ranks <= num_devices:
        return
    sizes = {
        "TP": parallel_config.tensor_parallel_size,
        "PCP": parallel_config.prefill_context_parallel_size,
        "PP": parallel_config.pipeline_parallel_size,
        "DP": local_size,
    }
    product = " x ".join(
        f"{name} {size}" for name, size in sizes.items() if name != "DP" or size > 1
    )
    nodes = parallel_config.nnodes_within_dp
    across = f" over {nodes} nodes" if nodes > 1 else ""
    raise ValueError(
        f"{product}{across} = {num_ranks} ranks on this node, but {num_devices} "
        f"{devices}"
    )
