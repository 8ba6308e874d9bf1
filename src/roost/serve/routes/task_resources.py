"""The resource request and the scheduling options of a task, the same as those of the command line."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from roost.base.errors import UsageError
from roost.lab.queue.task import ResourceRequest
from roost.operations.queue.resources import HIGHEST_PRIORITY, TaskOptions, find_task_ids, parse_begin
from roost.serve.http.route import RequestParameters

_MIN_SECONDS = 1e-6
CardCount = Annotated[int, Meta(ge=0, le=4096)]
Priority = Annotated[int, Meta(ge=-HIGHEST_PRIORITY, le=HIGHEST_PRIORITY)]
TaskName = Annotated[str, Meta(min_length=1, max_length=255)]


class ResourceParameters(RequestParameters, frozen=True, kw_only=True):
    """The resources of a task, and the conditions of its start."""

    gpus: CardCount | None = None
    """Cards; None: as in its config, otherwise one if the machine has any."""
    cpus: Annotated[int, Meta(ge=1, le=4096)] | None = None
    """CPU cores of a task without cards; None: one."""
    memory_mb: Annotated[int, Meta(ge=1, le=2**40)] | None = None
    """MB of each card, which the task then shares."""
    whole: bool = False
    strategy: Literal["single", "ddp", "fsdp"] | None = None
    priority: Priority = 0
    after: Annotated[tuple[TaskName, ...], Meta(max_length=1000)] = ()
    """Tasks that must have succeeded before it starts."""
    after_any: Annotated[tuple[TaskName, ...], Meta(max_length=1000)] = ()
    """Tasks that must have ended before it starts, with any outcome."""
    begin: Annotated[str, Meta(max_length=64)] | None = None
    """Earliest start: ``22:30``, ``tomorrow 08:00``, ``2026-11-22T08:00`` or ``+2h``."""
    time_limit: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    """Seconds."""
    opportunistic: bool = False
    retries: Annotated[int, Meta(ge=0, le=1000)] = 0
    max_parallel: Annotated[int, Meta(ge=1, le=100_000)] | None = None


def task_options(parameters: ResourceParameters) -> TaskOptions:
    """Returns the options of the task.

    Raises:
        NotFound: A task of ``after`` or ``after_any`` does not exist.
        UsageError: ``begin`` is not a time.
    """
    need = ResourceRequest(
        cards=parameters.gpus or 0,
        memory_mb=parameters.memory_mb,
        whole=parameters.whole,
        cores=parameters.cpus,
        time_limit=parameters.time_limit,
        opportunistic=parameters.opportunistic,
    )
    return TaskOptions(
        need=need,
        cards_from_settings=parameters.gpus is None,
        strategy=parameters.strategy,
        priority=parameters.priority,
        begin=parse_begin(parameters.begin, now=time.time()) if parameters.begin is not None else None,
        retries=parameters.retries,
        most_parallel=parameters.max_parallel,
        after=find_task_ids(parameters.after, setting="after"),
        after_any=find_task_ids(parameters.after_any, setting="after_any"),
    )


def time_limit_override(parameters: ResourceParameters) -> list[str]:
    """Returns the time limit as an override of a training's settings; its supervisor enforces it."""
    if parameters.time_limit is None:
        return []
    seconds = f"{max(parameters.time_limit, _MIN_SECONDS):.6f}".rstrip("0").rstrip(".")
    return [f"limits.wall_time={seconds}s"]


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
