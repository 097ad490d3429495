"""Errors of the package, beside Python's own ``ValueError`` and ``TypeError``."""

from pyvllm_pp._core import FeedbackOrderError

__all__ = ["FeedbackOrderError"]
