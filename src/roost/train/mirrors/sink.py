"""What a mirror writes to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from roost.package.records import Row

SessionEnd = Literal["finished", "stopped", "failed"]
"""How a session ends. One that was stopped goes on later."""


class SinkPosition(NamedTuple):
    """What a sink has already."""

    step: int = -1
    """The newest step; below 0: nothing."""
    names: frozenset[str] = frozenset()
    """The metrics that it has of that step; not asked of a sink that can_rewind."""


class Sink(Protocol):
    """One place that rows and media are copied to. It is connected once; after any error it is closed and
    given up, and a new one made later."""

    can_rewind: bool
    """Whether it can take back what it has: event files, a table. What cannot (W&B, MLflow) keeps the row
    that came first, and is given no step a second time."""

    def connect(self, state: Mapping[str, Any]) -> SinkPosition:
        """Connects.

        Args:
            state: What `state` gave in the last session, ``last_step``, and a ``token``: letters and digits
                that no other package has, made before the first session's sink was connected.
        """
        ...

    def rewind(self, step: int) -> None:
        """Drops all that lies after ``step``; what follows now begins there. Only of one that can_rewind."""
        ...

    def write_row(self, row: Row) -> None:
        """Takes a row, as `roost.package.records.decode_row` gives it. Steps do not fall."""
        ...

    def write_media(self, step: int, path: Path) -> None:
        """Takes a file that lies in the folder of its step."""
        ...

    def flush(self) -> None:
        """Writes or sends what it was given."""
        ...

    def state(self) -> dict[str, Any]:
        """What the next session must know to go on: nothing for files."""
        ...

    def close(self, end: SessionEnd | None) -> None:
        """Writes what is left, and lets go; with None, after an error, it only lets go."""
        ...
