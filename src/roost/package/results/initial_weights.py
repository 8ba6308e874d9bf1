"""The weights that a run began with: what of ``init_from`` stays in its package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from roost.base import durable
from roost.base.errors import ConfigError, NotFound
from roost.config.sections.init_from import InitSettings
from roost.config.settings import Settings, Where
from roost.package import sessions

NAME = "init_from.json"


class InitialWeights(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of ``init_from``, and what came of it."""

    path: str
    """As the config has it."""
    found: str
    """Where that was."""
    about: str
    """What it is, in words."""
    sha256: str
    """Of the file that held them."""
    size: int
    """Of that file, in bytes."""
    loaded: str
    """``18 of 20 tensors loaded``."""
    report: list[str] = []
    """All else that there is to say, a line each."""


def entries(settings: Settings) -> Iterator[tuple[str, InitSettings]]:
    """Each entry of ``init_from`` with the key by which its place is known."""
    asked = settings.init_from
    several = asked if isinstance(asked, list) else [] if asked is None else [asked]
    for number, one in enumerate(several):
        key = f"init_from.{number}" if isinstance(asked, list) else "init_from"
        yield key, InitSettings(path=one) if isinstance(one, str) else one


def require(settings: Settings, *, project: Path, where: Where) -> None:
    """Makes sure that there is what ``init_from`` names, before anything is made.

    Raises:
        NotFound: There is not.
    """
    for key, one in entries(settings):
        path = project / expand_path(one.path, key, where)
        if "${" not in one.path and not path.exists():
            raise NotFound(
                "there is no such file or package",
                setting=key,
                received=one.path,
                where=where(f"{key}.path") or where(key),
                fix=f"paths start at the config's folder, {project}",
            )


def expand_path(path: str, key: str, where: Where) -> Path:
    """The path, with a home folder for its ``~``.

    Raises:
        ConfigError: It is no path, or nobody has that name.
    """
    if not path.strip() or "\0" in path:
        fix = "name a package, a checkpoint or a file of weights; null begins with those of the Runner"
        raise ConfigError("is no path", setting=key, received=path, where=where(key), fix=fix)
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(
            str(error), setting=key, received=path, where=where(key), fix="write the whole path"
        ) from None


def write(package: Path, began: Sequence[InitialWeights]) -> None:
    """Keeps them.

    Raises:
        OSError: It cannot be written.
    """
    durable.write(package / NAME, sessions.to_json({"format": 1, "init_from": list(began)}))


def read(package: Path) -> list[InitialWeights]:
    """What a package began with; nothing where the file is not there, or means nothing: it is a note for
    people, and no run needs it."""
    body = sessions.load_json(package / NAME) or {}
    try:
        return msgspec.convert(body.get("init_from", []), list[InitialWeights])
    except msgspec.ValidationError:
        return []
