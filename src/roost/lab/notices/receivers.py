"""The settings of notices: the receivers and the events that they get.

The file holds secrets, so it is refused if other users may read it, and no error quotes a value of it.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from roost.base import config_files
from roost.base.config_files import ConfigFile, Location
from roost.base.errors import ConfigError, NotFound, Refused
from roost.base.system.loopback import is_loopback
from roost.base.text.suggestions import did_you_mean
from roost.lab.notices.notice_events import EVENTS, STALL
from roost.lab.notices.service_payloads import SERVICES

T = TypeVar("T", bound=msgspec.Struct)

MAIL = "mail"
HIDDEN = "***"
_MIN_SECRET_LENGTH = 6
"""A shorter text is in many lines by chance."""
_URL_SEPARATORS = re.compile(r"[/?&=]")
"""The characters between the parts of a URL that may be secret."""


_SAFE_ERRORS = ("this is not YAML:", "a line is indented", "the key ")
"""The beginnings of errors of the reader that quote no value of the file."""
_SEE_EXAMPLE = "docs/notices.md has an example"
_UNREADABLE_FIX = (
    f"indent with spaces, and quote a text that begins with a sign or has `: ` in it; {_SEE_EXAMPLE}"
)
_EXPECTED = {
    "object": "a section",
    "array": "a list",
    "str": "a text",
    "int": "a whole number",
    "float | null": "a number",
    "float": "a number",
    "null": "nothing",
    "bool": "true or false",
}
_EXAMPLES = {
    "receivers": "write a name, and below it its keys: `receivers: {phone: {kind: ntfy, url: ...}}`",
    "kind": "write `kind: slack`, or another service of docs/notices.md",
    "to": "write a list: `to: [me@example.org]`",
    "events": f"write a list: `events: [{', '.join(EVENTS)}]`",
    "least_minutes": "write minutes, 0 or more: `least_minutes: 10`",
    "port": "leave it out, or give a number below 65536",
}
"""The fix of a wrong value, by its key."""
_MAIL_KEYS = ("host", "port", "tls", "user", "password", "sender", "to")
_SERVICE_KEYS = ("url", "token", "secret")


class Receiver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One place to send notices to. Fields of mail are empty for services, and the reverse."""

    kind: str
    url: str = ""
    """Also a secret: a URL is enough to send messages."""
    token: str = ""
    """The access token, for ntfy and ``webhook``."""
    secret: str = ""
    """The key with which requests to DingTalk and Lark are signed."""
    host: str = ""
    port: int = 0
    """0: the usual port for `tls`."""
    tls: str = "starttls"
    """``starttls``, or ``tls`` from the first byte. Mail is never sent without one of them."""
    user: str = ""
    password: str = ""
    sender: str = ""
    to: list[str] = []
    certificates: str = ""
    """A PEM file of the certificates to trust for this receiver; empty: those that the environment of the
    sending process names (SSL_CERT_FILE), else those of the system."""

    @property
    def address(self) -> str:
        """The address to show, without secrets."""
        if self.kind == MAIL:
            return f"{self.host}:{self.smtp_port} ({self.tls}) for {', '.join(self.to)}"
        found = urlsplit(self.url)
        port = f":{found.port}" if found.port else ""
        return f"{found.scheme}://{found.hostname}{port}/{HIDDEN}"

    @property
    def smtp_port(self) -> int:
        """The port of the mail server."""
        return self.port or (465 if self.tls == "tls" else 587)

    def redact(self, text: str) -> str:
        """Returns a text with `HIDDEN` for each secret of this receiver."""
        secrets = [
            self.url,
            *_URL_SEPARATORS.split(self.url.partition("://")[2]),
            self.token,
            self.secret,
            self.password,
        ]
        for secret in sorted(secrets, key=len, reverse=True):
            if len(secret) >= _MIN_SECRET_LENGTH and secret != urlsplit(self.url).netloc:
                text = text.replace(secret, HIDDEN)
        return text


class NoticeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the settings file."""

    receivers: dict[str, Receiver]
    events: tuple[str, ...] = EVENTS
    least_minutes: float | None = None
    """A shorter run sends no notice, unless it stalls; None: the caller's default."""

    def selects(self, event: str, seconds: float | None, *, least_minutes: float = 0.0) -> bool:
        """Returns whether an event sends a notice.

        Args:
            event: One of `EVENTS`.
            seconds: The duration of the run; None: not known, and not compared.
            least_minutes: The default where the file has none.
        """
        least = self.least_minutes if self.least_minutes is not None else least_minutes
        return event in self.events and (event == STALL or seconds is None or seconds >= least * 60)


def read_settings(file: Path) -> NoticeSettings:
    """Reads the settings file. No error quotes a value of it.

    Raises:
        NotFound: There is no such file.
        Refused: Other users may read it, or another user owns it.
        ConfigError: It cannot be parsed, or a setting is not valid.
    """
    _require_private(file)
    try:
        found = config_files.read_config_file(file, display_name=str(file))
    except ConfigError as error:
        if error.message.startswith(str(file)):
            what, fix = error.message.replace(str(file), file.name), _SEE_EXAMPLE
        elif error.message.startswith(_SAFE_ERRORS):
            what, fix = error.message.replace(str(file), file.name), error.fix or _UNREADABLE_FIX
        else:
            what, fix = f"{file.name} cannot be read", _UNREADABLE_FIX
        raise ConfigError(what, where=error.where or file, fix=fix) from None
    names = found.values.get("receivers")
    for name, given in names.items() if isinstance(names, dict) else ():
        receiver = _converted(given, Receiver, found, ("receivers", str(name)))
        _require_valid(str(name), receiver, found)
    settings = _converted(found.values, NoticeSettings, found)
    for number, event in enumerate(settings.events):
        if event not in EVENTS:
            fix, where = did_you_mean(event, EVENTS) + _one_of(EVENTS), found.where(("events", number))
            raise ConfigError("is not an event", setting="events", received=event, where=where, fix=fix)
    if settings.least_minutes is not None and not 0 <= settings.least_minutes < math.inf:
        fix, where = _EXAMPLES["least_minutes"], found.where(("least_minutes",))
        raise ConfigError("is not a duration", setting="least_minutes", where=where, fix=fix)
    return settings


def _converted(given: object, kind: type[T], found: ConfigFile, path: tuple[str, ...] = ()) -> T:
    """Returns a section of the file as a struct; an error quotes names of keys, and no values."""
    known = kind.__struct_fields__
    for key in given if isinstance(given, dict) else ():
        if key not in known:
            where = found.where((*path, key)) or found.file
            fix = did_you_mean(key, known) + _one_of(known)
            raise ConfigError("is not a setting", setting=".".join((*path, str(key))), where=where, fix=fix)
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        what, _, inside = str(error).partition(" - at `$")
        names = [*path, *filter(None, re.split(r"[.\[\]]+", inside.rstrip("`")))]
        if (missing := re.search("required field `(.*)`", what)) is not None:
            names, what = [*names, missing[1]], "is missing"
        if (types := re.fullmatch("Expected `(.*)`, got `(.*)`", what)) is not None:
            expected, given_type = (_EXPECTED.get(one, one) for one in types.groups())
            what = f"expected {expected}, and this is {given_type}"
        last = next((name for name in reversed(names) if not name.isdigit()), "receivers")
        fix = _EXAMPLES.get("receivers" if len(names) == 2 else last, _SEE_EXAMPLE)
        where = found.where(names) or Location(found.file, 1, found.display_name)
        raise ConfigError(what, setting=".".join(names) or None, where=where, fix=fix) from None


def _require_private(file: Path) -> None:
    try:
        found = file.stat()
    except FileNotFoundError:
        fix = "write the file, as `roost notices --help` shows"
        raise NotFound("no notices are sent: there is no such file", received=str(file), fix=fix) from None
    if found.st_uid != os.geteuid():
        what = f"the file belongs to the user with the id {found.st_uid}"
        raise Refused(what, where=file, fix="write a file of your own")
    if (mode := stat.S_IMODE(found.st_mode)) & 0o077:
        what = f"the file has the mode {mode:o}, so other users may read its secrets"
        raise Refused(what, where=file, fix=f"run `chmod 600 {file}`")


def _require_valid(name: str, receiver: Receiver, found: ConfigFile) -> None:
    kinds = (*SERVICES, MAIL)
    path = ("receivers", name)
    if receiver.kind not in kinds:
        fix, where = did_you_mean(receiver.kind, kinds) + _one_of(kinds), found.where((*path, "kind"))
        raise ConfigError("is not a kind of receiver", setting=f"receivers.{name}.kind", where=where, fix=fix)
    wrong = _mail_error(receiver) if receiver.kind == MAIL else _url_error(receiver.url)
    if receiver.certificates and not (found.file.parent / receiver.certificates).is_file():
        wrong = "certificates", "is no file", "write the path of a PEM file"
    for key in ("token", "secret", "user", "password"):
        if not (getattr(receiver, key).isprintable() and getattr(receiver, key).isascii()):
            what = "has a character that cannot be sent, such as a line break or one beyond ASCII"
            wrong = key, what, "write it on one line, in quotes, as the service shows it"
    for key in _SERVICE_KEYS if receiver.kind == MAIL else _MAIL_KEYS:
        if key in found.values["receivers"][name]:
            wrong = key, f"has no effect with kind: {receiver.kind}", "remove it"
    if wrong:
        key, what, fix = wrong
        where = found.where((*path, key))
        raise ConfigError(what, setting=f"receivers.{name}.{key}", where=where, fix=fix)


def _mail_error(receiver: Receiver) -> tuple[str, str, str] | None:
    if not receiver.host or not receiver.sender or not receiver.to:
        key = next(key for key in ("host", "sender", "to") if not getattr(receiver, key))
        return key, "is missing", "give host, sender and to"
    if receiver.tls not in ("starttls", "tls"):
        return "tls", "is not valid", "write `starttls` or `tls`: a password is never sent unencrypted"
    if not 0 <= receiver.port < 65536:
        return "port", "is not a port", "leave it out, or give a number below 65536"
    addresses: Mapping[str, Any] = {"sender": [receiver.sender], "to": receiver.to}
    for key, given in addresses.items():
        if any("@" not in one or not one.isprintable() for one in given):
            return key, "is not an address", "write an address such as `me@example.org`"
    return None


def _url_error(url: str) -> tuple[str, str, str] | None:
    fix = "copy the whole URL that the service shows (docs/notices.md)"
    try:
        found = urlsplit(url)
        is_url = found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:
        is_url = False
    if is_url and found.username is not None:
        return "url", "has a user name", "remove it; for ntfy give a `token`"
    if not is_url or not url.isprintable() or not url.isascii() or " " in url:
        return "url", "is missing" if not url else "is not a URL", fix
    if found.scheme == "http" and not is_loopback(found.hostname or ""):
        return "url", "would send its secret unencrypted", "use https:"
    return None


def _one_of(names: tuple[str, ...]) -> str:
    return f"write one of {', '.join(names)}"
