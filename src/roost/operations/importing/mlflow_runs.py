"""Runs of MLflow: its file store ``mlruns/EXPERIMENT/RUN``, and its SQLite database. Neither needs MLflow."""

from __future__ import annotations

import math
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from roost.base import safe_read
from roost.base.errors import ConfigError
from roost.operations import work_progress
from roost.operations.importing import sqlite_file
from roost.operations.importing.imported_run import ImportedRun, RowMerger, RunState

_STATES: Mapping[object, RunState] = {
    "FINISHED": "succeeded",
    3: "succeeded",
    "FAILED": "failed",
    4: "failed",
}
"""By the status; the file store has the numbers of MLflow's protocol. Other runs were killed, or still
run."""
_LARGEST = 1.7976931348623157e308
"""What MLflow stores for infinity."""
_MAX_META_BYTES = 1 << 20
_MAX_MILLISECONDS = 1e15
_MAX_STEP = 2**63
_OWN_TAGS = ("mlflow.", "roost.")
"""How the tags begin that no person has given."""
_NOTE_TAG, _NAME_TAG = "mlflow.note.content", "mlflow.runName"
_TABLES = {"runs", "metrics", "params", "tags"}
_DELETED = "deleted"
_DATABASE_NAMES = ("mlflow.db", "mlruns.db")
"""How a database is called in a folder, by MLflow's documents and by roost."""


def holds_runs(path: Path) -> bool:
    """Whether a path is a database of MLflow, or a folder with one or with a file store."""
    return _find_database(path) is not None or (path.is_dir() and bool(find_run_folders(path)))


def read_runs(path: Path) -> Iterator[ImportedRun]:
    """Yields the runs that are not deleted, of a database if there is one, else of the file store.

    Raises:
        ConfigError: A file, or the database, is not as MLflow writes it.
        OSError: A file cannot be read.
    """
    database = _find_database(path)
    return _read_folders(path) if database is None else _read_database(database)


def _find_database(path: Path) -> Path | None:
    places = (path / name for name in _DATABASE_NAMES) if path.is_dir() else (path,)
    return next((one for one in places if _is_database(one)), None)


def _is_database(path: Path) -> bool:
    try:
        with sqlite_file.opened(path) as database:
            found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return {name for (name,) in found} >= _TABLES
    except (OSError, sqlite3.Error):
        return False


def find_run_folders(path: Path) -> list[Path]:
    """Returns the folders of runs of a file store, at and below a folder, sorted."""
    found = (file.parent for file in path.rglob("meta.yaml") if (file.parent / "metrics").is_dir())
    return sorted(found)


def _read_database(path: Path) -> Iterator[ImportedRun]:
    try:
        with sqlite_file.opened(path) as database:
            runs = database.execute(
                "SELECT run_uuid, name, status, start_time, end_time FROM runs WHERE lifecycle_stage != ? "
                "ORDER BY start_time",
                (_DELETED,),
            ).fetchall()
            for run, name, status, start, end in work_progress.track(runs, "reading runs of MLflow"):
                params = database.execute("SELECT key, value FROM params WHERE run_uuid = ?", (run,))
                tags = database.execute("SELECT key, value FROM tags WHERE run_uuid = ?", (run,))
                metrics = database.execute(
                    "SELECT key, step, value, timestamp, is_nan FROM metrics WHERE run_uuid = ? "
                    "ORDER BY step, timestamp, rowid",
                    (run,),
                )
                points = (
                    (str(key), int(step), math.nan if is_nan else float(value), float(at))
                    for key, step, value, at, is_nan in metrics
                )
                known = {"status": status, "start_time": start, "end_time": end, "run_name": name}
                yield _run(path, str(run), known, _texts(params), _texts(tags), points)
    except (sqlite3.Error, TypeError, ValueError) as error:  # a column may hold values of any type
        raise ConfigError(f"the database cannot be read: {error}", where=path) from None


def _texts(pairs: Iterable[tuple[object, object]]) -> dict[str, str]:
    return {str(key): "" if value is None else str(value) for key, value in pairs}


def _read_folders(path: Path) -> Iterator[ImportedRun]:
    for folder in work_progress.track(find_run_folders(path), "reading runs of MLflow"):
        known = _meta(folder / "meta.yaml")
        if known.get("lifecycle_stage") == _DELETED:
            continue
        params, tags = (_values(folder / name) for name in ("params", "tags"))
        yield _run(folder, folder.name, known, params, tags, _points(folder / "metrics"))


def _meta(file: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(bytes(safe_read.read(file, max_bytes=_MAX_META_BYTES)))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        what = " ".join(str(error).split())  # its lines show the place
        raise ConfigError(f"it is no YAML: {what}", where=file, fix="copy the store again") from None
    return found if isinstance(found, dict) else {}


def _values(folder: Path) -> dict[str, str]:
    """Returns the texts of the files below a folder, by their paths in it: a name may have slashes."""
    files = sorted(one for one in folder.rglob("*") if one.is_file())
    return {
        one.relative_to(folder).as_posix(): safe_read.read(one, max_bytes=_MAX_META_BYTES).decode(
            errors="replace"
        )
        for one in files
    }


def _points(folder: Path) -> Iterator[tuple[str, int, float, float]]:
    found: list[tuple[str, int, float, float]] = []
    for file in sorted(one for one in folder.rglob("*") if one.is_file()):
        name = file.relative_to(folder).as_posix()
        for number, line in enumerate(safe_read.read(file).decode(errors="replace").splitlines(), start=1):
            cells = line.split()
            try:
                found.append((name, int(cells[2]) if len(cells) > 2 else 0, float(cells[1]), float(cells[0])))
            except (ValueError, IndexError):
                fix = "copy the store again, or remove that line"
                where = f"{file}:{number}"
                raise ConfigError("a line is no value of a metric", where=where, fix=fix) from None
    yield from sorted(found, key=lambda point: (point[1], point[3]))


def _run(
    source: Path,
    key: str,
    known: Mapping[str, Any],
    params: Mapping[str, str],
    tags: Mapping[str, str],
    points: Iterable[tuple[str, int, float, float]],
) -> ImportedRun:
    merger = RowMerger()
    for name, step, value, at in points:
        if abs(step) >= _MAX_STEP:
            raise ConfigError(f"the metric {name} has the step {step}", where=source)
        number = math.copysign(math.inf, value) if abs(value) == _LARGEST else value
        merger.add(step, name, number, at / 1000)
    own = {name: value for name, value in tags.items() if not name.startswith(_OWN_TAGS)}
    name = known.get("run_name") or tags.get(_NAME_TAG) or key
    return ImportedRun(
        system="mlflow",
        source=source,
        name=str(name),
        key=key,
        settings=_nested(params),
        rows=merger.rows(),
        tags=[f"{name}:{value}" if value else name for name, value in own.items()],
        note=tags.get(_NOTE_TAG, ""),
        state=_state(known.get("status")),
        started=_seconds(known.get("start_time")),
        ended=_seconds(known.get("end_time")),
    )


def _state(status: object) -> RunState:
    return _STATES.get(status, "stopped") if isinstance(status, str | int) else "stopped"


def _seconds(milliseconds: object) -> float | None:
    is_time = isinstance(milliseconds, int | float) and 0 < milliseconds < _MAX_MILLISECONDS
    return milliseconds / 1000 if is_time else None  # type: ignore[operator]


def _nested(params: Mapping[str, str]) -> dict[str, Any]:
    """Returns parameters, which are texts, as the values that they are in YAML; those of dotted names in
    sections, as far as no name is both."""
    found: dict[str, Any] = {}
    heads = defaultdict[str, set[bool]](set)
    for name in params:
        heads[name.partition(".")[0]].add("." in name)
    for name, text in params.items():
        section, _, rest = name.partition(".")
        if rest and heads[section] == {True}:
            found.setdefault(section, {})[rest] = text
        else:
            found[name] = _plain(text)
    return {
        name: _nested(value) if isinstance(value, dict) and heads[name] == {True} else value
        for name, value in found.items()
    }


def _plain(text: str) -> Any:
    if "&" in text and "*" in text:  # a short text whose aliases repeat each other may have no end
        return text
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        return text
    return value if isinstance(value, int | float | bool | list | dict) else text
