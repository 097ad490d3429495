"""Whose error ends a failed engine, told from logs as vLLM writes them."""

from pyvllm_pp.cli.blame import failures, is_fatal, root_cause, unexpected_death

TIME = "12-03 09:20:01"


def record(process: str, level: str, *lines: str) -> list[str]:
    """A log record; every line has the prefix, as vLLM's formatter makes it."""
    return [f"({process} pid=7) {level} {TIME} [file.py:3] {line}" for line in lines]


def traceback(error: str) -> tuple[str, ...]:
    return ("Traceback (most recent call last):", '  File "a.py", line 1', error)


def text(*records: list[str]) -> str:
    return "\n".join(line for lines in records for line in lines)


WARMUP = record(
    "MainProcess", "WARNING", "Chat template warmup failed", *traceback("ValueError: x")
)


def test_the_first_worker_is_to_blame() -> None:
    log = text(
        record("EngineCore", "ERROR", *traceback("RuntimeError: Executor failed.")),
        record("Worker_PP0", "ERROR", *traceback("RuntimeError: Connection closed")),
        record("Worker_PP1", "ERROR", *traceback("IndexError: 3 is out of range")),
    )
    cause = root_cause(log)
    assert cause is not None
    assert (cause.process, cause.error) == (
        "Worker_PP1",
        "IndexError: 3 is out of range",
    )


def test_a_logged_warning_is_no_failure() -> None:
    """Its process goes on, so a worker killed later must not be hidden by it."""
    dead = "Worker proc VllmWorker-2 died unexpectedly (exit code: -9), shutting down"
    log = text(WARMUP, record("EngineCore", "ERROR", dead))
    assert failures(text(WARMUP)) == []
    assert root_cause(log) is None
    assert is_fatal(log)
    expected = "VllmWorker-2 died unexpectedly (exit code: -9)"
    assert unexpected_death(log) == expected
    assert unexpected_death(text(WARMUP)) is None


def test_a_traceback_without_a_prefix_is_the_front_process() -> None:
    cause = root_cause(text(WARMUP, list(traceback("ValueError: bad"))))
    assert cause is not None
    assert (cause.process, cause.error) == ("main", "ValueError: bad")
