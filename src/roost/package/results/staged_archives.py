"""The staged archives of a run: their names in the settings, and the record that its package keeps of their
digests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from roost.base import durable
from roost.base.errors import ConfigError
from roost.base.text.suggestions import did_you_mean
from roost.base.text.word_list import join_names
from roost.config import interpolation
from roost.config.sections.staging import Stage, StagedArchiveSettings
from roost.config.settings import Where
from roost.config.values.nested_values import value_at
from roost.package import sessions
from roost.package.resume.environment import redact

NAME = "staged.json"
STAGE_KEY = "data.stage"
"""The key of the staged archives in a native config."""
DLNEST_KEY = "roost.data.stage"
_ENDING = re.compile(r"\.(zip|tar|tgz|tbz2|txz|tzst)(\.(gz|bz2|xz|zst))?$", re.IGNORECASE)
_NAME = re.compile(r"[\w-]+")
_DIGEST_SIGN, _DIGEST = "#sha256=", re.compile(r"[0-9a-fA-F]{64}")
"""What follows a path or URL, as in the links of pip."""


class StagedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An archive, as the last session staged it."""

    archive: str
    """Where it was read, without credentials."""
    sha256: str
    num_files: int
    num_bytes: int


class NamedArchive(NamedTuple):
    """An entry of ``data.stage``."""

    name: str
    key: str
    """Its dotted key in the config."""
    settings: StagedArchiveSettings


def named_archives(
    stage: Stage, *, key: str = STAGE_KEY, where: Where = lambda key: None
) -> list[NamedArchive]:
    """Returns the archives of ``data.stage``, with their names.

    Raises:
        ConfigError: Two have one name, or one has none; or a text has a wrong checksum.
    """
    entries = stage if isinstance(stage, list) else [stage] if stage is not None else []
    found = list[NamedArchive]()
    for number, entry in enumerate(entries):
        at = f"{key}.{number}" if isinstance(stage, list) and not key.startswith("--") else key
        asked = _of_text(entry, at, where) if isinstance(entry, str) else entry
        location = urlsplit(asked.archive).path if "://" in asked.archive else asked.archive
        name = asked.name or _ENDING.sub("", location.rstrip("/").rpartition("/")[2])
        if not asked.archive.strip() or "\0" in asked.archive:
            raise ConfigError(
                "is no path", setting=at, received=asked.archive, where=where(at), fix="name a file"
            )
        if len(entries) > 1 and not _NAME.fullmatch(name):
            fix = "give it a name of letters, digits, - and _: {archive: …, name: images}"
            raise ConfigError("the archive has no name", setting=at, received=name, where=where(at), fix=fix)
        if any(one.name == name for one in found):
            fix = "give each a name: {archive: …, name: images}"
            raise ConfigError(
                "two archives have one name", setting=at, received=name, where=where(at), fix=fix
            )
        found.append(NamedArchive(name, at, asked))
    return found


def _of_text(text: str, key: str, where: Where) -> StagedArchiveSettings:
    archive, sign, digest = text.partition(_DIGEST_SIGN)
    if sign and not _DIGEST.fullmatch(digest):
        fix = "give the 64 hexadecimal digits that `sha256sum FILE` prints"
        raise ConfigError("is no checksum", setting=key, received=sign + digest, where=where(key), fix=fix)
    return StagedArchiveSettings(archive=archive, sha256=digest or None)


def folder_names(archives: list[NamedArchive]) -> dict[str, NamedArchive]:
    """Returns the archives by the names of references to their folders: ``staged`` where there is one
    archive, and ``staged.NAME``."""
    found = {f"{interpolation.STAGED}.{one.name}": one for one in archives}
    return {interpolation.STAGED: archives[0], **found} if len(archives) == 1 else found


def check(values: Mapping[str, Any], stage: Stage, where: Where) -> None:
    """Checks ``data.stage`` of native settings, and each reference to a folder of it.

    Args:
        values: All settings, as they were written.
        stage: The value of ``data.stage``.
        where: Returns where a dotted key was set, for messages.

    Raises:
        ConfigError: A reference names no archive, two archives have one name, or a URL has a credential.
    """
    archives = named_archives(stage, where=where)
    known = folder_names(archives)
    if interpolation.STAGED not in values:
        for key, name in interpolation.find_staged(values):
            if name not in known:
                fix = "set data.stage, the archive to unpack"
                if known:
                    fix = f"{did_you_mean(name, known)}write {join_names([f'${{{one}}}' for one in known])}"
                what = f"there is no staged archive ${{{name}}} to refer to"
                raise ConfigError(what, setting=key, where=where(key), fix=fix)
    refuse_credentials(value_at(values, tuple(STAGE_KEY.split("."))), STAGE_KEY, where)


def check_dlnest(values: Mapping[str, Any], stage: Stage, where: Where) -> None:
    """Checks ``roost.data.stage`` of a config in DLNest's contract, in which nothing refers to folders.

    Raises:
        ConfigError: Two archives have one name, or a URL has a credential.
    """
    named_archives(stage, key=DLNEST_KEY, where=where)
    refuse_credentials(value_at(values, tuple(DLNEST_KEY.split("."))), DLNEST_KEY, where)


def refuse_credentials(written: Any, key: str, where: Where) -> None:
    """Checks that no URL has a user, a password or a token: a package keeps its settings.

    Raises:
        ConfigError: One has.
    """
    if isinstance(written, Mapping | list):
        for name, value in written.items() if isinstance(written, Mapping) else enumerate(written):
            refuse_credentials(value, f"{key}.{name}", where)
    elif isinstance(written, str) and "://" in written:
        parts = urlsplit(written)
        if redact(written) == written and "signature" not in parts.query.lower():
            return
        raise ConfigError(
            "the URL has a credential, and a package keeps its settings",
            setting=key, where=where(key),
            fix="put the URL into a variable and write ${env:DATA_URL}; or log in by the tool of the store",
        )  # fmt: skip


def changed_digests(package: Path, stage: Any, *, key: str) -> Iterator[tuple[str, str, str]]:
    """Yields the archives whose digest is set to another one than an earlier session recorded.

    Args:
        package: The package.
        stage: The value of ``data.stage``, as it was written.
        key: Its dotted key.

    Yields:
        The dotted key of the digest, the earlier digest, and the one that is set.
    """
    recorded = read(package)
    if not recorded:
        return
    try:
        archives = named_archives(msgspec.convert(stage, Stage), key=key)
    except (msgspec.ValidationError, ConfigError):  # reported where the settings are read
        return
    for one in archives:
        known, given = recorded.get(one.name), (one.settings.sha256 or "").lower()
        if known is not None and given and given != known.sha256:
            yield f"{one.key}.sha256", known.sha256, given


def write(package: Path, records: Mapping[str, StagedRecord]) -> None:
    """Writes the record, unless it says that already.

    Raises:
        OSError: The file cannot be written.
    """
    if read(package) != records:
        durable.write(package / NAME, sessions.to_json({"format": 1, "staged": dict(records)}))


def read(package: Path) -> dict[str, StagedRecord]:
    """Reads the record of a package; empty if there is none, or it is damaged."""
    body = sessions.load_json(package / NAME) or {}
    try:
        return msgspec.convert(body.get("staged", {}), dict[str, StagedRecord])
    except msgspec.ValidationError:
        return {}
