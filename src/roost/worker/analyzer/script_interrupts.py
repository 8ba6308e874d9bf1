"""The signals of an analyzer: SIGINT interrupts a script or a switch, the stop signals end the analyzer."""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from roost.analysis.analyzers.call_inbox import CallInbox
from roost.analysis.analyzers.folder_watch import FolderWatch
from roost.base.system.worker_protocol import STOP_SIGNALS

T = TypeVar("T")
_SAFETY_SECONDS = 5.0
"""Between two looks into the inbox if nothing is heard of it."""


class AnalyzerStopped(BaseException):
    """Raised in a script, and while a package is loaded, when the analyzer is asked to stop."""


class ScriptInterrupts:
    """Ends what an analyzer does, and nothing else: a signal raises an exception only inside of `run`, so
    that it cannot tear the work of the loop around it.

    ::

        thread:  a new file in the inbox   wake the loop
                 an interrupt              SIGINT to the main thread, if that call runs
        main:    SIGINT inside of `run`    KeyboardInterrupt
                 a stop signal there       AnalyzerStopped; elsewhere it wakes the loop

    Args:
        inbox: The inbox of the analyzer; its folder exists.
    """

    def __init__(self, inbox: CallInbox) -> None:
        self._inbox = inbox
        self.is_stopping = False
        """Whether the analyzer was asked to stop."""
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()  # may be put into by a signal handler
        self._running: int | None = None
        self._is_pending = False
        """Whether a SIGINT for the call came before `run`."""
        self._lock = threading.Lock()
        self._main, self._pid = threading.get_ident(), os.getpid()
        self._watch = FolderWatch(inbox.folder)
        signal.signal(signal.SIGINT, self._interrupt)
        for number in STOP_SIGNALS:
            if number != signal.SIGINT:
                signal.signal(number, self._stop)
        self._listener = self._start_listener()

    def _start_listener(self) -> threading.Thread:
        started = threading.Thread(target=self._listen, name="calls", daemon=True)
        started.start()
        return started

    def restore(self) -> None:
        """Starts the thread again if a script has ended it: it needs builtins and descriptors, too."""
        if not self._listener.is_alive():
            self._watch = FolderWatch(self._inbox.folder)
            self._listener = self._start_listener()
            self._wakeups.put(None)

    def wait(self) -> None:
        """Waits for a new file in the inbox, or a stop. May return without either."""
        try:
            self._wakeups.get(timeout=_SAFETY_SECONDS)
        except queue.Empty:  # what a script did to the thread's descriptors may end it later than the script
            self.restore()

    def run(self, number: int | None, function: Callable[[], T]) -> T:
        """Calls a function that signals may end.

        Args:
            number: That of the call that it carries out; None: it cannot be interrupted.
            function: The function.

        Raises:
            KeyboardInterrupt: The call was interrupted.
            AnalyzerStopped: The analyzer was asked to stop.
            BaseException: Any error of the function.
        """
        with self._lock:
            self._is_pending, self._running = False, number
        try:
            return self._guarded(function)
        finally:
            with self._lock:
                self._running = None

    def _guarded(self, function: Callable[[], T]) -> T:
        if self.is_stopping:
            raise AnalyzerStopped
        running = self._running
        if self._is_pending or (running is not None and self._inbox.is_interrupted(running)):
            raise KeyboardInterrupt
        return function()

    def _is_guarded(self, frame: FrameType | None) -> bool:
        code = ScriptInterrupts._guarded.__code__
        while frame is not None and frame.f_code is not code:
            frame = frame.f_back
        return frame is not None

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._is_guarded(frame) and (self._running is not None or os.getpid() != self._pid):
            raise KeyboardInterrupt
        self._is_pending = True

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            # A process forked by the script (of a multiprocessing pool, say) must die of `terminate()`.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.is_stopping = True
        self._wakeups.put(None)
        if self._is_guarded(frame):
            raise AnalyzerStopped

    def _listen(self) -> None:
        while True:
            try:
                if not self._watch.wait():
                    return
            except OSError:  # a script has closed its descriptors
                self._watch = FolderWatch(self._inbox.folder)
            with self._lock:
                # One name is looked up: a script may have used up the descriptors that a list needs.
                if self._running is not None and self._inbox.is_interrupted(self._running):
                    self._inbox.remove_interrupt(self._running)
                    signal.pthread_kill(self._main, signal.SIGINT)
            self._wakeups.put(None)
