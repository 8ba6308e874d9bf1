"""Where it stands who is told, and of which runs (standard library only)."""

# Standard library only

from __future__ import annotations

import os
from collections.abc import Mapping


def receivers_file(env: Mapping[str, str]) -> str:
    """``notices.yaml`` in ``$XDG_CONFIG_HOME/roost``, else in ``~/.config/roost``; it need not exist.

    Args:
        env: The environment of whoever is told.
    """
    config = env.get("XDG_CONFIG_HOME", "")
    if not config.startswith("/"):
        # As it stands where nobody knows it: a daemon in a container must not end of that.
        home = env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111  - pathlib would raise, and costs 3 ms
        config = f"{home}/.config"
    return f"{config}/roost/notices.yaml"


def pending_folder(env: Mapping[str, str]) -> str:
    """``noticed`` beside the lab's folder: the list of runs whose end is to be told. It need not exist; empty
    where nobody knows the place.

    Args:
        env: As for `receivers_file`.
    """
    if given := env.get("ROOST_STATE", ""):
        return f"{given}/noticed" if given.startswith("/") else ""
    state = env.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        home = env.get("HOME", "")
        state = f"{home}/.local/state" if home.startswith("/") else ""
    return f"{state}/roost/noticed" if state else ""
