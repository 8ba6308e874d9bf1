"""Runs of Aim: in a repository ``.aim``, the RocksDB databases of each run, and the SQLite file of their
names and tags.

The databases are opened one by one, to be read only. Aim's own ``Repo`` would migrate them, and does not list
a run that it has not indexed.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from roost.base.errors import ConfigError
from roost.base.text.word_list import join_names
from roost.operations import work_progress
from roost.operations.importing import sqlite_file
from roost.operations.importing.imported_run import ImportedRun, RowMerger

_FOLDER = ".aim"
_NUMBERS = ("float", "float64", "int")
_OWN_PREFIX = "__"
"""How the names begin of what Aim itself records: usage of the machine, variables of the environment."""
_SUBSET = "subset"
"""The key of the split in a context."""


def is_repository(path: Path) -> bool:
    """Whether a path is a repository, or a folder with one."""
    return path.is_dir() and (path.name == _FOLDER or (path / _FOLDER).is_dir())


def read_runs(path: Path) -> Iterator[ImportedRun]:
    """Yields the runs of a repository.

    Raises:
        ConfigError: aim, which reads the databases, is not installed; or a database cannot be read.
        OSError: A file cannot be read.
    """
    if find_spec("aim") is None:
        raise ConfigError(
            "only Aim can read its databases (RocksDB), and aim is not installed",
            where=path,
            fix="pip install 'roost[aim]'; it is for Python 3.12 and older: import with such a one, and copy "
            "the packages",
        )
    repository = path if path.name == _FOLDER else path / _FOLDER
    known = _known_runs(repository / "run_metadata.sqlite")
    folders = sorted(one for one in repository.glob("meta/chunks/*") if (one / "CURRENT").is_file())
    for folder in work_progress.track(folders, "reading runs of Aim"):
        try:
            run = _run(repository, folder.name, known.get(folder.name, _KnownRun()))
        except Exception as error:  # of aimrocks; or of a tree that Aim has not written
            raise ConfigError(f"the database cannot be read: {error!r}", where=folder) from error
        yield run


class _KnownRun(NamedTuple):
    """The row of the SQLite file about a run."""

    name: str = ""
    note: str = ""
    tags: tuple[str, ...] = ()
    started: float | None = None


def _known_runs(path: Path) -> dict[str, _KnownRun]:
    """Returns the row of each run, by its hash."""
    tags = defaultdict[int, list[str]](list)
    try:
        with sqlite_file.opened(path) as database:
            rows = database.execute(
                "SELECT run_id, name FROM run_tag JOIN tag ON tag.id = tag_id ORDER BY tag_id"
            )
            for run, name in rows:
                tags[run].append(str(name))
            runs = database.execute("SELECT id, hash, name, description, created_at FROM run").fetchall()
    except sqlite3.Error as error:
        raise ConfigError(f"the database cannot be read: {error}", where=path) from None
    return {
        str(key): _KnownRun(str(name or ""), str(note or ""), tuple(tags[run]), _seconds(created))
        for run, key, name, note, created in runs
    }


def _seconds(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def _run(repository: Path, key: str, known: _KnownRun) -> ImportedRun:
    about = _tree(repository / "meta" / "chunks" / key, ("meta", "chunks", key))
    contexts, traces = about.get("contexts", {}), about.get("traces", {})
    points, others = list[tuple[int, float, str, float, int]](), set[str]()
    for context, name, columns in _sequences(repository / "seqs" / "chunks" / key, key):
        kind = traces.get(context, {}).get(name, {}).get("dtype", _NUMBERS[0])
        if name.startswith(_OWN_PREFIX) or kind not in _NUMBERS:
            others.add(name)
            continue
        full_name = _full_name(contexts.get(context, {}), name)
        for at, value in columns["val"].items():
            step, time = columns["step"].get(at, at), columns["time"].get(at)
            points.append((step, time or 0.0, full_name, value, columns["epoch"].get(at) or 0))
    merger = RowMerger()
    for step, time, name, value, epoch in sorted(points, key=lambda point: point[:2]):
        merger.add(step, name, value, time, epoch=epoch)
    settings: dict[str, Any] = about.get("attrs", {})
    others |= {name for name in settings if str(name).startswith(_OWN_PREFIX)}
    ended = about.get("end_time")
    return ImportedRun(
        system="aim",
        source=repository,
        name=known.name or key,
        key=key,
        settings={name: value for name, value in settings.items() if name not in others},
        rows=merger.rows(),
        tags=known.tags,
        note=known.note,
        state="stopped" if ended is None else "succeeded",
        started=known.started,
        ended=ended if ended is not None else max((point[1] for point in points), default=None),
        left_out=[f"what is no metric or setting: {join_names(sorted(others))}"] if others else [],
    )


def _full_name(context: Mapping[str, Any], name: str) -> str:
    """Returns ``valid/fold=1/loss`` of a loss in the context of the subset valid and fold 1."""
    others = [f"{key}={value}" for key, value in sorted(context.items()) if key != _SUBSET]
    return "/".join([*([str(context[_SUBSET])] if _SUBSET in context else []), *others, name])


def _sequences(folder: Path, key: str) -> Iterator[tuple[int, str, dict[str, dict[int, Any]]]]:
    """Yields what was tracked: the number of its context, its name, and its columns by the numbers of the
    values."""
    found = defaultdict[tuple[int, str], dict[str, dict[int, Any]]](lambda: defaultdict(dict))
    for path, value in _items(folder, ("seqs",)) if folder.is_dir() else ():
        # The number is the step; in the second version a hash of the step, which has a column then.
        match path:
            case (_, "chunks", _, context, name, column, at) | (
                _,
                "v2",
                "chunks",
                _,
                context,
                name,
                column,
                at,
            ):
                found[context, name][column][at] = value
    for (context, name), columns in found.items():
        yield context, name, columns


class _Array(dict[int, Any]):
    """A list, by the numbers of its values: a false one may have a very high number."""


def _tree(folder: Path, prefix: tuple[str, ...]) -> dict[Any, Any]:
    """Returns the part of a tree below a prefix."""
    from aim.storage.utils import ArrayFlag

    root: dict[Any, Any] = {}
    for path, value in _items(folder, prefix):
        if len(path) == len(prefix):
            continue
        *parents, last = path[len(prefix) :]
        at = root
        for one in parents:
            at = at.setdefault(one, {})
        if value is ArrayFlag:
            at[last] = _Array()
        elif value is None or isinstance(value, bool | int | float | str):
            at[last] = value
        else:  # the sign of an object; or bytes, of one that is no setting
            at[last] = {}
    return {name: _plain(value) for name, value in root.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, _Array):
        return [_plain(one) for one in value.values()]
    return {name: _plain(one) for name, one in value.items()} if isinstance(value, dict) else value


def _items(folder: Path, prefix: tuple[str, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yields the paths below a prefix, in order, each with its value."""
    from aim.storage import encoding
    from aim.storage.rockscontainer import RocksContainer

    container = RocksContainer(str(folder), read_only=True)
    try:
        for key, value in container.items(encoding.encode_path(prefix)):
            yield tuple(encoding.decode_path(key)), encoding.decode(value)
    finally:
        container.close()
