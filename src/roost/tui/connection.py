"""The one stream from the server: it fills the state of the lab, and begins again when it breaks."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from roost.base.errors import NotFound, Refused, RoostError, UsageError

if TYPE_CHECKING:
    from roost.api.client import AsyncClient
    from roost.operations.live_lab.lab_change import LabChange
    from roost.operations.live_lab.lab_state import LabState

LinkState = Literal["connecting", "live", "lost"]
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.1, 2.0
_NOTICE_SECONDS = 1.0
_LATE_MODULES = ("roost.operations.live_lab.lab_state", "roost.api.client")
"""Imported in a thread while the first picture is on the screen: they take longer than Textual."""


class LabListener(Protocol):
    """A listener of the stream. Its methods are called in the event loop."""

    def connected(self, client: AsyncClient, lab: LabState) -> None:
        """The modules are imported, and the client exists. Once."""

    def received(self, changes: Sequence[LabChange]) -> None:
        """Changes were applied to the state."""

    def link_changed(self) -> None:
        """The state of the connection is another."""


class LabLink:
    """The connection to the server.

    Args:
        url: As `roost.api.client.Client`; None: the server of this user.
        listener: The listener.

    Attributes:
        state: Whether the stream runs.
        since: Since when, Unix seconds.
        trouble: Why it does not run.
    """

    def __init__(self, url: str | None, listener: LabListener) -> None:
        self._url, self._listener = url, listener
        self.state: LinkState = "connecting"
        self.since = time.time()
        self.trouble = ""
        self._is_live = asyncio.Event()

    async def may_retry(self, error: RoostError) -> bool:
        """Returns whether a request failed because the server was away; if so, as soon as it is there again.

        Args:
            error: Of the request. One that names what does not exist is final, unless the stream breaks, too,
                within a second: without a server nothing exists.
        """
        if isinstance(error, Refused | UsageError):
            return False
        await asyncio.sleep(_NOTICE_SECONDS)
        if self.state == "live":
            return not isinstance(error, NotFound)
        await self._is_live.wait()
        return True

    async def run(self) -> None:
        """Receives until it is cancelled.

        Raises:
            RoostError: The server refuses this client: there is no token, or the wrong one.
        """
        await asyncio.to_thread(_import_late)
        from roost.api.client import AsyncClient
        from roost.operations.live_lab.lab_state import LabState

        lab = LabState()
        async with AsyncClient(self._url, patience_seconds=0.0) as client:
            self._listener.connected(client, lab)
            pause = _SHORTEST_SECONDS
            cursor = ""
            while True:
                try:
                    async for event in client.follow_lab(cursor=cursor):
                        lab.apply_all(event.data)
                        cursor, pause = event.cursor, _SHORTEST_SECONDS
                        self._set("live")
                        self._listener.received(event.data)
                    self._set("lost", "the server has ended")
                except Refused:
                    raise
                except UsageError:
                    if not cursor:
                        raise
                    cursor = ""  # a server of another version was started: it has other cursors
                except RoostError as error:
                    self._set("lost", str(error))
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_SECONDS)

    def _set(self, state: LinkState, trouble: str = "") -> None:
        if (state, trouble) == (self.state, self.trouble):
            return
        if state != self.state:
            self.since = time.time()
        self.state, self.trouble = state, trouble
        (self._is_live.set if state == "live" else self._is_live.clear)()
        self._listener.link_changed()


def _import_late() -> None:
    for name in _LATE_MODULES:
        importlib.import_module(name)
