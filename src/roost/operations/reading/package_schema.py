"""Validates the JSON files of a package against the schemas that roost writes.

Every reader of a package calls this module first, so that a file that is torn or was edited by hand gives one
line that names it, and no failure in the middle of an operation.
"""

from __future__ import annotations

import functools
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shlex import quote
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from roost.analysis import analysis_folder
from roost.analysis.analysis_folder import AnalysisSessionRequest
from roost.base import safe_read
from roost.base.errors import ConfigError, Refused, RoostError
from roost.config.run_settings import RunSettings
from roost.operations import resolve
from roost.package import lineage, package_name, records
from roost.package import sessions as package_sessions
from roost.package.dlnest import original_folder
from roost.package.kinds import PackageKind
from roost.package.package import FORMAT, PackageFolder
from roost.package.project_preflight import parse_package_settings
from roost.package.session_schema import (
    CHECKED,
    LIVE_STATES,
    MAX_COUNT,
    REQUIRED,
    JsonFields,
    Range,
    SessionRecord,
    SessionRequest,
)
from roost.package.sessions import Session
from roost.package.setting_locations import setting_locations

_Id = Annotated[int, Meta(ge=0, le=MAX_COUNT)]


class DamagedPackage(RoostError):
    """A file or folder of the package is not as roost writes it.

    Args:
        package: The package.
        name: The file, relative to the package; a folder's ends with a slash.
        cause: The damage.
    """

    def __init__(self, package: Path, name: str, cause: str) -> None:
        self.name, self.cause = name, cause
        fix = "take the file from a copy of the package"
        if name.endswith("/"):
            fix = "take the folder from a copy of the package; `roost verify` checks all the rest"
        super().__init__(f"{name} is damaged: {cause}", where=package, fix=fix)


class _Git(msgspec.Struct):
    commit: str | None = None
    dirty: bool | None = None


class _PackageRequest(msgspec.Struct):
    command: list[str] = []
    description: str | None = None
    project: str | None = None
    git: _Git | None = None
    parent: lineage.ForkParent | None = None
    ancestors: list[lineage.ForkParent] = []
    places: dict[str, str] = {}


@functools.cache
def _checked_struct(schema: type[JsonFields]) -> type[msgspec.Struct]:
    """Returns a struct of the `Checked` fields of a schema, by which msgspec checks a file. It is made when
    it is needed, because that takes a millisecond, which most commands save."""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for name, hint in get_type_hints(schema, include_extras=True).items():
        if CHECKED in getattr(hint, "__metadata__", ()):
            default, kind = schema.DEFAULTS[name], _msgspec_type(hint)
            fields.append((name, kind) if default is REQUIRED else (name, kind, default))
    namespace = {"__post_init__": _require_process} if schema is SessionRecord else None
    return msgspec.defstruct(schema.__name__, fields, kw_only=True, namespace=namespace)


def _msgspec_type(hint: Any) -> Any:
    """Returns a type hint of a schema with `Range` as msgspec writes it."""
    kind = get_origin(hint)
    if kind is UnionType or kind is Union:
        return Union[tuple(map(_msgspec_type, get_args(hint)))]  # noqa: UP007  - of types known at run time
    if kind is not Annotated:
        return hint
    inner, *extras = get_args(hint)
    ranges = [Meta(ge=one.least, le=one.most) for one in extras if isinstance(one, Range)]
    return Annotated[(_msgspec_type(inner), *ranges)] if ranges else _msgspec_type(inner)


def _require_process(record: Any) -> None:
    if record.state in LIVE_STATES and (record.host is None or record.pid is None):
        raise ValueError("a running session without host and pid")


class _PackageRecord(msgspec.Struct):
    ckpt_fast: list[_Id] = []
    ckpt_slow: list[_Id] = []
    ckpt_consistent: list[_Id] = []
    ckpt_best: list[_Id] = []
    inexact: list[str] = []


class _CopiedFile(msgspec.Struct):
    link: str | None = None
    size: int | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        if self.link is None and (self.size is None or self.sha256 is None):
            raise ValueError("has neither a link nor size and sha256")


class _LeftOut(msgspec.Struct):
    path: str
    reason: str


class _Manifest(msgspec.Struct):
    files: dict[str, _CopiedFile]
    links: dict[str, str]
    left_out: list[_LeftOut] = []
    own: dict[str, _CopiedFile] = {}


_SCHEMAS: dict[str, Any] = {
    "request.json": _PackageRequest,
    "args.json": dict[str, Any],
    "provenance.json": dict[str, str],
    "manifest.json": _Manifest,
    "_package.json": _PackageRecord,
}
_SESSIONS = "sessions/"
_FOLDERS = (_SESSIONS, "Checkpoints/", "records/")
_OPTIONAL = "_package.json"
"""It does not exist before the first checkpoint."""


def load(package: Path, name: str) -> dict[str, Any]:
    """Reads a JSON file in the top folder of a package, with `printable` texts.

    Raises:
        DamagedPackage: It is missing, not JSON, or not of its schema.
    """
    try:
        found = json.loads(safe_read.read(package / name))
    except FileNotFoundError:
        if name == _OPTIONAL:
            return {}
        raise DamagedPackage(package, name, "it is missing") from None
    except OSError as error:
        raise DamagedPackage(package, name, f"it cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DamagedPackage(package, name, f"it is not JSON: {error}") from error
    _require_schema(package, name, found, _SCHEMAS[name])
    return dict(printable(found))


def printable(value: Any) -> Any:
    """Returns JSON whose texts can be encoded as UTF-8. File names and command lines may have other bytes,
    which Python keeps as lone surrogates; these are shown as ``\\udc80``."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [printable(one) for one in value]
    return (
        {printable(key): printable(one) for key, one in value.items()} if isinstance(value, dict) else value
    )


def _require_schema(package: Path, name: str, found: object, shape: Any) -> None:
    try:
        msgspec.convert(printable(found), shape)
    except (msgspec.ValidationError, RecursionError) as error:
        raise DamagedPackage(package, name, str(error)) from error


def sessions(package: Path) -> list[Session]:
    """Returns all sessions, oldest first, with `printable` texts. A record that cannot be read counts as
    missing: on a full disk a supervisor overwrites its last one in place, and may be killed meanwhile.

    Raises:
        DamagedPackage: A request or a record is not of its schema.
    """
    if damage := _folder_damage(package, _SESSIONS):
        raise damage
    found = package_sessions.read_all(package / "sessions")
    for session in found:
        _require_session(package, session)
    return list(map(_printable_session, found))


def _require_session(package: Path, session: Session) -> None:
    _require_fields(package, f"sessions/{session.number}.request.json", session.request, SessionRequest)
    if session.record is not None:
        _require_fields(package, f"sessions/{session.number}.json", session.record, SessionRecord)


def _require_fields(package: Path, name: str, found: object, schema: type[JsonFields]) -> None:
    _require_schema(package, name, found, _checked_struct(schema))


def _printable_session(session: Session) -> Session:
    record = session.record
    return replace(
        session,
        request=SessionRequest.from_json(printable(session.request)),
        record=SessionRecord.from_json(printable(record)) if record is not None else None,
    )


def analyses(package: Path) -> list[Session]:
    """Returns all analyses, oldest first, in the form of `sessions`.

    Raises:
        DamagedPackage: A request or a record is not of its schema.
    """
    found = analysis_folder.read_all(package / analysis_folder.NAME)
    for one in found:
        _require_analysis(package, one)
    return list(map(_printable_session, found))


def analysis_damage(package: Path) -> Iterator[DamagedPackage]:
    """Yields the error of each analysis whose request or record is not of its schema."""
    for one in analysis_folder.read_all(package / analysis_folder.NAME):
        try:
            _require_analysis(package, one)
        except DamagedPackage as damage:
            yield damage


def _require_analysis(package: Path, one: Session) -> None:
    place = f"{analysis_folder.NAME}/{one.number}"
    request = f"{place}/{analysis_folder.REQUEST}"
    _require_fields(package, request, one.request, AnalysisSessionRequest)
    if one.record is not None:
        _require_fields(package, f"{place}/{analysis_folder.RECORD}", one.record, SessionRecord)


def open_checked(path: Path | str, *, to_continue: bool = False) -> PackageFolder:
    """Opens a package after a check of all its JSON files.

    Args:
        path: The package, or its task (`roost.operations.resolve`).
        to_continue: Require that it may be changed, and accept a damaged _package.json, which the next save
            replaces.

    Raises:
        NotFound: There is no package.
        Refused: It must not be changed (`require_changeable`).
        UsageError: Several tasks match.
        DamagedPackage: A file of it is not as roost writes it.
    """
    package = PackageFolder.open(resolve.find_package(path))
    if to_continue:
        require_changeable(package.path)
    for damage in find_damage(package):
        if not (to_continue and damage.name == _OPTIONAL):
            raise damage
    return package


def require_changeable(package: Path) -> None:
    """Checks that this version of roost knows the format of a package, and that it is not removed.

    Raises:
        NotFound: It is not a package of roost.
        Refused: A newer roost has written it, or it is in the trash.
    """
    if original_folder.is_original(package):
        raise original_folder.read_only_error(package)
    request = package_sessions.load_json(package / "request.json")
    if request is None and not (package / "request.json").exists():
        PackageFolder.open(package)  # raises
    format = (request or {}).get("format", FORMAT)
    if isinstance(format, int) and format > FORMAT:
        raise Refused(
            f"a newer roost has written it, in format {format}", where=package, fix="use that roost for it"
        )
    if os.path.basename(os.path.realpath(package.parent)) == package_name.TRASH:  # noqa: PTH119
        raise Refused(
            "it is in the trash", where=package, fix=f"take it back: roost restore {quote(str(package))}"
        )


def find_damage(package: PackageFolder) -> Iterator[DamagedPackage]:
    """Yields the error of each JSON file of the package that is not as roost writes it, and of a missing
    folder of sessions, without which no reader knows the settings in effect."""
    for name in _SCHEMAS:
        try:
            load(package.path, name)
        except DamagedPackage as damage:
            yield damage
    if folder := _folder_damage(package.path, _SESSIONS):
        yield folder
    for session in package.sessions():
        try:
            _require_session(package.path, session)
        except DamagedPackage as damage:
            yield damage


def missing_folders(package: PackageFolder) -> Iterator[DamagedPackage]:
    """Yields the error of each folder that every package has and this one lacks."""
    for name in _FOLDERS:
        if damage := _folder_damage(package.path, name):
            yield damage


def require_folders(package: PackageFolder) -> None:
    """Checks that another session can be added.

    Raises:
        DamagedPackage: A folder is missing.
    """
    for damage in missing_folders(package):
        raise damage


def require_session_files(package: PackageFolder) -> None:
    """Checks that a session can write its output and its progress.

    Raises:
        RoostError: A FIFO, a folder, … is in the place of one.
    """
    for path in (package.output, package.progress):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            fix = "rename it: a session creates a new one"
            raise RoostError(f"{path.name} is not a file", where=package.path, fix=fix)


def _folder_damage(package: Path, name: str) -> DamagedPackage | None:
    path = package / name.rstrip("/")
    if path.is_dir():
        return None
    return DamagedPackage(package, name, "it is not a folder" if os.path.lexists(path) else "it is missing")


def unreadable_records(package: PackageFolder) -> Iterator[DamagedPackage]:
    """Yields the error of each session record that cannot be read. Readers and `continue` work without it,
    see `sessions`."""
    for session in package.sessions():
        if session.damage is not None:
            yield DamagedPackage(package.path, f"sessions/{session.number}.json", session.damage)


def records_damage(package: PackageFolder, torn: int = 0) -> str | None:
    """Returns what is evidently missing from the rows, for readers that show them; None if nothing is. Only
    `roost verify` compares all bytes.

    Args:
        package: The package.
        torn: The lines that are no rows; each session may leave one, if it is killed while it writes.
    """
    start = records.first_start(package.path / "records")
    is_training = PackageKind.of(package.request).trains
    missing = [f"the rows up to step {start}"] if start > 0 and is_training else []
    folders = [one.name for one in missing_folders(package)]
    missing += [f"{torn} lines, which are not rows"] if torn > len(package.sessions()) else []
    said = [f"{' and '.join(missing)} are missing from its records"] if missing else []
    said += [f"its folder {name} is missing" for name in folders]
    return f"{'; '.join(said)}; see `roost verify`" if said else None


def settings(package: PackageFolder) -> dict[str, Any]:
    """Returns all effective settings, with `printable` texts.

    Raises:
        DamagedPackage: An override of a session does not fit args.json.
    """
    try:
        return dict(printable(package.settings))
    except ConfigError as error:
        cause = f"an override of a session does not fit it: {error.message}"
        raise DamagedPackage(package.path, "args.json", cause) from error


def checked_settings(package: PackageFolder, project: Path) -> RunSettings:
    """Returns the effective settings as a worker reads them.

    Args:
        package: The package.
        project: The project's folder, for ``${project}``.

    Raises:
        DamagedPackage: As `settings`.
        ConfigError: The settings do not fit this version of roost.
    """
    where = setting_locations(package)
    return parse_package_settings(
        package, settings(package), project=project, folder=str(package.path), where=where
    )
