"""The process that runs a program: the signals that it passes on."""

from __future__ import annotations

import subprocess
import sys

_STOPPED_WHILE_STAGING_ENDS = """
import os, signal, subprocess, sys
from roost.worker.programs.program_task import SignalForwarding

signals = SignalForwarding()
ignores = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); input()"
staging = subprocess.Popen([sys.executable, "-c", ignores], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
staging.stdout.readline()
signals.forward_to(staging)
os.kill(os.getpid(), signal.SIGTERM)
program = subprocess.Popen(["sleep", "60"])
signals.forward_to(program)
staging.stdin.close()
print(program.wait())
"""


def test_a_stop_that_comes_when_the_archives_are_staged_reaches_the_program() -> None:
    command = [sys.executable, "-c", _STOPPED_WHILE_STAGING_ENDS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "-15\n", done.stderr
