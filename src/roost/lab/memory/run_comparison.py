"""Compares the measured runs of one project: which settings have changed the memory, which have not, and
which runs are therefore similar to the next one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from roost.lab.memory.memory_features import MemoryFeatures
from roost.lab.queue.history import MemoryPeak

_CODE = "<code>"
"""The code takes part in the comparison like a setting of this key."""
_EQUAL_RATIO = 1.12
"""Peaks that differ by no more are equal: 1.5 % of noise, and a few from fragmentation."""
_SWEEP_WIDENING, _CODE_WIDENING, _CHANGED_CODE_WIDENING = 1.05, 1.05, 1.20
"""How much the margin grows for runs of the same sweep that differ in settings of unknown influence; for runs
of other code; for those where an earlier change of the code has changed the memory."""


class SimilarRuns(NamedTuple):
    """The measured runs that show what another one will use."""

    peaks: Sequence[MemoryPeak] = ()
    """The oldest first."""
    widening: float = 1.0
    """A factor for the margin, because the runs differ."""
    difference: str = ""
    """How they differ, for people; empty: not that it is known to matter."""


class RunComparison:
    """The measured runs of one family on one model of card, with the same number of ranks.

    A setting is relevant if without it runs of equal settings and scale would have different peaks. If
    several settings explain the peaks, those with the fewest values count: a setting that differs in each run
    explains everything. A setting is irrelevant if runs of equal relevant settings and scale differ in it.
    All others have an unknown influence.

    Args:
        peaks: The oldest first.
    """

    def __init__(self, peaks: Sequence[MemoryPeak]) -> None:
        runs = [(_with_code(MemoryFeatures.from_text(peak.key)), peak) for peak in peaks]
        varying = _varying([settings for settings, _ in runs])
        self.relevant, groups = _relevant(runs, varying)
        is_explained = not _cost(groups)
        self.irrelevant = frozenset(
            key
            for key in varying - self.relevant
            if is_explained and any(len({settings.get(key) for settings, _ in group}) > 1 for group in groups)
        ) - {_CODE}
        self._by_settings: defaultdict[Hashable, list[MemoryPeak]] = defaultdict(list)
        self._by_sweep: defaultdict[Hashable, list[MemoryPeak]] = defaultdict(list)
        for _, peak in runs:
            features = MemoryFeatures.from_text(peak.key)
            self._by_settings[self._settings_key(features)].append(peak)
            if features.sweep:
                self._by_sweep[self._sweep_key(features)].append(peak)

    def similar_to(self, features: MemoryFeatures) -> SimilarRuns:
        """Returns the runs that differ only in irrelevant settings; else those of the same sweep that do not
        differ in a relevant one. Of runs of other code, the newest code if the code has mattered before."""
        peaks, widening, notes = self._by_settings.get(self._settings_key(features), []), 1.0, list[str]()
        if not peaks and features.sweep:
            peaks = self._by_sweep.get(self._sweep_key(features), [])
            widening, notes = _SWEEP_WIDENING, ["of its sweep"]
        if not peaks:
            return SimilarRuns()
        same_code = [peak for peak in peaks if MemoryFeatures.from_text(peak.key).code == features.code]
        if same_code:
            return SimilarRuns(same_code, widening, ", ".join(notes))
        notes.append("of other code")
        if _CODE not in self.relevant:
            return SimilarRuns(peaks, widening * _CODE_WIDENING, ", ".join(notes))
        newest = MemoryFeatures.from_text(peaks[-1].key).code
        of_newest = [peak for peak in peaks if MemoryFeatures.from_text(peak.key).code == newest]
        return SimilarRuns(of_newest, widening * _CHANGED_CODE_WIDENING, ", ".join(notes))

    def _settings_key(self, features: MemoryFeatures) -> Hashable:
        return frozenset(item for item in features.settings.items() if item[0] not in self.irrelevant)

    def _sweep_key(self, features: MemoryFeatures) -> Hashable:
        of_relevant = frozenset(item for item in features.settings.items() if item[0] in self.relevant)
        return features.sweep, of_relevant


_Run = tuple[Mapping[str, str], MemoryPeak]


def _with_code(features: MemoryFeatures) -> Mapping[str, str]:
    return {**features.settings, _CODE: features.code}


def _varying(runs: Sequence[Mapping[str, str]]) -> frozenset[str]:
    keys = frozenset[str]().union(*runs)
    return frozenset(key for key in keys if len({settings.get(key) for settings in runs}) > 1)


def _relevant(runs: Sequence[_Run], varying: frozenset[str]) -> tuple[frozenset[str], list[list[_Run]]]:
    """Returns the relevant settings, and the runs in groups that are equal in these and in the scale."""
    relevant = frozenset[str]()
    groups = _grouped(runs, relevant)
    num_values = {key: len({settings.get(key) for settings, _ in runs}) for key in varying}
    while (cost := _cost(groups)) and varying - relevant:
        ranked = defaultdict(list)
        for key in sorted(varying - relevant):
            found = _cost(_grouped(runs, {*relevant, key}))
            ranked[round(found, 9), num_values[key]].append(key)
        best = min(ranked)
        if best[0] >= cost:
            break
        relevant |= frozenset(ranked[best])
        groups = _grouped(runs, relevant)
    return relevant, groups


def _grouped(runs: Sequence[_Run], keys: Iterable[str]) -> list[list[_Run]]:
    found: defaultdict[Hashable, list[_Run]] = defaultdict(list)
    for settings, peak in runs:
        found[peak.scale, *map(settings.get, sorted(keys))].append((settings, peak))
    return list(found.values())


def _cost(groups: Iterable[Sequence[_Run]]) -> float:
    """Returns how much the peaks within the groups differ; 0: not at all."""
    cost = 0.0
    for group in groups:
        peaks = [peak.peak_mb for _, peak in group]
        if min(peaks) > 0:
            cost += max(0.0, math.log(max(peaks) / min(peaks) / _EQUAL_RATIO))
    return cost
