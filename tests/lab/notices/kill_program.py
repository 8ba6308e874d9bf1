"""Kills the sending process at each of its steps in turn; after more events another process sends the rest.
Each step has a queue and a part of the URL of its own; the program prints the steps.

Started as ``kill_program.py FOLDER URL BEFORE AFTER``: so many events before the kill, and after it.
"""

from __future__ import annotations

import http.client
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from roost.base import durable
from roost.lab.notices.event_cursor import NoticeCursor
from roost.lab.notices.queue_notices import send_pending
from roost.lab.notices.receivers import NoticeSettings, Receiver
from roost.lab.queue.queue_store import QueueStore
from tests.lab.notices.ends import end


def send_all(folder: Path, url: str) -> None:
    receivers = {name: Receiver(kind="webhook", url=f"{url}/{name}") for name in ("a", "b")}
    with QueueStore.open(folder) as store:
        cursor = NoticeCursor.load(store) or NoticeCursor.create(store, 0.0)
        send_pending(store, NoticeSettings(receivers=receivers), cursor, pauses=())


def killing(at: int, said_fd: int) -> None:
    """From now on this process is killed at its step of this number."""
    left = at

    def step(name: str) -> None:
        nonlocal left
        if left == 0:
            os.write(said_fd, name.encode())
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    def between(place: Any, name: str, before: str, after: str) -> None:
        does: Callable[..., Any] = getattr(place, name)

        def done(*args: Any, **kwargs: Any) -> Any:
            step(before)
            found = does(*args, **kwargs)
            step(after)
            return found

        setattr(place, name, done)

    between(durable, "write", "writing", "written")
    between(http.client.HTTPConnection, "request", "asking", "asked")
    between(http.client.HTTPConnection, "getresponse", "asked", "answered")


def happen(folder: Path, times: int) -> None:
    with QueueStore.open(folder) as store, store.transaction():
        for _ in range(times):
            end(store)


def killed_at(number: int, folder: Path, url: str) -> str:
    """At which step; empty if it had ended before."""
    said_fd, its_fd = os.pipe()
    if (pid := os.fork()) == 0:
        killing(number, its_fd)
        send_all(folder, url)
        os._exit(0)
    os.close(its_fd)
    with os.fdopen(said_fd) as said:
        name = said.read()
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1]) == bool(name)
    return name


def main() -> None:
    state, url, before, after = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    number = 0
    while True:
        folder, its_url = state / str(number), f"{url}/{number}"
        happen(folder, before)
        name = killed_at(number, folder, its_url)
        happen(folder, after)
        send_all(folder, its_url)
        if not name:
            return
        print(name)
        number += 1


main()
