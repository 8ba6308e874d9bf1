"""Finds where a setting was set, for messages: a line of a file, or a command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from roost.config.dlnest.dlnest_settings import SECTION
from roost.config.settings import Where
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder


def setting_locations(package: PackageFolder, *, overrides: Sequence[str] = ()) -> Where:
    """Returns a function that finds where a dotted key of a package, or the section or list around it, was
    set: a line of a file, or the command line of the session that changed it last; None for a default.

    Args:
        package: The package.
        overrides: The overrides of a session that is about to begin; they come after all others.
    """
    kind = PackageKind.of(package.request)
    changed = [(override_key(text, kind), "command line") for text in overrides]
    changed += [
        (override_key(text, kind), f"command line of session {session.number}")
        for session in reversed(package.sessions())
        for text in session.request.overrides
    ]
    written = provenance_locations(package.provenance)

    def where(key: str) -> str | None:
        for name, label in changed:
            if f"{key}.".startswith(f"{name}."):
                return label
        return written(key)

    return where


def provenance_locations(provenance: Mapping[str, str]) -> Where:
    """Returns a function like that of `setting_locations`, from the content of ``provenance.json`` only."""

    def where(key: str) -> str | None:
        if key not in provenance:  # a section has no line of its own: use that of its first key
            inner = (
                name for name, at in provenance.items() if at != "default" and name.startswith(f"{key}.")
            )
            key = next(inner, key)
        while key and key not in provenance:
            key = key.rpartition(".")[0]
        found = provenance.get(key)
        return found if found != "default" else None

    return where


def override_key(override: str, kind: PackageKind) -> str:
    """Returns the dotted key that an override of a command line changes in a package of this kind."""
    key = override.lstrip("+~").partition("=")[0].strip()
    # In a native config ``roost.x`` is ``x``, see `roost.config.layers`.
    return key if kind is PackageKind.DLNEST else key.removeprefix(f"{SECTION}.")
