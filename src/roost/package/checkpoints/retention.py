"""Retention of checkpoints, a pure function of their manifests: the three tracks of DLNest, and
best."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from roost.config.sections.checkpoint import BestSettings, CheckpointSettings
from roost.package.checkpoints.checkpoint import Manifest

_DEFAULTS = CheckpointSettings()
_BEST_DEFAULTS = BestSettings(monitor="", mode="min")


class BestRule(msgspec.Struct, frozen=True, kw_only=True):
    """Keeps the ``top_k`` checkpoints with the best ``monitor``."""

    monitor: str
    mode: str = "min"
    top_k: int = _BEST_DEFAULTS.top_k


class RetentionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The number of checkpoints that each track keeps; 0 disables a track. The defaults are those of the
    section ``checkpoint``."""

    fast: int = _DEFAULTS.fast
    slow: int = _DEFAULTS.slow
    slow_every: int = _DEFAULTS.slow_every
    held: int = _DEFAULTS.held
    best: tuple[BestRule, ...] = ()
    only_scheduled: bool = False
    """Whether only scheduled saves count for the fast track, and others are kept while they are the newest or
    the one before it."""


def policy_from_settings(given: CheckpointSettings, *, only_scheduled: bool = False) -> RetentionPolicy:
    """Returns the policy of the section ``checkpoint``; see `RetentionPolicy.only_scheduled`."""
    best = tuple(BestRule(monitor=one.monitor, mode=one.mode, top_k=one.top_k) for one in given.best)
    return RetentionPolicy(
        fast=given.fast,
        slow=given.slow,
        slow_every=given.slow_every,
        held=given.held,
        best=best,
        only_scheduled=only_scheduled,
    )


def lineage(manifests: Sequence[Manifest], *, tip: int | None = None) -> list[Manifest]:
    """Returns the checkpoints that lead to ``tip`` (None: the highest id), the oldest first.

    ``continue -c K`` starts a new branch at K; checkpoints after K in the old branch are not part of the
    lineage.
    """
    if not manifests:
        return []
    by_id = {manifest.id: manifest for manifest in manifests}
    newest = by_id.get(max(by_id) if tip is None else tip)
    if newest is None:
        return []
    return [by_id[id] for id in sorted(by_id) if any(first <= id <= last for first, last in newest.line)]


def best_checkpoints(manifests: Sequence[Manifest], best: BestRule) -> list[Manifest]:
    """Returns the ``top_k`` best, the best first; of equals, the earlier first. Checkpoints without a finite
    value are left out."""
    sign = 1.0 if best.mode == "min" else -1.0
    scored = [
        manifest for manifest in manifests if math.isfinite(manifest.metrics.get(best.monitor, math.nan))
    ]
    return sorted(scored, key=lambda manifest: (sign * manifest.metrics[best.monitor], manifest.id))[
        : best.top_k
    ]


def track_ids(
    manifests: Sequence[Manifest], policy: RetentionPolicy, *, tip: int | None = None
) -> dict[str, list[int]]:
    """Returns the ids in each track of the lineage that ends at ``tip``, ascending; None: the newest one."""
    line = lineage(manifests, tip=tip)
    scheduled = [i for i in line if i.scheduled is not None]
    slow = [i for i in scheduled if (i.scheduled or 0) % max(1, policy.slow_every) == 0]
    best = {manifest.id for rule in policy.best for manifest in best_checkpoints(line, rule)}
    return {
        "fast": _newest(scheduled if policy.only_scheduled else line, policy.fast),
        "slow": _newest(slow, policy.slow),
        "held": _newest([manifest for manifest in line if manifest.held], policy.held),
        "best": sorted(best),
    }


def _newest(line: Sequence[Manifest], count: int) -> list[int]:
    return [manifest.id for manifest in line[-count:]] if count else []


def retained_ids(manifests: Sequence[Manifest], policy: RetentionPolicy) -> set[int]:
    """Returns the ids to keep: those of every track, the newest and the one before it, and all that are not
    in the newest lineage (the user branched off on purpose)."""
    line = lineage(manifests)
    kept = {id for ids in track_ids(manifests, policy).values() for id in ids}
    kept |= {manifest.id for manifest in line[-2:]}
    return kept | ({manifest.id for manifest in manifests} - {manifest.id for manifest in line})
