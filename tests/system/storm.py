"""A task that leaves whatever would end it: ``storm.py MARK [ends]``. MARK is in the command line of each
process that it starts and that stays. It ends with 5 where that is asked for, else it waits to be killed."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

NUM_OF_EACH_KIND, NUM_THREADS, NUM_FORKING = 10, 200, 3


def start(*before: Callable[[], object]) -> None:
    """A process that does this before it sleeps."""
    if os.fork() == 0:
        for step in before:
            step()
        os.execv("/bin/sleep", ["sleep", sys.argv[1]])


def fork_away() -> None:
    """Another one goes on, whose parent is gone."""
    if os.fork():
        os._exit(0)


def bare() -> None:
    """By nothing in it can anybody tell where it came from."""
    os.chdir("/")
    os.closerange(0, 3)
    os.environ.clear()


def fork_for_ever() -> None:
    while True:
        if os.fork() == 0:
            os.setsid()
            fork_away()
            time.sleep(0.02)
            os._exit(0)
        time.sleep(0.002)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue


def main() -> None:
    for _ in range(NUM_OF_EACH_KIND):
        start()
        start(os.setsid)
        start(os.setsid, fork_away, os.setsid, bare)
    for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(signum, signal.SIG_IGN)
    for _ in range(NUM_FORKING):
        if os.fork() == 0:
            fork_for_ever()
    for _ in range(NUM_THREADS):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    Path("stormy").touch()
    if len(sys.argv) > 2:
        os._exit(5)
    time.sleep(600)


if __name__ == "__main__":
    main()
