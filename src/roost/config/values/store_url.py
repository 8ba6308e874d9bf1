"""The URL of a store: what is refused in it, and which library it needs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from roost.base.errors import ConfigError

SETTING = "remote.url"
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://(.*)", re.DOTALL)
_CREDENTIALS_FIX = (
    "leave credentials out of it: give them by environment variables (AWS_ACCESS_KEY_ID, …), by the files of "
    "the service (~/.aws, ~/.ssh) or by the name of a profile (AWS_PROFILE)"
)
_OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "hf")
"""In their URLs nothing but a key could come before an ``@``."""


_CREDENTIAL_KEYS = re.compile(
    r"(?i)(aws_)?(access_?)?(secret|key|token|password|passwd|passphrase|credentials?|connection_string)"
    r"|.*(secret|password|token|access_key|account_key|sas|credential|connection_string).*"
)
"""Keys under which users write credentials in the configs of other tools."""


class StoreLibrary(NamedTuple):
    """The library of a scheme, and the extra of roost that installs it."""

    module: str
    extra: str


LIBRARIES = {
    "s3": StoreLibrary("s3fs", "s3"),
    "s3a": StoreLibrary("s3fs", "s3"),
    "gs": StoreLibrary("gcsfs", "gcs"),
    "gcs": StoreLibrary("gcsfs", "gcs"),
    "az": StoreLibrary("adlfs", "azure"),
    "abfs": StoreLibrary("adlfs", "azure"),
    "abfss": StoreLibrary("adlfs", "azure"),
    "sftp": StoreLibrary("paramiko", "sftp"),
    "ssh": StoreLibrary("paramiko", "sftp"),
    "hf": StoreLibrary("huggingface_hub", "hf"),
}


class StoreUrl(NamedTuple):
    """A checked URL."""

    scheme: str
    """``file`` for a folder."""
    rest: str
    """The part after ``://``; for a folder its absolute path."""

    @property
    def text(self) -> str:
        """The URL as it is shown and stored; a folder as its path."""
        return self.rest if self.scheme == "file" else f"{self.scheme}://{self.rest}"

    def joined(self, name: str) -> StoreUrl:
        """Returns the URL of ``name`` below this one."""
        return self._replace(rest=f"{self.rest.rstrip('/')}/{name}")

    def split(self) -> tuple[StoreUrl, str]:
        """Returns the URL above the last part of this one, and that part."""
        above, _, name = self.rest.rstrip("/").rpartition("/")
        return self._replace(rest=above or ("/" if self.scheme == "file" else "")), name


def parse_url(text: str, *, setting: str = SETTING, where: object = None) -> StoreUrl:
    """Reads the URL of a store: ``s3://bucket/runs``, ``sftp://host/runs``, or the absolute path of a folder.

    Raises:
        ConfigError: It is neither, or holds a credential. The credential is in no message.
    """
    found = _SCHEME.fullmatch(text.strip())
    if found is None or found[1].lower() == "file":
        path = os.path.expanduser(found[2] if found is not None else text.strip())  # noqa: PTH111
        if not path.startswith("/") or "\0" in path:
            fix = "write an absolute path, or a URL such as s3://bucket/runs"
            message = "is neither the URL of a store nor the absolute path of a folder"
            raise ConfigError(message, setting=setting, received=text, where=where, fix=fix)
        return StoreUrl("file", os.path.normpath(path))
    scheme, rest = found[1].lower(), found[2].rstrip("/")
    _refuse_credentials(scheme, rest, setting, where)
    if scheme not in LIBRARIES:
        message = f"there are no stores of {scheme}://"
        fix = f"write a folder, or one of {', '.join(f'{one}://' for one in LIBRARIES)}"
        raise ConfigError(message, setting=setting, received=text, where=where, fix=fix)
    if not rest.strip("/") or any(not part.isprintable() for part in rest):
        fix = f"write {scheme}://BUCKET/FOLDER"
        raise ConfigError("names no place", setting=setting, received=text, where=where, fix=fix)
    return StoreUrl(scheme, rest)


def refuse_credential_keys(section: object, *, setting: str, where: Callable[[str], object]) -> None:
    """Refuses a section ``remote`` with keys of credentials, whose values are in no message.

    Raises:
        ConfigError: It has one.
    """
    for key in section if isinstance(section, Mapping) else ():
        if isinstance(key, str) and _CREDENTIAL_KEYS.fullmatch(key):
            raise ConfigError(
                "a credential in a config is refused: it would be in every package",
                setting=f"{setting}.{key}",
                where=where(f"{setting}.{key}"),
                fix=_CREDENTIALS_FIX,
            )


def _refuse_credentials(scheme: str, rest: str, setting: str, where: object) -> None:
    host = rest.partition("/")[0]
    user, is_given, _ = host.rpartition("@")
    if is_given and (":" in user or scheme in _OBJECT_STORES):
        what = "it has a password or a key before the @"
    elif "?" in rest or "#" in rest:  # signatures of Azure, keys of S3: no store needs a query
        what = "it has a query, in which a key or a signature may be"
    else:
        return
    received = f"{scheme}://…"
    raise ConfigError(
        f"a URL with a credential is refused: {what}",
        setting=setting,
        received=received,
        where=where,
        fix=_CREDENTIALS_FIX,
    )
