"""The operation ``import``: makes packages out of the runs of other systems."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from roost.base import durable
from roost.base.errors import NotFound, UsageError
from roost.operations import work_progress
from roost.operations.importing.imported_run import ImportedRun, plain_settings, stored_row
from roost.operations.importing.source_formats import AUTO, read_runs
from roost.package import labels, live_progress, package_name, records, sessions
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder
from roost.package.seals import session_seal
from roost.package.session_schema import SessionRecord, SessionRequest

_MAX_NOTE_CHARACTERS = 10_000
_NO_HOST = "another system"
"""In place of the machine of the run, which most systems do not record."""


class ImportedPackage(msgspec.Struct, frozen=True, kw_only=True):
    """The package of a run of another system."""

    package: str
    system: str
    source: str
    rows: int
    is_new: bool
    """False: the same run was imported before, and nothing was written."""
    left_out: list[str] = []
    """What was not imported, a line for each kind of thing."""


def import_runs(
    source: Path, *, root: Path, format: str = AUTO, name: str | None = None
) -> Iterator[ImportedPackage]:
    """Makes a package of each run of a source, and yields it. Nothing of the source is executed or changed.

    Args:
        source: A file or folder of another system.
        root: The folder for the packages; created if it does not exist.
        format: A key of `source_formats.FORMATS`; auto: the one that fits.
        name: The name of the package, of a source with one run; None: that of the run.

    Raises:
        NotFound: The source does not exist, or holds no run.
        UsageError: The format is unknown; or ``name`` is given for several runs.
        Refused: The source is a package of roost.
        ConfigError: The source is not as its system writes it, or a library is missing.
        OSError: A file cannot be read or written.
    """
    known = _imported_before(root)
    runs = read_runs(source, format)
    first = next(runs, None)
    if first is None:
        raise NotFound("holds no run", received=str(source), fix="name the file or folder of its runs")
    second = next(runs, None)
    if name is not None and second is not None:
        raise UsageError("is for one run, and this source has several", setting="--name", received=name)
    yield _import(first, root, known, name)
    if second is not None:
        yield _import(second, root, known, None)
    for run in runs:
        yield _import(run, root, known, None)


def _imported_before(root: Path) -> dict[str, str]:
    """Returns the packages of earlier imports in a folder, by the digest of their runs."""
    found: dict[str, str] = {}
    folders = [one.parent for one in root.glob("*/request.json")] if root.is_dir() else []
    for package in work_progress.track(folders, "reading packages"):
        request = sessions.load_json(package / "request.json") or {}
        section = request.get("imported")
        if isinstance(section, dict) and isinstance(digest := section.get("sha256"), str):
            found[digest] = str(package)
    return found


def _import(run: ImportedRun, root: Path, known: dict[str, str], name: str | None) -> ImportedPackage:
    digest = run.digest()
    left_out, source = list(run.left_out), str(run.source.absolute())
    if digest in known:
        return ImportedPackage(
            package=known[digest], system=run.system, source=source, rows=len(run.rows), is_new=False
        )
    settings = plain_settings(run.settings)
    tags = _valid_tags(run, left_out)
    about = {"system": run.system, "source": source, "run": run.key, "sha256": digest}
    made = PackageFolder.create(
        root.absolute(),
        name=_folder_name(run, name),
        values=settings,
        provenance=dict.fromkeys(settings, f"{run.system} {source}"),
        request={
            "kind": PackageKind.IMPORT,
            "description": f"imported from {run.system}",
            "time": round(time.time(), 3),
            "imported": about,
        },
        fill=lambda path: _fill(path, run, tags),
    )
    known[digest] = str(made.path)
    with suppress(OSError):  # without a seal `verify` says that it cannot compare
        session_seal.write(session_seal.seal_path(made.path, 1))
    return ImportedPackage(
        package=str(made.path),
        system=run.system,
        source=source,
        rows=len(run.rows),
        is_new=True,
        left_out=left_out,
    )


def _folder_name(run: ImportedRun, given: str | None) -> str:
    if given is not None:
        return package_name.folder_name(given)
    try:
        return package_name.folder_name(run.name)
    except UsageError:  # a name of dots
        return run.system


def _fill(path: Path, run: ImportedRun, tags: list[str]) -> None:
    """Writes the one session of the run, its rows and its labels."""
    request = SessionRequest(kind="import", session=1, host=_NO_HOST, boot_id="", pid=1)
    record = SessionRecord(
        format=1,
        session=1,
        state=run.state,
        host=_NO_HOST,
        boot_id="",
        pid=1,
        started=run.started,
        ended=run.ended,
        seconds=None if run.started is None or run.ended is None else max(0.0, run.ended - run.started),
        reason=f"imported from {run.system}",
    )
    rows = [stored_row(row) for row in run.rows]
    durable.write_new(path / "sessions" / "1.request.json", [sessions.to_json(request)])
    durable.write_new(path / "sessions" / "1.json", [sessions.to_json(record)])
    durable.write_new(path / "records" / "1.jsonl", [records.encode_records(rows, session=1)])
    if tags or run.note:
        given: Mapping[str, Any] = {"tags": tags, "note": run.note[:_MAX_NOTE_CHARACTERS] or None}
        labels.update(path, lambda found: msgspec.structs.replace(found, **given))
    if rows:
        newest, phase = rows[-1], live_progress.PHASES.index("ended")
        progress = live_progress.ProgressFile(path / "progress")
        progress.publish(newest["step"], newest["epoch"], 0, phase, 0, 0, 0, 0.0, 0.0, 1.0)


def _valid_tags(run: ImportedRun, left_out: list[str]) -> list[str]:
    """Returns the tags that roost allows; the others are named."""
    found, bad = [], []
    for tag in dict.fromkeys(run.tags):
        try:
            found.append(labels.checked_tag(tag))
        except UsageError:
            bad.append(tag)
    too_many = found[labels.MAX_TAGS :]
    if bad or too_many:
        left_out.append(f"{len(bad) + len(too_many)} tags: {', '.join([*bad, *too_many][:3])}")
    return found[: labels.MAX_TAGS]
