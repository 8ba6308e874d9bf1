"""Starts as a template process does, then becomes a worker that records its environment; see
test_forked_worker.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from roost.supervisor.forkserver import forked_worker


def main() -> None:
    started_with = dict(os.environ)
    os.environ["SET_BY_AN_IMPORT"] = "yes"
    warm = forked_worker.WarmWorker(started_with, prepare=lambda: print("prepared"))
    command = [sys.orig_argv[0], *forked_worker.WORKER_ARGUMENTS, *sys.argv[1:]]
    env = {**started_with, "ROOST_TOKEN": "abcdef0123456789" * 2, "ROOST_OWN": "own"}
    assert warm.can_become(command, env)
    assert not warm.can_become(command, {**env, "OTHER": "1"})
    assert not warm.can_become([*command[:3], "other", *command[4:]], env)
    kept, lost = os.open("/dev/null", os.O_RDONLY), os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(kept, True)
    Path("fds").write_text(f"{kept} {lost}")
    try:
        warm.become(command, env)
    finally:
        print("unwound")


main()
