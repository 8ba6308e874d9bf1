"""A checkpoint whose state is copied, and which is written behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from roost.base.errors import PeerLost
from roost.train.checkpointing.checkpoint_writer import MAX_REST_RATIO, TornCopy, WritePace
from roost.train.checkpointing.staging import Staging

_POLL_SECONDS = 1.0
FAILURE_WAIT_SECONDS = 5.0
"""How long a rank that fails waits for a checkpoint that the others write with it."""


class PendingSave:
    """What `Checkpoints.save` gives. Its bytes are on their way to the disk, in a thread that a program waits
    for before it exits.

    Args:
        staging: Holds the copy, or takes what is left of it beside the training.
        write: Writes it at a pace, unless the copy is torn; gives its folder.
        asynchronous: Whether that is done in a thread of its own.
        prints_error: Whether an error is printed if nobody waits for it.
        rest: See `WritePace`.
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
        self._staging, self._write, self._prints_error = staging, write, tells
        self._pace, self._owner = WritePace(rest), threading.current_thread()
        self._is_copied, self._is_checked, self._done = (threading.Event() for _ in range(3))
        self._path: Path | None = None
        self._error: BaseException | None = None
        self._is_torn = False
        self.is_reported = False
        """Whether its error was printed."""
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
        """Whether it stands, or has failed."""
        return self._done.is_set()

    def wait_until_copied(self) -> None:
        """Waits until the state is copied, so that it may change; on a GPU without waiting."""
        self._is_copied.wait()
        if self._is_checked.is_set():
            return
        self._staging.order_after_copies()
        self._is_torn = self._staging.has_changed()
        self._is_checked.set()

    def wait(self) -> Path:
        """Waits until it stands, and gives its folder.

        Raises:
            OSError: It could not be written (disk full, …); the older ones are untouched.
            Torn: What was to be copied late was changed before `copied` was called.
            PeerLost: Another rank is gone.
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
        """From here on it is written at full speed; from any thread."""
        self._pace.hurry()

    def wait_until_done(self, seconds: float | None = None) -> bool:
        """As `wait`, whatever becomes of it; at most so many seconds. Gives `is_done`."""
        self._pace.hurry()
        self.wait_until_copied()
        return self._done.wait(seconds)

    # ---- the thread that writes -------------------------------------------------------------------------

    def _run(self) -> None:
        if not self._is_copied.is_set():
            self._staging.copy_deferred()
            self._is_copied.set()
        while not self._is_checked.wait(_POLL_SECONDS):
            if not self._owner.is_alive():  # it left without a word: nobody knows what it did to the state
                self._is_torn = True
                break
        self._try_write()
        if self._error is not None and self._prints_error and not isinstance(self._error, TornCopy | PeerLost):
            self.is_reported = True
            print(f"checkpoint not written: {self._error}; older ones are untouched", flush=True)
        self._done.set()

    def _try_write(self) -> None:
        try:
            self._staging.wait()
            self._path = self._write(self._pace, self._is_torn)
        except BaseException as error:  # noqa: BLE001  - raised to whoever waits, told where nobody does
            self._error = error
