"""The lab's daemon: it starts what waits, and writes down what has ended. It owns no process: killed and
started anew, it finds everything as it is.

Started as ``python -m roost.lab.daemon`` by whoever submits first (`roost.operations.lab`).
"""

from __future__ import annotations

import functools
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from socket import socket
from types import FrameType

from roost.base.errors import RoostError
from roost.devices import inventory
from roost.lab.background import background_process, daemon_presence
from roost.lab.executors.local_executor import LocalExecutor
from roost.lab.notices.notice_dispatch import Errand
from roost.lab.queue import wakeup
from roost.lab.queue.queue_store import Store
from roost.lab.scheduling import max_sleep, scheduler
from roost.lab.scheduling.attempts import Attempts
from roost.lab.scheduling.scheduler import Scheduler
from roost.supervisor.forkserver.forked_guard import GuardTemplate
from roost.supervisor.forkserver.warm_templates import WarmTemplates

_POLL_SECONDS = 0.5
"""How often tasks are looked at that cannot be waited for."""
_LEASE_RELEASE_MS = 10
"""A lease is told to end just before it has, and before the guard of ours that held it: one pass for both."""
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 60.0
"""After something went wrong; twice as long each time that it does again."""


class Daemon:
    """Sees to one queue until it is told to end.

    ::

        adopt   whatever runs already
        again   start what may start; then wait for the end of a task, for a call, or for the time

    Args:
        folder: Of the lab.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_told_to_end = False

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serves until SIGTERM or SIGINT, or until its queue is no more the one that others find.

        Args:
            ready: Called when everything that stands has been adopted.

        Raises:
            Refused: Another daemon has this queue, or it cannot be opened.
            OSError: There is no room for what it needs.
        """
        lock_fd = daemon_presence.lock(
            self._folder
        )  # first: what is opened before may be made anew meanwhile
        try:
            with Store.open(self._folder) as store:
                daemon_presence.write_record(self._folder)
                queue = daemon_presence.identity(store.path)
                is_in_place = functools.partial(daemon_presence.is_in_place, self._folder, lock_fd, queue)
                self._run(store, is_in_place, ready)
        finally:
            os.close(lock_fd)

    def _run(self, store: Store, is_in_place: Callable[[], bool], ready: Callable[[], None]) -> None:
        wakeup_fd = self._listen()
        with (
            closing(wakeup.listen(self._folder)) as bell,
            inventory.open_inventory() as ask,
            closing(GuardTemplate()) as template,
            closing(WarmTemplates()) as warm,
        ):
            template.open()  # it loads itself while what stands is adopted
            executor = LocalExecutor(template, warm)
            capacities = functools.partial(scheduler.card_capacities, store, ask)
            with (
                closing(Attempts(store, executor, capacities)) as attempts,
                closing(Scheduler(store, executor, attempts, ask)) as decides,
                closing(Errand(store)) as errand,
            ):
                attempts.settle()
                ready()
                longest = functools.partial(max_sleep.longest_sleep, store)
                self._serve(_EventWait(bell, wakeup_fd), attempts, decides, errand, is_in_place, longest)

    def _serve(
        self,
        sleep: _EventWait,
        attempts: Attempts,
        scheduler: Scheduler,
        errand: Errand,
        is_in_place: Callable[[], bool],
        longest_sleep: Callable[[], float],
    ) -> None:
        ended: list[str] | None = []
        troubles = _ErrorLog()
        while not self._is_told_to_end:
            if not is_in_place():
                what = "the queue was removed or replaced, so this daemon ends; what runs goes on"
                _log(f"{self._folder}: {what}\n")
                return
            try:
                attempts.settle(ended)
                wait = scheduler.run()
                errand.run()
                longest = longest_sleep() if attempts.are_watched else _POLL_SECONDS
                troubles.forget()
                seconds = min(wait if wait is not None else longest, longest)
                ended = sleep.until(attempts.fds | errand.fds, seconds, scheduler.fd)
            except Exception as error:  # noqa: BLE001  - told; what runs is to be seen to all the same
                sleep.until({}, troubles.note(error))  # not for what has ended: nothing may come of it yet
                ended = None

    def _listen(self) -> int:
        """Notes orders and the ends of children; gives the descriptor that becomes readable then."""
        read_fd, write_fd = os.pipe()
        for fd in (read_fd, write_fd):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._end)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        return read_fd

    def _end(self, signum: int, frame: FrameType | None) -> None:
        self._is_told_to_end = True


class _EventWait:
    """Waits until something has happened.

    Args:
        bell: By which others wake us.
        wakeup_fd: Becomes readable at a signal.
    """

    def __init__(self, bell: socket, wakeup_fd: int) -> None:
        self._bell, self._wakeup_fd = bell, wakeup_fd

    def until(self, attempts: Mapping[int, str], seconds: float, cards_fd: int | None = None) -> list[str]:
        """Gives the tasks that have ended meanwhile, of those that can tell.

        Args:
            attempts: By descriptor.
            seconds: After which it wakes by itself.
            cards_fd: Readable when somebody leaves a card.
        """
        poller = select.poll()
        for fd in (self._bell.fileno(), self._wakeup_fd, *attempts):
            poller.register(fd, select.POLLIN)
        if cards_fd is not None:
            poller.register(cards_fd, select.POLLIN)
        ready = [fd for fd, _ in poller.poll(seconds * 1000)]
        if cards_fd is not None and ready == [cards_fd]:
            poller.unregister(cards_fd)
            ready = [fd for fd, _ in poller.poll(_LEASE_RELEASE_MS)]
        found = [attempts[fd] for fd in ready if fd in attempts]
        wakeup.drain(self._bell)
        with suppress(BlockingIOError):
            while os.read(self._wakeup_fd, 4096):
                pass
        return found


class _ErrorLog:
    """What keeps the daemon from its work: told in its log, once as long as it is the same."""

    def __init__(self) -> None:
        self._told, self._seconds = "", _PAUSE_SECONDS

    def note(self, error: Exception) -> float:
        """Gives in how many seconds it is worth to try again."""
        is_defect = not isinstance(error, RoostError | OSError)
        text = "".join(traceback.format_exception(error)) if is_defect else f"{error}\n"
        if text != self._told:
            _log(text)
        self._told, seconds = text, self._seconds
        self._seconds = min(2 * seconds, _LONGEST_PAUSE_SECONDS)
        return seconds

    def forget(self) -> None:
        """It works again."""
        self._told, self._seconds = "", _PAUSE_SECONDS


def _log(text: str) -> None:
    with suppress(OSError):  # the log may be what there is no room for
        sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")
        sys.stderr.flush()


def main() -> int:
    """``daemon.py FOLDER [READY_FD]``."""
    starter = background_process.Starter(int(sys.argv[2]) if len(sys.argv) > 2 else None)
    try:
        Daemon(Path(sys.argv[1])).run(starter.ready)
    except (RoostError, OSError) as error:
        return starter.failed(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
