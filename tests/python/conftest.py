"""Examples are the same in every run, so that a failure is seen by everyone."""

from hypothesis import settings

settings.register_profile("pyvllm_pp", deadline=None, derandomize=True)
settings.load_profile("pyvllm_pp")
