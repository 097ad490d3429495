"""The cause of an engine's failure, found in its log.

When one worker fails, its peers, the engine core and the front process fail after it,
each with an error about the one before. What a person needs is the first of them.
"""

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

# "(Worker_PP0_PCP1 pid=7) ERROR 12-01 17:36:01 [file.py:3] text"
_PREFIX = re.compile(
    r"\((?P<process>[^\s()]+) pid=\d+\) (?:[A-Z]+ \d\d-\d\d [\d:]+ \[[^\]]*\] ?)?"
)
_TRACEBACK = "Traceback (most recent call last):"
# A process goes on after a traceback that it logs so.
_HARMLESS = re.compile(r"\) (WARNING|INFO|DEBUG) ")
_DEATH = re.compile(r"\S+ died unexpectedly(?: \(exit code: [^)]*\))?")
_EXCEPTION = re.compile(r"[A-Za-z_.][\w.]*(:|$)")
_CHAINED = ("During handling of", "The above exception")
_MAIN = "main"
# Lines of an exception's own text; without a prefix its end cannot be told.
_MAX_ERROR_LINES = 8

# A process that logs one of these is lost, even where vLLM goes on waiting for it.
FATAL = (
    "WorkerProc hit an exception",
    "WorkerProc failed",
    "EngineCore failed to start",
    "EngineCore encountered a fatal error",
    "died unexpectedly",
    "Fatal Python error",
)

# Errors about another process's error.
_CONSEQUENCES = re.compile(
    "|".join(
        (
            r"[Cc]onnection (was )?(closed|reset|refused)",
            r"Broken pipe",
            r"Read timeout|Timed out waiting|Application timeout",
            r"WorkerProc initialization failed",
            r"Engine core initialization failed",
            r"EngineDeadError|EngineCore encountered an issue",
            r"Executor failed",
            r"Worker failed with error",
            r"RuntimeError: cancelled",
            r"SystemExit|KeyboardInterrupt",
        )
    )
)


class Failure(NamedTuple):
    """A traceback of one process."""

    process: str
    error: str  # the exception, without its frames
    traceback: str

    @property
    def is_consequence(self) -> bool:
        """Whether another process failed first."""
        return bool(_CONSEQUENCES.search(self.error))


class _Line(NamedTuple):
    number: int
    prefix: str  # equal for all lines of one log record
    text: str


def failures(log: str) -> list[Failure]:
    """All tracebacks of a log, in the order in which they were written."""
    found = [
        (lines[0].number, _failure(process, lines))
        for process, own_lines in _by_process(log).items()
        for lines in _tracebacks(own_lines)
    ]
    return [failure for _, failure in sorted(found, key=lambda pair: pair[0])]


def root_cause(log: str) -> Failure | None:
    """The first failure that no other one explains: a worker's before the others'."""
    candidates = [failure for failure in failures(log) if not failure.is_consequence]
    return min(candidates, key=_distance_from_worker, default=None)


def unexpected_death(log: str) -> str | None:
    """What vLLM says of a process that ended without a word, as by a signal."""
    match = _DEATH.search(log)
    return None if match is None else match[0]


def is_fatal(log: str) -> bool:
    """Whether the log says that a process is lost."""
    return any(mark in log for mark in FATAL)


def _distance_from_worker(failure: Failure) -> int:
    if failure.process.startswith(("Worker", "VllmWorker")):
        return 0
    return 2 if failure.process == _MAIN else 1


def _by_process(log: str) -> dict[str, list[_Line]]:
    lines: dict[str, list[_Line]] = {}
    for number, text in enumerate(log.splitlines()):
        match = _PREFIX.match(text)
        if match is None:
            name, line = _MAIN, _Line(number, "", text)
        else:
            name = match["process"].replace("MainProcess", _MAIN)
            line = _Line(number, match[0], text[match.end() :])
        lines.setdefault(name, []).append(line)
    return lines


def _tracebacks(lines: list[_Line]) -> Iterator[list[_Line]]:
    """Each traceback: its heading, its frames and the text of its exception."""
    for start, line in enumerate(lines):
        if line.text.strip() != _TRACEBACK or _HARMLESS.search(line.prefix):
            continue
        rest = [other for other in lines[start + 1 :] if other.prefix == line.prefix]
        frames = list(takewhile(lambda other: other.text.startswith(" "), rest))
        error = takewhile(_is_error_text, rest[len(frames) :][:_MAX_ERROR_LINES])
        block = [line, *frames, *error]
        if _EXCEPTION.match(block[-1].text) or len(block) > len(frames) + 1:
            yield block


def _is_error_text(line: _Line) -> bool:
    text = line.text.strip()
    return bool(text) and text != _TRACEBACK and not text.startswith(_CHAINED)


def _failure(process: str, lines: list[_Line]) -> Failure:
    texts = [line.text for line in lines]
    frames = len(list(takewhile(lambda text: text.startswith(" "), texts[1:])))
    return Failure(process, "\n".join(texts[1 + frames :]), "\n".join(texts))
