"""Which checkpoints stay, as a pure function of their manifests: document 000's three tracks, and best."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from roost.config.sections.checkpoint import CheckpointSettings
from roost.package.checkpoints.checkpoint import Manifest


class BestRule(msgspec.Struct, frozen=True, kw_only=True):
    """Keep the ``top_k`` checkpoints with the best ``monitor``."""

    monitor: str
    mode: str = "min"
    top_k: int = 1


class RetentionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How many checkpoints each track holds; 0 switches a track off."""

    fast: int = 2
    slow: int = 0
    slow_every: int = 100
    held: int = 1
    best: tuple[BestRule, ...] = ()


def policy_from_settings(given: CheckpointSettings) -> RetentionPolicy:
    """What the section ``checkpoint`` says of keeping."""
    best = tuple(BestRule(monitor=one.monitor, mode=one.mode, top_k=one.top_k) for one in given.best)
    return RetentionPolicy(fast=given.fast, slow=given.slow, slow_every=given.slow_every, held=given.held, best=best)


def lineage(infos: Sequence[Manifest], *, tip: int | None = None) -> list[Manifest]:
    """The line of checkpoints that leads to ``tip`` (the highest id when None), oldest first.

    A ``continue -c K`` starts a new line at K; what came after K in the old one is not of this line.
    """
    if not infos:
        return []
    by_id = {info.id: info for info in infos}
    newest = by_id.get(max(by_id) if tip is None else tip)
    if newest is None:
        return []
    return [by_id[id] for id in sorted(by_id) if any(first <= id <= last for first, last in newest.line)]


def best_checkpoints(infos: Sequence[Manifest], best: BestRule) -> list[Manifest]:
    """The ``top_k`` best, the best first; of equals the earlier one. Those without a finite value are out."""
    sign = 1.0 if best.mode == "min" else -1.0
    scored = [info for info in infos if math.isfinite(info.metrics.get(best.monitor, math.nan))]
    return sorted(scored, key=lambda info: (sign * info.metrics[best.monitor], info.id))[: best.top_k]


def track_ids(infos: Sequence[Manifest], policy: RetentionPolicy) -> dict[str, list[int]]:
    """The ids in each track of the newest line, ascending."""
    line = lineage(infos)
    slow = [i for i in line if i.scheduled is not None and i.scheduled % max(1, policy.slow_every) == 0]
    best = {info.id for rule in policy.best for info in best_checkpoints(line, rule)}
    return {
        "fast": _newest(line, policy.fast),
        "slow": _newest(slow, policy.slow),
        "held": _newest([info for info in line if info.held], policy.held),
        "best": sorted(best),
    }


def _newest(line: Sequence[Manifest], count: int) -> list[int]:
    return [info.id for info in line[-count:]] if count else []


def retained_ids(infos: Sequence[Manifest], policy: RetentionPolicy) -> set[int]:
    """The ids that stay: every track's, the newest and the one before it, and whatever lies on another
    line (a person branched off there on purpose; `roost gc` is for that).
    """
    line = lineage(infos)
    kept = {id for ids in track_ids(infos, policy).values() for id in ids}
    kept |= {info.id for info in line[-2:]}
    return kept | ({info.id for info in infos} - {info.id for info in line})
