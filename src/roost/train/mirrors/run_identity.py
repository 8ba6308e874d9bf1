"""The identity of a run in mirrors: its names and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct


class RunIdentity(Struct, frozen=True, kw_only=True):
    """The names and settings under which a mirror shows a run among others."""

    name: str
    """The name of the package."""
    project: str = "roost"
    """The name of the project's folder."""
    settings: Mapping[str, Any] = {}
    """All settings with unresolved interpolations, so no value of the environment is sent."""


def flatten_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Returns each setting as text, by its dotted key."""
    found: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            found |= flatten_settings(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = str(value)
    return found
