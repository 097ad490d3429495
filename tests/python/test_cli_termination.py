"""A program that is told to end, while an engine of its own runs."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pyvllm_pp.cli.processes import session_processes

# Says the session of an engine that never answers, once it runs.
PROGRAM = """
import signal
import subprocess
from pathlib import Path
from pyvllm_pp.cli.engine import run_engine
from pyvllm_pp.cli.runs import EngineRun

# As in a terminal: nohup and a shell's & leave signals ignored.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

def launch(directory, env, log):
    engine = subprocess.Popen(["sleep", "600"], start_new_session=True)
    print(engine.pid, directory, flush=True)
    return engine

run_engine(EngineRun(model=Path("model"), calls=[]), launch=launch)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_program_told_to_end_ends_its_engine_first(number: signal.Signals) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with program:
        assert program.stdout
        session, directory = program.stdout.readline().split()
        assert session_processes(int(session)) != []
        program.send_signal(number)
        # SIGINT is Python's own: an exception that nobody catches, then the signal.
        ended = -number if number == signal.SIGINT else 128 + number
        assert program.wait(timeout=30) == ended
    assert session_processes(int(session)) == []
    assert not Path(directory).exists()
