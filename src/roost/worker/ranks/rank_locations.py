"""The code locations of all ranks, exchanged through the store when one of them stops answering."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from traceback import FrameSummary
from types import TracebackType
from typing import Self

from roost.base import traceback_frames
from roost.base.exception_record import ExceptionRecord
from roost.base.traceback_frames import ProjectFiles
from roost.train.distributed.ranks import Ranks

_REQUEST_KEY = "asked"
_POLL_SECONDS = 0.02
_REQUEST_POLL_SECONDS = 0.25
"""How often a rank looks for a request; well within the time that it has to answer."""
_JOIN_SECONDS = 1.0


class LocationResponder:
    """Answers requests for this rank's code location, from a thread of its own: the training thread may wait
    forever for a rank that will never come, which no other rank can see.

    Args:
        ranks: All ranks.
        folder: Folder of the project's code.
    """

    def __init__(self, ranks: Ranks, folder: Path) -> None:
        self._ranks, self._folder = ranks, folder
        self._trains, self._is_over = threading.get_ident(), threading.Event()
        self._thread = threading.Thread(target=self._listen, name="whereabouts", daemon=True)

    def __enter__(self) -> Self:
        if self._ranks.store is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_SECONDS)  # with a machine gone the store may never answer it

    def _listen(self) -> None:
        store = self._ranks.store
        assert store is not None
        try:
            while not self._is_over.wait(_REQUEST_POLL_SECONDS):
                if store.check([_REQUEST_KEY]):
                    frame = sys._current_frames().get(self._trains)
                    store.set(
                        f"at/{self._ranks.rank}", code_location(traceback.extract_stack(frame), self._folder)
                    )
                    return
        except RuntimeError:  # the store is gone, and with it the rank that could ask
            return


def code_location(stack: Sequence[FrameSummary], folder: Path) -> str:
    """Returns the innermost line of the project's code in ``stack`` (outermost first), else the innermost
    function of roost."""
    if own := ProjectFiles([folder]).innermost_line(
        ExceptionRecord("", frozenset(), "", frames=tuple(stack))
    ):
        return own
    of_roost = [frame for frame in stack if traceback_frames.library_name(frame.filename) == "roost"]
    return (
        f"{Path(of_roost[-1].filename).stem}.{of_roost[-1].name} of roost" if of_roost else "an unknown place"
    )


def gather_locations(ranks: Ranks, own: str, seconds: float) -> dict[int, str]:
    """Publishes this rank's code location and returns those of all ranks that answer in time, by rank. The
    location is empty for a rank that ends by an error of its own.

    Args:
        ranks: All ranks.
        own: Location of this rank.
        seconds: How long to wait for answers; 0: only publishes.

    Raises:
        RuntimeError: The store is gone.
    """
    store, found = ranks.store, {ranks.rank: own}
    if store is None:
        return found
    store.set(f"called/{ranks.rank}", own)
    if seconds:
        store.set(_REQUEST_KEY, "")
    deadline = time.monotonic() + seconds
    while True:
        for rank in range(ranks.world_size):
            for key in (f"at/{rank}", f"called/{rank}"):  # the second one is newer, so it wins
                if rank != ranks.rank and store.check([key]):
                    found[rank] = store.get(key).decode()
        if len(found) == ranks.world_size or time.monotonic() >= deadline:
            return dict(sorted(found.items()))
        time.sleep(_POLL_SECONDS)
