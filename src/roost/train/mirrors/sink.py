"""The protocol of a sink, the code that writes one kind of mirror; and the identity of the run that it
shows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from msgspec import Struct

from roost.package.records import Row

SessionEnd = Literal["finished", "stopped", "failed"]
"""The end of a session. A stopped one may be continued later."""


class SinkPosition(NamedTuple):
    """How far a sink is."""

    step: int = -1
    """The newest step that it has; below 0 if it has none."""
    names: frozenset[str] = frozenset()
    """The metrics that it has of that step; not used for a sink that can rewind."""


class Sink(Protocol):
    """A copy of rows and media in one format or service. It is connected once. After an error it is closed
    and discarded, and a new one is made later."""

    can_rewind: bool
    """Whether it can remove rows again: event files and tables can. A sink that cannot (W&B, MLflow) keeps
    the first row of each step and gets no step a second time."""

    def connect(self, state: Mapping[str, Any]) -> SinkPosition:
        """Connects and returns how far the sink is.

        Args:
            state: The result of `state` in the last session, with ``last_step`` and a ``token``: letters and
                digits unique to the package, made before the first sink was connected.
        """
        ...

    def rewind(self, step: int) -> None:
        """Removes everything after ``step``; the next rows follow it. Only called if the sink can rewind."""
        ...

    def write_row(self, row: Row) -> None:
        """Takes a row of `roost.package.records.decode_row`. Steps never decrease, except after `rewind`."""
        ...

    def write_media(self, step: int, path: Path) -> None:
        """Takes a media file of a step."""
        ...

    def flush(self) -> None:
        """Writes or sends everything that it took."""
        ...

    def state(self) -> dict[str, Any]:
        """Returns the state that the next session needs to continue; empty for files."""
        ...

    def close(self, end: SessionEnd | None) -> None:
        """Writes the rest and closes; with None, after an error, it only closes."""
        ...


class RunIdentity(Struct, frozen=True, kw_only=True):
    """The names and settings under which a mirror shows a run among others."""

    name: str
    """The name of the package."""
    project: str = "roost"
    """The name of the project's folder."""
    settings: Mapping[str, Any] = {}
    """All settings with unresolved interpolations, so no value of the environment is sent."""


def flatten_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Returns each setting as text, by its dotted key."""
    found: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            found |= flatten_settings(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = str(value)
    return found
