"""``profile``: what holds the run of a package back, by what it measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from roost.base.errors import NotFound
from roost.operations.reading import package_schema
from roost.package.lineage import ancestry_of_request
from roost.package.package import PackageFolder
from roost.package.records import Columns
from roost.package.results import time_breakdown
from roost.package.results.profiles import bottlenecks, profile_record
from roost.package.results.profiles.bottlenecks import Bottleneck
from roost.package.results.profiles.profile_record import ProfileRecord

_MIN_SELDOM = 3
"""Rows with a validation or a save from which on the whole run says how long these take."""
_SELDOM = {"validate": "Validate", "save": "Save"}


@dataclass(frozen=True)
class RunProfile:
    """The bottlenecks of a run, with the times from which they follow."""

    package: str
    session: int | None
    """The session that was measured; None: none was, and the times are those of the rows of the run."""
    steps: tuple[int, int] | None
    """The first and the last measured step."""
    seconds: float
    """How long was measured."""
    milliseconds: dict[str, float]
    """The time of a step by parts."""
    bottlenecks: list[Bottleneck]
    """What takes most of the time first."""
    notes: list[str]
    """What limits the trust in the figures, and how to learn more."""
    picture: str | None
    """The flame graph."""
    trace: str | None
    """The trace of torch's profiler, for chrome://tracing or ui.perfetto.dev."""


def profile(package: Path | str, *, session: int | None = None) -> RunProfile:
    """Returns what holds the run of a package back: by its newest profile, or without one by the times in
    its rows. Validations and saves, which are seldom, are those of all rows.

    Args:
        package: The package, or its task.
        session: The session whose profile is read.

    Raises:
        NotFound: There is no such package, no profile of that session, or neither a profile nor rows.
        DamagedPackage: A file of it is not as roost writes it.
    """
    opened = package_schema.open_checked(package)
    found = profile_record.read(opened.path, session)
    columns = opened.records()
    if found is None:
        if session is not None:
            raise NotFound(
                f"session {session} has no profile",
                received=str(opened.path),
                fix="`roost run --profile` records one, and `roost rerun PACKAGE profile.seconds=20`",
            )
        return _of_rows(opened, columns)
    record = _with_seldom_parts(found.record, opened, columns)
    trace = found.folder / "trace.json"
    return RunProfile(
        package=package_schema.printable(str(opened.path)),
        session=record.session,
        steps=(record.first_step, record.last_step),
        seconds=record.seconds,
        milliseconds=bottlenecks.milliseconds_per_step(record),
        bottlenecks=bottlenecks.find_bottlenecks(record),
        notes=bottlenecks.notes(record),
        picture=None if found.picture is None else package_schema.printable(str(found.picture)),
        trace=package_schema.printable(str(trace)) if trace.is_file() else None,
    )


def _of_rows(package: PackageFolder, columns: Columns) -> RunProfile:
    """Returns what the rows alone say: nothing of the loader workers, the operators or the hooks."""
    ancestry = ancestry_of_request(package_schema.load(package.path, "request.json"))
    times = time_breakdown.from_records(columns, after=ancestry[0].step if ancestry else 0)
    if times is None or times.steps < 1 or times.seconds <= 0:
        raise NotFound(
            "has neither a profile nor rows with times",
            received=str(package.path),
            fix="roost run CONFIG --profile records a profile",
        )
    record = ProfileRecord(
        first_step=1,
        last_step=times.steps,
        seconds=times.seconds,
        samples=times.samples,
        parts=times.parts,
        calls=_calls(columns),
    )
    return RunProfile(
        package=package_schema.printable(str(package.path)),
        session=None,
        steps=None,
        seconds=times.seconds,
        milliseconds=bottlenecks.milliseconds_per_step(record),
        bottlenecks=bottlenecks.find_bottlenecks(record),
        notes=[
            "no session was profiled: these are the times in the rows of the run, its start included; "
            f"for loader workers, operators and a picture: roost rerun {package.path} profile.seconds=20"
        ],
        picture=None,
        trace=None,
    )


def _calls(columns: Columns) -> dict[str, int]:
    """Returns in how many rows there were validations and saves."""
    return {
        hook: len(columns.perf.get(time_breakdown.column_name(part), ([], []))[0])
        for part, hook in _SELDOM.items()
    }


def _with_seldom_parts(record: ProfileRecord, package: PackageFolder, columns: Columns) -> ProfileRecord:
    """Returns a record with the validations and saves of the whole run in place of those that happened to be
    among the measured steps, where the run has several."""
    ancestry = ancestry_of_request(package_schema.load(package.path, "request.json"))
    whole = time_breakdown.from_records(columns, after=ancestry[0].step if ancestry else 0)
    if whole is None or whole.steps <= record.steps:
        return record
    parts, calls, numbers = dict(record.parts), dict(record.calls), _calls(columns)
    for part, hook in _SELDOM.items():
        if numbers[hook] >= _MIN_SELDOM:
            parts[part] = whole.parts.get(part, 0.0) * record.steps / whole.steps
            calls[hook] = max(2, round(numbers[hook] * record.steps / whole.steps))
    changed = sum(parts.values()) - sum(record.parts.values())
    return msgspec.structs.replace(record, parts=parts, calls=calls, seconds=record.seconds + changed)
