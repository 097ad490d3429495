"""Signals that end a program, as an exception: what it started is ended first."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

# A supervisor's, and that of a terminal which closes. Python itself raises at SIGINT.
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def raise_at_termination() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise ``SystemExit(128 + signal)`` within the block.

    Signals that the program handles or ignores are left alone, and so are all of them
    outside the main thread, where Python lets no handler be set.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [each for each in _SIGNALS if signal.getsignal(each) is signal.SIG_DFL]
    for each in ours:
        signal.signal(each, _raise)
    try:
        yield
    finally:
        for each in ours:
            signal.signal(each, signal.SIG_DFL)


def _raise(number: int, _frame: FrameType | None) -> NoReturn:
    # A second one must not cut short what the first one began.
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)
