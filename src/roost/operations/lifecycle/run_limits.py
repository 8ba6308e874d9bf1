"""The limits of a run (``max_epochs``, ``max_steps``, ``max_time``): which of them a checkpoint has reached,
and the overrides that train on from there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roost.base.errors import ConfigError
from roost.base.interval import parse_duration
from roost.package import live_progress
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.package import PackageFolder


def newest_checkpoint(package: PackageFolder) -> Manifest | None:
    """Returns the checkpoint from which a run continues; None if it has none."""
    return next(reversed(package.store().lineage()), None)


def reached(package: PackageFolder, at: Manifest, values: Mapping[str, Any]) -> dict[str, int | float]:
    """Returns the limits that leave nothing to train after a checkpoint, by setting, with what the run has of
    each. A limit of time is judged at the newest step only, as checkpoints do not name their time.

    Args:
        package: The package of the checkpoint.
        at: The checkpoint.
        values: The settings of the session to come.
    """
    found: dict[str, int | float] = {"max_epochs": at.epoch, "max_steps": at.step}
    progress = live_progress.read(package.progress)
    if progress is not None and progress.step == at.step:
        found["max_time"] = progress.seconds
    return {name: has for name, has in found.items() if _is_reached(name, has, values.get(name))}


def _is_reached(name: str, has: int | float, limit: object) -> bool:
    if name == "max_time":
        try:
            return isinstance(limit, str) and has >= parse_duration(limit, setting=name)
        except ConfigError:
            return False
    return isinstance(limit, int) and not isinstance(limit, bool) and has >= limit


def raised(package: PackageFolder, at: Manifest | None, values: Mapping[str, Any]) -> str:
    """Returns the overrides that train on after a checkpoint at which a run has ended: ``max_steps=1600``,
    twice what it has done. A run that ended before its limits was ended by early stopping."""
    if limits := reached(package, at, values) if at is not None else {}:
        return " ".join(f"{name}={'...' if name == 'max_time' else 2 * has}" for name, has in limits.items())
    early = values.get("early_stopping")
    if at is not None and isinstance(early, Mapping) and isinstance(patience := early.get("patience"), int):
        return f"early_stopping.patience={2 * patience}"
    known = ((name, values.get(name)) for name in ("max_epochs", "max_steps"))
    return next((f"{name}={2 * limit}" for name, limit in known if isinstance(limit, int)), "max_epochs=...")
