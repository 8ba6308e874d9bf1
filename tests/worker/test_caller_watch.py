"""A process that ends with the one that waits for it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from roost.package import sessions

WATCHED = """
import json, sys, threading
from roost.worker.caller_watch import end_with_caller
caller = json.loads(sys.argv[1])
end_with_caller(caller)
print("watching", flush=True)
threading.Event().wait()
"""

SUPERVISES = """
import signal, subprocess, sys
signal.signal(signal.SIGQUIT, lambda *_: (child.kill(), print("ended", flush=True), sys.exit(0)))
child = subprocess.Popen([sys.executable, "-c", *sys.argv[1:]])
child.wait()
signal.pause()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_ends_with_who_asked_for_it() -> None:
    caller = subprocess.Popen(["sleep", "60"])
    identity = {**sessions.own_identity(), "pid": caller.pid, "start_ticks": None}
    watched = subprocess.Popen(
        [sys.executable, "-c", SUPERVISES, WATCHED, json.dumps(identity)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert watched.stdout is not None
        assert watched.stdout.readline() == "watching\n"
        assert watched.poll() is None
        caller.send_signal(signal.SIGKILL)
        caller.wait()
        assert watched.stdout.readline() == "ended\n"
        assert watched.wait(100) == 0
    finally:
        for process in (caller, watched):
            process.kill()
            process.wait()
        assert watched.stdout is not None
        watched.stdout.close()
