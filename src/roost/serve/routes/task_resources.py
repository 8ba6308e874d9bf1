"""The parameters of routes that queue a task: its options, the same as those of the command line."""

from __future__ import annotations

from pathlib import Path

from roost.base.errors import UsageError
from roost.devices.resource_request import TaskOptions
from roost.serve.http.route import RequestParameters

_MIN_SECONDS = 1e-6


class ResourceParameters(RequestParameters, TaskOptions, frozen=True, kw_only=True):
    """The options of a task, as parameters."""


def time_limit_override(options: TaskOptions) -> list[str]:
    """Returns the time limit as an override of a training's settings; its supervisor enforces it."""
    if options.time_limit is None:
        return []
    seconds = f"{max(options.time_limit, _MIN_SECONDS):.6f}".rstrip("0").rstrip(".")
    return [f"roost.limits.wall_time={seconds}s"]


def absolute_path(text: str, field: str) -> Path:
    """Returns an absolute path. A relative one has no meaning, as server and client have different folders.

    Raises:
        UsageError: The path is not absolute.
    """
    path = Path(text)
    if not path.is_absolute():
        raise UsageError(
            "is not an absolute path", setting=field, received=text, fix="give the whole path, from / on"
        )
    return path
