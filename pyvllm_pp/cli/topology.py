"""A topology and the control run that it is compared with."""

from pyvllm_pp.cli.runs import EngineRun


def with_control(run: EngineRun) -> list[EngineRun]:
    """The control of `run` first, then `run`.

    The control of a run with PP is the same run without PP, so that all that differs is
    what this project adds; of a run without PP the same without PCP.

    Raises:
        ValueError: `run` has neither PP nor PCP.
    """
    if run.pp > 1:
        return [run.model_copy(update={"pp": 1}), run]
    if run.pcp > 1:
        return [run.model_copy(update={"pcp": 1}), run]
    raise ValueError(
        f"[topology] pp={run.pp}, pcp={run.pcp}: nothing to compare, expected at least "
        "one of them above 1"
    )
