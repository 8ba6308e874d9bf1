"""The requests of the run's pane: what the stream of the lab does not carry."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from roost.base.errors import RoostError

if TYPE_CHECKING:
    from roost.api.client import AsyncClient
    from roost.operations.live_lab.lab_state import LabTask
    from roost.operations.responses import LogPiece, StreamEvent
    from roost.operations.task_results import TaskExplanation

_PICTURE_TYPES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_MAX_LOG_BYTES = 256 * 1024
"""Of a long log the end."""
_SMALLEST_PAGE = 4


class Curve(NamedTuple):
    """A recorded curve; each column has its least and its greatest value, so that no spike is lost."""

    x: list[float]
    y: list[float]


class SystemSeries(NamedTuple):
    """Measurements of the newest session, by column."""

    times: list[float]
    values: Mapping[str, list[float | None]]
    """By column of `roost.package.results.system_metrics`."""


class PictureFile(NamedTuple):
    """A picture of the run."""

    path: str
    """In the package."""
    modified: float


async def read_curves(
    client: AsyncClient, task: LabTask, names: Sequence[str], width: int
) -> dict[str, Curve]:
    """Returns the curves of a task's run with one column for each dot."""
    if not names:
        return {}
    found = await client.read_records(run_id(task), name=list(names), width=max(10, width))
    curves = {}
    for one in found.curves:
        points: dict[int, float] = {}
        points.update(zip(one.first_steps, one.first, strict=True))
        points.update(zip(one.min_steps, one.min, strict=True))
        points.update(zip(one.max_steps, one.max, strict=True))
        points.update(zip(one.last_steps, one.last, strict=True))
        steps_in_order = sorted(points)
        curves[one.name] = Curve(
            [float(step) for step in steps_in_order], [points[step] for step in steps_in_order]
        )
    return curves


async def read_system(client: AsyncClient, task: LabTask) -> SystemSeries | None:
    """Returns what was measured of the newest session; None: nothing was."""
    run = run_id(task)
    folder = "system/"
    if task.row.session_folder:
        folder = f"{PurePath(task.row.session_folder).relative_to(task.row.package)}/system/"
    numbers = [
        int(number)
        for one in await client.list_files(run)
        if one.kind == "file" and one.path.startswith(folder)
        and (number := one.path.removeprefix(folder).removesuffix(".jsonl")).isdecimal()
    ]  # fmt: skip
    if not numbers:
        return None
    return parse_system(
        (await client.read_file(run, f"{folder}{max(numbers)}.jsonl")).decode(errors="replace")
    )


def parse_system(text: str) -> SystemSeries | None:
    """Returns the means of the rows of a file of `roost.package.results.system_metrics`."""
    columns: list[str] = []
    times: list[float] = []
    values: dict[str, list[float | None]] = {}
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            if isinstance(found.get("columns"), list):
                columns = [str(one) for one in found["columns"]]
                values = {name: [] for name in columns}
        elif isinstance(found, list) and len(found) >= 3 and isinstance(found[2], list):
            times.append(float(found[0]))
            for name, value in zip(columns, found[2], strict=False):
                values[name].append(value if isinstance(value, int | float) else None)
    return SystemSeries(times, values) if times else None


async def list_pictures(client: AsyncClient, task: LabTask) -> list[PictureFile]:
    """Returns the pictures of a run, the newest first."""
    found = [
        PictureFile(one.path, one.modified)
        for one in await client.list_files(run_id(task))
        if one.kind == "file" and one.path.lower().endswith(_PICTURE_TYPES)
        and one.path.startswith(("media/", "analysis/", "predictions/"))
    ]  # fmt: skip
    return sorted(found, key=lambda one: (-one.modified, one.path))


async def read_why(client: AsyncClient, task: LabTask) -> TaskExplanation:
    """Returns why a task waits, or how it ended.

    Raises:
        RoostError: As the operation.
    """
    found = await client.why(task.id)
    if not found:
        raise RoostError("there is no such task", received=task.id)
    return found[0]


def follow_log(
    client: AsyncClient, task: LabTask, rank: int, cursor: str
) -> AsyncGenerator[StreamEvent[LogPiece], None]:
    """Yields the output of a task from a cursor on, until it ends; of a task that reads a package its own,
    otherwise that of its package."""
    if task.row.session_folder:
        return client.follow_output(task.id, cursor=cursor)
    return client.follow_log(run_id(task), cursor=cursor, rank=rank)


async def log_start(client: AsyncClient, task: LabTask, rank: int) -> str:
    """Returns the cursor from which a log is shown: that of its last 256 KB."""
    if task.row.session_folder:
        return await output_start(client, task.id)
    page = await client.read_log(run_id(task), offset=0, limit=_SMALLEST_PAGE, rank=rank)
    return str(max(0, page.size - _MAX_LOG_BYTES))


async def output_start(client: AsyncClient, analyzer: str) -> str:
    """Returns the cursor from which the output of an analyzer is shown."""
    page = await client.read_output(analyzer, offset=0, limit=_SMALLEST_PAGE)
    return str(max(0, page.size - _MAX_LOG_BYTES))


def run_id(task: LabTask) -> str:
    """Returns the id of a task's run for the server."""
    from roost.serve.routes.served_packages import run_id as id_of

    return id_of(task.row.package)
