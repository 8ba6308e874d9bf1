"""``run --print-config`` and ``run --explain``: what a run would take, without making one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roost.base.errors import ConfigError
from roost.config import layers, settings, synonyms


@dataclass(frozen=True)
class Explanation:
    """Where one setting comes from."""

    key: str
    help: str | None
    """One line, for a setting that is roost's."""
    values: str | None
    """What it takes, in words, for a setting that is roost's."""
    layers: list[tuple[str, Any]]
    """What each layer says, from lowest to highest: the last one holds. `layers.ABSENT`: taken away."""


def merged(config: Path, *, tuning: Path | None = None, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """All settings of a run, merged; interpolations stand as written.

    Raises:
        NotFound: There is no such file.
        ConfigError: A file or an override is wrong.
    """
    return layers.load(config, tuning=tuning, overrides=overrides).values


def explain(
    config: Path, key: str, *, tuning: Path | None = None, overrides: Sequence[str] = ()
) -> Explanation:
    """What each layer says of one dotted key or section.

    Raises:
        NotFound: There is no such file.
        ConfigError: A file or an override is wrong, or nobody knows the key.
    """
    found = layers.load(config, tuning=tuning, overrides=overrides)
    said, help = found.explain(key), settings.describe(key)
    if not said and help is None:
        known = [*found.provenance, *settings.known_keys(found.values)]
        raise ConfigError(f"there is no setting {key!r}", fix=synonyms.proposal(key, known).strip() or None)
    return Explanation(key, help, settings.allowed(key), said)
