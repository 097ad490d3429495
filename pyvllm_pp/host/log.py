"""The package's logger."""

from typing import Any

from vllm.logger import init_logger


def get_logger(name: str) -> Any:
    """A logger below vLLM's own, so that its level and its handlers apply."""
    return init_logger(f"vllm.{name}")
