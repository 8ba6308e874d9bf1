"""A save in progress: its state is copied, and a thread writes it while training continues."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from roost.base.errors import PeerLost
from roost.train.checkpointing.checkpoint_writer import MAX_REST_RATIO, TornCopy, WritePace
from roost.train.checkpointing.staging import Staging

_POLL_SECONDS = 1.0
FAILURE_WAIT_SECONDS = 5.0
"""How long a rank that fails waits for a checkpoint that it writes together with other ranks."""


class PendingSave:
    """The save that `Checkpoints.save` started. A thread writes it; the interpreter waits for this thread
    before it exits.

    Args:
        staging: Holds the copy, or makes the rest of it during training.
        write: Writes the copy at a pace, unless it is torn; returns the folder of the checkpoint.
        asynchronous: Whether a separate thread writes.
        prints_error: Whether the thread prints an error if `wait` is not called.
        rest: The rest ratio of `WritePace`.
    """

    def __init__(
        self,
        staging: Staging,
        write: Callable[[WritePace, bool], Path],
        *,
        asynchronous: bool,
        prints_error: bool,
        rest: float = MAX_REST_RATIO,
    ) -> None:
        self._staging, self._write, self._prints_error = staging, write, prints_error
        self._pace, self._owner = WritePace(rest), threading.current_thread()
        self._is_copied, self._is_checked, self._done = (threading.Event() for _ in range(3))
        self._path: Path | None = None
        self._error: BaseException | None = None
        self._is_torn = False
        self.is_reported = False
        """Whether its error was printed already."""
        if staging.is_short or not asynchronous:
            staging.copy_deferred()
            self._is_copied.set()
        if asynchronous:
            threading.Thread(target=self._run, name="roost-checkpoint").start()
        else:
            self._pace.hurry()
            self.wait_until_copied()
            self._try_write()
            self._done.set()
            if self._error is not None:
                raise self._error

    # ---- for the thread that trains ---------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        """Whether the checkpoint is committed or has failed."""
        return self._done.is_set()

    def wait_until_copied(self) -> None:
        """Waits until the state is copied and may change. On a GPU it does not block: later kernels are
        ordered after the copies."""
        self._is_copied.wait()
        if self._is_checked.is_set():
            return
        self._staging.order_after_copies()
        self._is_torn = self._staging.has_changed()
        self._is_checked.set()

    def wait(self) -> Path:
        """Waits until the checkpoint is committed and returns its folder.

        Raises:
            OSError: It could not be written (disk full, …); older checkpoints are intact.
            TornCopy: A deferred tensor was changed before `wait_until_copied` was called.
            PeerLost: Another rank has ended.
        """
        self._prints_error = False
        self._pace.hurry()
        self.wait_until_copied()
        self._done.wait()
        if self._error is not None:
            raise self._error
        assert self._path is not None
        return self._path

    def hurry(self) -> None:
        """Writes the rest at full speed; may be called from any thread."""
        self._pace.hurry()

    def wait_until_done(self, seconds: float | None = None) -> bool:
        """Waits until the save is committed or has failed, at most ``seconds``; returns `is_done`."""
        self._pace.hurry()
        self.wait_until_copied()
        return self._done.wait(seconds)

    # ---- the thread that writes -------------------------------------------------------------------------

    def _run(self) -> None:
        if not self._is_copied.is_set():
            self._staging.copy_deferred()
            self._is_copied.set()
        while not self._is_checked.wait(_POLL_SECONDS):
            if not self._owner.is_alive():  # it ended without the check, so it may have changed the state
                self._is_torn = True
                break
        self._try_write()
        error = self._error
        if error is not None and self._prints_error and not isinstance(error, TornCopy | PeerLost):
            self.is_reported = True
            print(f"checkpoint not written: {error}; older ones are intact", flush=True)
        self._done.set()

    def _try_write(self) -> None:
        try:
            self._staging.wait()
            self._path = self._write(self._pace, self._is_torn)
        except BaseException as error:  # noqa: BLE001  - raised by `wait`, or printed by the thread
            self._error = error
