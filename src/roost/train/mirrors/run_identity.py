"""Of what a mirror tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct


class RunIdentity(Struct, frozen=True, kw_only=True):
    """A run, for those who see it beside others."""

    name: str
    """That of the package."""
    project: str = "roost"
    """That of the project's folder."""
    settings: Mapping[str, Any] = {}
    """All of them, interpolations unresolved: what comes from the environment is not told."""


def flatten_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Each setting under its dotted key, as text."""
    found: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            found |= flatten_settings(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = str(value)
    return found
