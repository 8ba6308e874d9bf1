"""A worker of the kill suite that starts processes which are hard to kill. Each of them reports by a file
that it runs, and holds the write end of the FIFO `held`, so that end of file there means that all have
ended."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

NUM_STORM = 15


def here(name: str) -> None:
    with open(f"{name}.part", "w") as file:
        file.write(str(os.getpid()))
    Path(f"{name}.part").rename(name)


def forever(name: str) -> NoReturn:
    here(name)
    while True:
        signal.pause()


def child(act: Callable[[], NoReturn]) -> None:
    if os.fork() == 0:
        try:
            act()
        finally:
            os._exit(1)


def own_session() -> NoReturn:
    os.setsid()
    forever("own_session")


def daemon() -> NoReturn:
    os.setsid()
    if os.fork():
        os._exit(0)
    forever("daemon")


def nameless() -> NoReturn:
    """A daemon with an empty environment."""
    os.setsid()
    if os.fork():
        os._exit(0)
    os.execve(sys.executable, [sys.executable, "-I", "-S", __file__, "nameless"], {})


def stopped() -> NoReturn:
    here("stopped")
    os.kill(os.getpid(), signal.SIGSTOP)
    forever("stopped")


def storm() -> NoReturn:
    """Forks without end; each child is in its own session and has a child."""
    for number in range(10**9):
        if os.fork() == 0:
            os.setsid()
            os.fork()
            while True:
                signal.pause()
        if number == NUM_STORM:
            here("storm")
        time.sleep(0 if number < NUM_STORM else 0.01)
    os._exit(1)


def runner() -> NoReturn:
    """Changes its pid all the time: forks and ends, again and again."""
    os.setsid()
    hops = 0
    while True:
        if os.fork():
            os._exit(0)
        hops += 1
        if hops == 5:
            here("runner")
        time.sleep(0.002)


def leaver(group: str) -> NoReturn:
    """Leaves its cgroup for the parent group."""
    with open(Path(group).parent / "cgroup.procs", "w") as file:
        file.write("0")
    forever("leaver")


def main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.set_inheritable(os.open("held", os.O_WRONLY), True)
    kinds: list[Callable[[], NoReturn]] = [own_session, daemon, nameless, stopped, storm, runner]
    names = [kind.__name__ for kind in kinds]
    if group := os.environ.get("LEAVE_GROUP"):
        kinds.append(lambda: leaver(group))
        names.append("leaver")
    for kind in kinds:
        child(kind)
    while not all(Path(name).exists() for name in names):
        time.sleep(0.002)
    here("ready")
    while not Path("go").exists():
        time.sleep(0.002)
    os._exit(3)


if __name__ == "__main__":
    if sys.argv[1:]:
        forever(sys.argv[1])
    main()
