"""Where a setting was set, for messages: a line of a file, or a command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from roost.config.settings import Where
from roost.package.package import PackageFolder


def setting_locations(package: PackageFolder, *, overrides: Sequence[str] = ()) -> Where:
    """Where a dotted key of a package was set, or the section or list around it: a line of a file, or the
    command line of the session that changed it last; None for a default.

    Args:
        package: The package.
        overrides: Of a session that is about to begin; they come after all others.
    """
    changed = [(override_key(text), "command line") for text in overrides]
    changed += [
        (override_key(text), f"command line of session {session.number}")
        for session in reversed(package.sessions())
        for text in session.request.get("overrides", [])
    ]
    written = provenance_locations(package.provenance)

    def where(key: str) -> str | None:
        for name, label in changed:
            if f"{key}.".startswith(f"{name}."):
                return label
        return written(key)

    return where


def provenance_locations(provenance: Mapping[str, str]) -> Where:
    """Likewise, by what ``provenance.json`` holds alone."""

    def where(key: str) -> str | None:
        if key not in provenance:  # a section has no line of its own: that of its first key
            inner = (
                one for one, place in provenance.items() if place != "default" and one.startswith(f"{key}.")
            )
            key = next(inner, key)
        while key and key not in provenance:
            key = key.rpartition(".")[0]
        found = provenance.get(key)
        return found if found != "default" else None

    return where


def override_key(override: str) -> str:
    """The dotted key that an override of a command line changes."""
    return override.lstrip("+~").partition("=")[0].strip()
