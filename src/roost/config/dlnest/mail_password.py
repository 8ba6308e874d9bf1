"""The password of the user's mail account, for the plugin MailsNote.

It is never in a config: every package would have a copy of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roost.base.config_folder import config_folder
from roost.base.errors import ConfigError
from roost.config.section_schema import Where

VARIABLE = "ROOST_MAIL_PASSWORD"
"""The environment variable that has it; it precedes the file."""
FILE = "mail_password"
"""The name of its file in the user's config folder."""
_PLUGIN, _KEY = "MailsNote", "password"
_OTHERS = 0o077
"""The permissions of other users."""


def refuse_in_config(plugins_config: Mapping[str, Any], where: Where) -> None:
    """Checks that the settings of the plugins have no password for e-mails; an empty one is none.

    Args:
        plugins_config: The setting of this name.
        where: Returns where a dotted key was set, for messages.

    Raises:
        ConfigError: They have one.
    """
    given = plugins_config.get(_PLUGIN)
    if isinstance(given, Mapping) and given.get(_KEY):
        key = f"plugins_config.{_PLUGIN}.{_KEY}"
        raise ConfigError(
            "every package would have a copy of this password",
            setting=key,
            where=where(key),
            fix=f"remove it from the config, and {_how_to_give(_file())}",
        )


def mail_password() -> str:
    """Returns the password.

    Raises:
        ConfigError: There is none, or other users may read its file.
    """
    if given := os.environ.get(VARIABLE):
        return given
    file = _file()
    if not file.is_file():
        raise ConfigError("there is no password for e-mails", fix=_how_to_give(file))
    if file.stat().st_mode & _OTHERS:
        raise ConfigError(
            "other users may read the password for e-mails", where=file, fix=f"chmod 600 {file}"
        )
    return file.read_text(encoding="utf-8").strip()


def _file() -> Path:
    return Path(config_folder(os.environ)) / FILE


def _how_to_give(file: Path) -> str:
    return f"write it to {file} with mode 600, or set {VARIABLE}"
