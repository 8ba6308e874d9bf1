"""Who is told of what: a file that holds secrets, so that its owner alone may read it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from roost.base import config_files
from roost.base.config_files import ConfigFile
from roost.base.errors import ConfigError, NotFound, Refused
from roost.base.system.loopback import is_loopback
from roost.base.text.suggestions import did_you_mean
from roost.lab.notices.notice_events import EVENTS, STALL
from roost.lab.notices.service_payloads import KINDS

T = TypeVar("T", bound=msgspec.Struct)

MAIL = "mail"
HIDDEN = "***"
_SHORTEST_SECRET = 6
"""A shorter text stands in every other line by chance."""
_PARTS = re.compile(r"[/?&=]")
"""Between what may be secret in a URL."""


class Receiver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where notices go. What belongs to mail alone is empty for the others, and the other way round."""

    kind: str
    url: str = ""
    """Whoever knows it may write there: it is a secret, too."""
    token: str = ""
    """ntfy's, if the topic asks for one."""
    secret: str = ""
    """With which DingTalk and Lark want what is sent to be signed."""
    host: str = ""
    port: int = 0
    """0: what is usual with `tls`."""
    tls: str = "starttls"
    """Or ``tls``, from the first byte. Without one of them nothing is sent."""
    user: str = ""
    password: str = ""
    sender: str = ""
    to: list[str] = []

    @property
    def place(self) -> str:
        """Where it is, for people: without what opens it."""
        if self.kind == MAIL:
            return f"{self.host}:{self.smtp_port} ({self.tls}) for {', '.join(self.to)}"
        found = urlsplit(self.url)
        port = f":{found.port}" if found.port else ""
        return f"{found.scheme}://{found.hostname}{port}/{HIDDEN}"

    @property
    def smtp_port(self) -> int:
        """The port of a mail server."""
        return self.port or (465 if self.tls == "tls" else 587)

    def hide(self, text: str) -> str:
        """A text without what is secret here."""
        secrets = [
            self.url,
            *_PARTS.split(self.url.partition("://")[2]),
            self.token,
            self.secret,
            self.password,
        ]
        for secret in sorted(secrets, key=len, reverse=True):
            if len(secret) >= _SHORTEST_SECRET and secret != urlsplit(self.url).netloc:
                text = text.replace(secret, HIDDEN)
        return text


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the file says."""

    receivers: dict[str, Receiver]
    events: tuple[str, ...] = EVENTS
    least_minutes: float | None = None
    """What ran for a shorter time is not told of, unless it stalls."""

    def want(self, event: str, seconds: float | None, *, least_minutes: float = 0.0) -> bool:
        """Whether somebody is to be told of it.

        Args:
            event: One of `EVENTS`.
            seconds: How long it ran; None where that means nothing.
            least_minutes: Where the file does not say.
        """
        least = self.least_minutes if self.least_minutes is not None else least_minutes
        return event in self.events and (event == STALL or seconds is None or seconds >= least * 60)


def read(file: Path) -> Settings:
    """What a file says. No error quotes a value of it.

    Raises:
        NotFound: There is none.
        Refused: Others may read it, or it is not ours.
        ConfigError: It does not mean anything.
    """
    _require_private(file)
    try:
        found = config_files.read_config_file(file, display_name=str(file))
    except ConfigError as error:
        what = f"{file.name} cannot be read"
        raise ConfigError(what, where=error.where or file, fix="see docs/notices.md for an example") from None
    receivers = found.values.get("receivers")
    for name, given in receivers.items() if isinstance(receivers, dict) else ():
        _converted(given, Receiver, found, ("receivers", str(name)))
    asked = _converted(found.values, Settings, found)
    unknown = [name for name in asked.events if name not in EVENTS]
    if unknown:
        raise ConfigError(
            "is no event", setting="events", received=unknown[0], where=file, fix=_one_of(EVENTS)
        )
    for name, receiver in asked.receivers.items():
        _require_sound(name, receiver, file)
    return asked


def _converted(given: object, kind: type[T], found: ConfigFile, path: tuple[str, ...] = ()) -> T:
    """A section of the file; nothing that is wrong is quoted but the name of a key."""
    known = kind.__struct_fields__
    for key in given if isinstance(given, dict) else ():
        if key not in known:
            where = found.where((*path, key)) or found.file
            fix = did_you_mean(key, known) + _one_of(known)
            raise ConfigError("is no setting", setting=".".join((*path, str(key))), where=where, fix=fix)
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        what, _, inside = str(error).partition(" - at `$")
        setting = ".".join(path) + inside.rstrip("`")
        where = found.where(setting.split(".")) or found.file
        fix = "see docs/notices.md for an example"
        raise ConfigError(what, setting=setting.lstrip(".") or None, where=where, fix=fix) from None


def _require_private(file: Path) -> None:
    try:
        found = file.stat()
    except FileNotFoundError:
        fix = "write one, as `roost notices --help` shows it"
        raise NotFound("nobody is told: there is no such file", received=str(file), fix=fix) from None
    if found.st_uid != os.geteuid():
        what = f"it belongs to the user with the id {found.st_uid}"
        raise Refused(what, where=file, fix="write one of your own")
    if (mode := stat.S_IMODE(found.st_mode)) & 0o077:
        what = f"it has the rights {mode:o}, so others may read the secrets in it"
        raise Refused(what, where=file, fix=f"`chmod 600 {file}`")


def _require_sound(name: str, receiver: Receiver, file: Path) -> None:
    kinds = (*KINDS, MAIL)
    setting = f"receivers.{name}"
    if receiver.kind not in kinds:
        fix = did_you_mean(receiver.kind, kinds) + _one_of(kinds)
        raise ConfigError("is no kind", setting=f"{setting}.kind", where=file, fix=fix)
    wrong = _wrong_mail(receiver) if receiver.kind == MAIL else _wrong_url(receiver.url)
    for key in ("token", "secret", "user", "password"):
        if not (getattr(receiver, key).isprintable() and getattr(receiver, key).isascii()):
            what = "holds what cannot be sent, such as a line break or a letter beyond ASCII"
            wrong = key, what, "write it on one line, in quotes, as the service shows it"
    if wrong:
        key, what, fix = wrong
        raise ConfigError(what, setting=f"{setting}.{key}", where=file, fix=fix)


def _wrong_mail(receiver: Receiver) -> tuple[str, str, str] | None:
    if not receiver.host or not receiver.sender or not receiver.to:
        key = next(key for key in ("host", "sender", "to") if not getattr(receiver, key))
        return key, "is missing", "mail needs host, sender and to"
    if receiver.tls not in ("starttls", "tls"):
        return "tls", "is neither", "write `starttls` or `tls`: a password is never sent in the open"
    if not 0 <= receiver.port < 65536:
        return "port", "is no port", "leave it out, or give a number below 65536"
    addresses: Mapping[str, Any] = {"sender": [receiver.sender], "to": receiver.to}
    for key, given in addresses.items():
        if any("@" not in one or not one.isprintable() for one in given):
            return key, "is no address", "write `me@example.org`"
    return None


def _wrong_url(url: str) -> tuple[str, str, str] | None:
    fix = "copy the whole URL that the service shows, as docs/notices.md tells"
    try:
        found = urlsplit(url)
        is_one = found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:
        is_one = False
    if is_one and found.username is not None:
        return "url", "holds a user", "ntfy takes a `token` beside the URL; the others need none"
    if not is_one or not url.isprintable() or not url.isascii() or " " in url:
        return "url", "is missing" if not url else "is no URL", fix
    if found.scheme == "http" and not is_loopback(found.hostname or ""):
        return "url", "would carry its secret in the open", "begin it with https:"
    return None


def _one_of(names: tuple[str, ...]) -> str:
    return f"write one of {', '.join(names)}"
