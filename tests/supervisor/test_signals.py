from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import roost

SRC = str(Path(roost.__file__).parents[1])
PROLOGUE = f"""
import os, signal, sys
sys.path.insert(0, {SRC!r})
from roost.supervisor import signals
def masks(*names):
    fields = dict(line.split(":\\t") for line in open("/proc/self/status"))
    return [int(fields[name], 16) for name in names]
def bits(signums):
    return sum(1 << (signum - 1) for signum in signums)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


def ran(code: str) -> str:
    argv = [sys.executable, "-I", "-S", "-c", PROLOGUE + code]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def test_what_would_end_or_pause_it_is_ignored_until_a_worker_gets_the_default_actions() -> None:
    code = """
before = masks("SigIgn")[0]
signals.ignore_others()
signals.install_handler(signals.HANDLED_SIGNALS, lambda *_: None)
signals.block(signals.HANDLED_SIGNALS)
ignored, caught, blocked = masks("SigIgn", "SigCgt", "SigBlk")
rest = [signum for signum in signals.IGNORED_SIGNALS if signum not in signals.HANDLED_SIGNALS]
print(ignored == before & ~bits(signals.HANDLED_SIGNALS) | bits(rest))
print(caught & bits(signals.HANDLED_SIGNALS) == bits(signals.HANDLED_SIGNALS))
print(blocked == bits(signals.HANDLED_SIGNALS))
signals.restore_defaults()
ignored, caught, blocked = masks("SigIgn", "SigCgt", "SigBlk")
others = ~bits({*signals.IGNORED_SIGNALS, *signals.HANDLED_SIGNALS, signal.SIGPIPE, signal.SIGXFSZ})
print(ignored == before & others | bits([signal.SIGHUP]), caught == 0, blocked == 0)
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""
    assert ran(code).split() == ["True"] * 7


def test_handlers_are_called_with_the_number_once_nothing_is_held_back() -> None:
    code = """
came = []
signals.block([signal.SIGTERM])
signals.install_handler([signal.SIGTERM, signal.SIGUSR1], lambda signum, frame: came.append(signum))
os.kill(os.getpid(), signal.SIGTERM)
os.kill(os.getpid(), signal.SIGUSR1)
print(came)
signals.unblock_all()
print(came)
"""
    assert ran(code).splitlines() == [f"[{signal.SIGUSR1:d}]", f"[{signal.SIGUSR1:d}, {signal.SIGTERM:d}]"]


def test_one_that_is_blocked_is_waited_for() -> None:
    code = """
signals.block([signal.SIGTERM])
os.kill(os.getpid(), signal.SIGTERM)
print(signals.wait_for_signal([signal.SIGTERM, signal.SIGINT]) == signal.SIGTERM)
"""
    assert ran(code) == "True\n"
