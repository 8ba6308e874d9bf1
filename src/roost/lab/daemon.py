"""The lab's daemon: it starts pending tasks and records ended ones. It owns no process: after a kill and a
restart it finds the state of all tasks in the queue and in their packages.

Started as ``python -m roost.lab.daemon`` by the first command that submits a task (`roost.operations.lab`).
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
from roost.lab.background.daemon_presence import DaemonRecord
from roost.lab.executors.local_executor import LocalExecutor
from roost.lab.notices.notice_dispatch import NoticeDispatcher
from roost.lab.queue import wakeup
from roost.lab.queue.queue_store import QueueStore
from roost.lab.scheduling import max_sleep, scheduler
from roost.lab.scheduling.attempts import Attempts
from roost.lab.scheduling.scheduler import Scheduler
from roost.supervisor.forkserver.template_pool import TemplatePool

_POLL_SECONDS = 0.5
"""The interval at which tasks are polled that have no descriptor to wait for."""
_LEASE_RELEASE_MS = 10
"""The event of a lease comes just before its end and before the end of the guard that holds it: one pass for
both."""
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 60.0
"""The pause after an error; doubled each time that one follows."""


class Daemon:
    """Runs one queue until a signal ends it.

    ::

        adopt the tasks that run already
        repeat: start the tasks that may start; wait for the end of a task, a wake-up, or the time

    Args:
        folder: The folder of the lab.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._end_requested = False
        self.watchdog_ended = False
        """Whether it has ended because its watchdog has: no process would restart it after a kill."""

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Runs until SIGTERM or SIGINT, until another queue has replaced the opened one, or until its
        watchdog has ended.

        Args:
            ready: Called when all running tasks have been adopted.

        Raises:
            Refused: Another daemon has this queue, or the queue cannot be opened.
            OSError: The disk is full, or no descriptor is free.
        """
        # First: a file that was opened before the lock may have been replaced meanwhile.
        lock_fd = daemon_presence.lock(self._folder)
        try:
            with QueueStore.open(self._folder) as store:
                daemon_presence.write_record(self._folder)
                queue = daemon_presence.identity(store.path)
                is_in_place = functools.partial(daemon_presence.is_in_place, self._folder, lock_fd, queue)
                self._run(store, is_in_place, ready)
        finally:
            os.close(lock_fd)

    def _run(self, store: QueueStore, is_in_place: Callable[[], bool], ready: Callable[[], None]) -> None:
        wakeup_fd, watchdog_fd = self._listen(), background_process.open_watchdog()
        with (
            closing(wakeup.listen(self._folder)) as wakeup_socket,
            inventory.open_inventory() as read_cards,
            closing(TemplatePool()) as templates,
        ):
            templates.open()  # the template for guards imports its modules while running tasks are adopted
            executor = LocalExecutor(templates)
            capacities = functools.partial(scheduler.card_capacities, store, read_cards)
            with (
                closing(Attempts(store, executor, capacities)) as attempts,
                closing(Scheduler(store, executor, attempts, read_cards)) as queue_scheduler,
                closing(NoticeDispatcher(store)) as notices,
            ):
                attempts.refresh()
                ready()
                max_seconds = functools.partial(max_sleep.longest_sleep, store)
                event_wait = _EventWait(wakeup_socket, wakeup_fd, watchdog_fd)
                self._serve(
                    event_wait, attempts, queue_scheduler, notices, templates, is_in_place, max_seconds
                )

    def _serve(
        self,
        event_wait: _EventWait,
        attempts: Attempts,
        scheduler: Scheduler,
        notices: NoticeDispatcher,
        templates: TemplatePool,
        is_in_place: Callable[[], bool],
        longest_sleep: Callable[[], float],
    ) -> None:
        ended: list[str] | None = []
        error_log = _ErrorLog()
        while not self._end_requested:
            if not is_in_place():
                message = "the queue was removed or replaced, so this daemon ends; running tasks continue"
                _log(f"{self._folder}: {message}\n")
                return
            if event_wait.watchdog_ended:
                self.watchdog_ended = True
                return
            try:
                attempts.refresh(ended)
                wait = scheduler.run()
                notices.run()
                templates.reap()
                max_seconds = longest_sleep() if attempts.all_watched else _POLL_SECONDS
                error_log.reset()
                seconds = min(wait if wait is not None else max_seconds, max_seconds)
                ended = event_wait.wait(attempts.fds | notices.fds | templates.fds, seconds, scheduler.fd)
            except Exception as error:  # noqa: BLE001  - logged; running tasks still need the daemon
                # Without the descriptors of ended tasks: recording their ends may fail again at once.
                event_wait.wait({}, error_log.record(error))
                ended = None

    def _listen(self) -> int:
        """Installs the signal handlers. Returns a descriptor that becomes readable at a signal."""
        read_fd, write_fd = os.pipe()
        for fd in (read_fd, write_fd):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._end)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        return read_fd

    def _end(self, signum: int, frame: FrameType | None) -> None:
        self._end_requested = True


class _EventWait:
    """Waits for events.

    Args:
        wakeup_socket: By which other processes wake the daemon.
        wakeup_fd: Becomes readable at a signal.
        watchdog_fd: Becomes readable when the watchdog ends; None: there is none.
    """

    def __init__(self, wakeup_socket: socket, wakeup_fd: int, watchdog_fd: int | None = None) -> None:
        self._wakeup_socket, self._wakeup_fd, self._watchdog_fd = wakeup_socket, wakeup_fd, watchdog_fd
        self.watchdog_ended = False

    def wait(self, attempts: Mapping[int, str], seconds: float, cards_fd: int | None = None) -> list[str]:
        """Returns the tasks that have ended meanwhile, of those with a descriptor.

        Args:
            attempts: The tasks by descriptor.
            seconds: The longest wait.
            cards_fd: Readable when a lease of a card ends.
        """
        poller = select.poll()
        for fd in (self._wakeup_socket.fileno(), self._wakeup_fd, *attempts):
            poller.register(fd, select.POLLIN)
        if cards_fd is not None:
            poller.register(cards_fd, select.POLLIN)
        if self._watchdog_fd is not None:
            poller.register(self._watchdog_fd, select.POLLIN)
        ready = [fd for fd, _ in poller.poll(seconds * 1000)]
        if cards_fd is not None and ready == [cards_fd]:
            poller.unregister(cards_fd)
            ready = [fd for fd, _ in poller.poll(_LEASE_RELEASE_MS)]
        self.watchdog_ended = self._watchdog_fd in ready
        found = [attempts[fd] for fd in ready if fd in attempts]
        wakeup.drain(self._wakeup_socket)
        with suppress(BlockingIOError):
            while os.read(self._wakeup_fd, 4096):
                pass
        return found


class _ErrorLog:
    """The errors of the daemon: logged once as long as they are the same, with growing pauses."""

    def __init__(self) -> None:
        self._last_logged, self._seconds = "", _PAUSE_SECONDS

    def record(self, error: Exception) -> float:
        """Logs an error. Returns the seconds until the next try."""
        is_defect = not isinstance(error, RoostError | OSError)
        text = "".join(traceback.format_exception(error)) if is_defect else f"{error}\n"
        if text != self._last_logged:
            _log(text)
        self._last_logged, seconds = text, self._seconds
        self._seconds = min(2 * seconds, _LONGEST_PAUSE_SECONDS)
        return seconds

    def reset(self) -> None:
        """The pass succeeded."""
        self._last_logged, self._seconds = "", _PAUSE_SECONDS


def _log(text: str) -> None:
    with suppress(OSError):  # the disk of the log may be full
        sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")
        sys.stderr.flush()


def main() -> int:
    """Runs ``daemon.py FOLDER [READY_FD]``."""
    starter = background_process.Starter(int(sys.argv[2]) if len(sys.argv) > 2 else None)
    folder = Path(sys.argv[1])
    daemon = Daemon(folder)
    try:
        daemon.run(starter.ready)
        if daemon.watchdog_ended:
            background_process.become_watchdog(daemon_presence.files(folder), DaemonRecord)
    except (RoostError, OSError) as error:
        return starter.failed(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
