"""Names of the profiler ranges of a step; they stay from version to version."""

from enum import Enum

PREFIX = "pyvllm_pp."


class Range(Enum):
    """Parts of a step, in the order in which they run; `title` is for people.

    ``execute_model`` and ``sample_tokens`` are the two calls of a step and hold the
    others; what is in neither is time that a worker waits or serves its caller.
    """

    scheduler = "scheduler"
    execute_model = "execute_model, other"
    request_state = "request state"
    feedback = "feedback"
    plan = "plan"
    prepare_inputs = "input preparation"
    tables = "tables and local batch"
    block_tables = "block tables and slots"
    attention_metadata = "attention metadata"
    forward = "forward"
    sample_tokens = "sample_tokens, other"
    restore = "restore"
    sample = "sample"
    prompt_logprobs = "prompt logprobs"
    post_update = "post-update"

    @property
    def label(self) -> str:
        """The range's name in a trace, ``pyvllm_pp.forward`` say."""
        return PREFIX + self.name

    @property
    def title(self) -> str:
        """The range in words."""
        return self.value
