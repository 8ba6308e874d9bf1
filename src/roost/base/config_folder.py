"""The folder of one user's own files for roost: receivers of notices, the key of pickles."""

# Standard library only

from __future__ import annotations

import os
from collections.abc import Mapping


def config_folder(env: Mapping[str, str]) -> str:
    """Returns ``$XDG_CONFIG_HOME/roost``, else ``~/.config/roost``; it need not exist.

    Args:
        env: The environment of the user.
    """
    config = env.get("XDG_CONFIG_HOME", "")
    if not config.startswith("/"):
        # Stays "~" without a home folder: a daemon in a container must not fail here.
        home = env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111  - pathlib would raise, and takes 3 ms
        config = f"{home}/.config"
    return f"{config}/roost"
