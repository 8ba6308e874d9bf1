"""The paths of the file of receivers and of the list of pending notices (standard library only)."""

# Standard library only

from __future__ import annotations

from collections.abc import Mapping

from roost.base.config_folder import config_folder


def receivers_file(env: Mapping[str, str]) -> str:
    """Returns ``notices.yaml`` in ``$XDG_CONFIG_HOME/roost``, else in ``~/.config/roost``; it need not exist.

    Args:
        env: The environment of the user who gets the notices.
    """
    return f"{config_folder(env)}/notices.yaml"


def pending_folder(env: Mapping[str, str]) -> str:
    """Returns ``noticed`` next to the lab's folder: the list of runs whose notice is not sent yet. It need
    not exist; the result is empty if there is no home folder.

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
