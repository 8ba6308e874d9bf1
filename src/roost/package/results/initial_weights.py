"""The initial weights of a run: the report about ``init_from`` that its package keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from roost.base import durable
from roost.base.errors import ConfigError, NotFound
from roost.base.text.typed_path import typed_path
from roost.config.sections.init_from import InitSettings
from roost.config.settings import Settings, Where
from roost.package import sessions

NAME = "init_from.json"


class InitialWeights(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of ``init_from``, and the result of loading it."""

    path: str
    """The path in the config."""
    found: str
    """The path of the file that was loaded."""
    about: str
    """A description of the file or checkpoint."""
    sha256: str
    """The digest of the file."""
    size: int
    """The size of the file in bytes."""
    loaded: str
    """The result: ``18 of 20 tensors loaded``."""
    report: list[str] = []
    """The other lines of the load report."""


def entries(settings: Settings) -> Iterator[tuple[str, InitSettings]]:
    """Yields each entry of ``init_from`` with its dotted key."""
    value = settings.init_from
    values = value if isinstance(value, list) else [] if value is None else [value]
    for number, one in enumerate(values):
        key = f"init_from.{number}" if isinstance(value, list) else "init_from"
        yield key, InitSettings(path=one) if isinstance(one, str) else one


def require(settings: Settings, *, project: Path, where: Where) -> None:
    """Checks that the paths of ``init_from`` exist, before anything is created.

    Raises:
        NotFound: A path does not exist.
        ConfigError: An entry is not a path.
    """
    for key, one in entries(settings):
        path = project / expand_path(one.path, key, where)
        if "${" not in one.path and not path.exists():
            raise NotFound(
                "the file or package does not exist",
                setting=key,
                received=one.path,
                where=where(f"{key}.path") or where(key),
                fix=f"paths start at the project's folder, {project}",
            )


def expand_path(path: str, key: str, where: Where) -> Path:
    """Returns the path with ``~`` replaced by a home folder.

    Raises:
        ConfigError: It is not a path, or the user after ``~`` does not exist.
    """
    if not path.strip() or "\0" in path:
        fix = "name a package, a checkpoint or a file of weights; null keeps the weights of the Runner"
        raise ConfigError("not a path", setting=key, received=path, where=where(key), fix=fix)
    try:
        return typed_path(path)
    except NotFound as error:
        raise ConfigError(
            error.message, setting=key, received=path, where=where(key), fix="write the whole path"
        ) from None


def write(package: Path, report: Sequence[InitialWeights]) -> None:
    """Writes the report to a package.

    Raises:
        OSError: The file cannot be written.
    """
    durable.write(package / NAME, sessions.to_json({"format": 1, "init_from": list(report)}))


def read(package: Path) -> list[InitialWeights]:
    """Reads the report of a package; empty if the file is missing or invalid, as it only informs the user,
    and no run depends on it."""
    body = sessions.load_json(package / NAME) or {}
    try:
        return msgspec.convert(body.get("init_from", []), list[InitialWeights])
    except msgspec.ValidationError:
        return []
