"""Predictions for pending tasks from earlier runs: how much memory they need, and how long they take."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence, Set

from roost.devices.card import Card
from roost.lab.memory.memory_features import MemoryFeatures
from roost.lab.memory.memory_prediction import MemoryReservation, predict_memory
from roost.lab.memory.run_comparison import RunComparison
from roost.lab.policy.card_capacity import capacity_mb, usable
from roost.lab.policy.policy_state import Expectation, Rules
from roost.lab.queue.history import MemoryPeak, QueueHistory
from roost.lab.queue.task import Task

_LEAST_RUNS = 3
"""With fewer runs the run time of the next one is not predicted."""

_MAX_PEAKS_PER_FAMILY = 128
"""The newest runs of a project; to compare them takes milliseconds, at each end of a run."""

_Key = tuple[str, float | None, int, str | None]
_SpanKey = tuple[str, str, float | None]
_FamilyKey = tuple[str, str, int]
"""The family of runs, the model of card, and the number of ranks."""


class Expectations:
    """The predictions for the tasks of one queue. A pass costs one query for new measurements, and one
    look-up for each task; after the end of a run, new predictions for the pending tasks of its project.

    Args:
        history: The measurements in the queue.
    """

    def __init__(self, history: QueueHistory) -> None:
        self._history = history
        self._peak_seq = self._event_seq = 0
        self._peaks: defaultdict[_FamilyKey, deque[MemoryPeak]] = defaultdict(
            lambda: deque(maxlen=_MAX_PEAKS_PER_FAMILY)
        )
        self._comparisons: dict[_FamilyKey, RunComparison] = {}
        self._spans: defaultdict[_SpanKey, list[float]] = defaultdict(list)
        self._known: dict[_Key, Expectation | None] = {}
        self._reservations: dict[_Key, MemoryReservation] = {}
        self._models: Mapping[str, int] = {}

    def for_tasks(self, tasks: Sequence[Task], cards: Sequence[Card], rules: Rules) -> dict[str, Expectation]:
        """Returns the predictions by task id, where there are any.

        Args:
            tasks: The tasks.
            cards: The cards of the machine.
            rules: Which cards tasks may have, and how much of each.
        """
        models: dict[str, int] = {}
        for card in usable(cards, rules):
            models[card.name] = max(capacity_mb(card, rules), models.get(card.name, 0))
        self._refresh(models)
        found: dict[str, Expectation] = {}
        if not self._peaks and not self._spans:
            return found
        known = self._known
        for task in tasks:
            if not task.profile:
                continue
            key = _key(task)
            if key not in known:
                known[key] = self._expected(*key)
            expected = known[key]
            if expected is not None:
                found[task.id] = expected
        return found

    def memory_reason(self, task: Task) -> str:
        """Returns from which runs the memory of a task was predicted by the last `for_tasks`; empty if it was
        not."""
        found = self._reservations.get(_key(task))
        return "" if found is None else found.reason

    def _refresh(self, models: Mapping[str, int]) -> None:
        self._peak_seq, peaks = self._history.peaks_since(self._peak_seq)
        for peak in peaks:
            family = MemoryFeatures.family_of(peak.key), peak.device, peak.ranks
            self._peaks[family].append(peak)
            self._comparisons.pop(family, None)
        self._event_seq, spans = self._history.durations_since(self._event_seq)
        for span in spans:
            self._spans[span.sweep, span.profile, span.scale].append(span.seconds)
        if models != self._models:
            self._known.clear()
            self._reservations.clear()
            self._models = models
        elif peaks or spans:
            self._forget(
                families={MemoryFeatures.family_of(peak.key) for peak in peaks},
                spans={(span.sweep, span.profile, span.scale) for span in spans},
            )

    def _forget(self, *, families: Set[str], spans: Set[_SpanKey]) -> None:
        """Forgets the predictions that new measurements may change; those of other projects remain."""
        for key in [*self._known]:
            profile, scale, _, sweep = key
            if MemoryFeatures.family_of(profile) in families or (sweep, profile, scale) in spans:
                del self._known[key]
                self._reservations.pop(key, None)

    def _expected(
        self, profile: str, scale: float | None, cards: int, sweep: str | None
    ) -> Expectation | None:
        memory_mb = self._memory_mb(profile, scale, cards, sweep) if self._peaks else None
        seconds = self._seconds(profile, scale, sweep) if sweep is not None else None
        return Expectation(memory_mb, seconds) if (memory_mb, seconds) != (None, None) else None

    def _memory_mb(self, profile: str, scale: float | None, ranks: int, sweep: str | None) -> int | None:
        """Returns the largest prediction over the card models here, as the card is not chosen yet. It is used
        for models on which the task never ran, too."""
        features = MemoryFeatures.from_text(profile)
        given = [
            predict_memory(found.similar_to(features), scale=scale)
            for model in self._models
            if (found := self._comparison((features.family, model, ranks))) is not None
        ]
        most = max((one for one in given if one.mb is not None), key=lambda one: one.mb or 0, default=None)
        if most is None or most.mb is None:
            return None
        self._reservations[profile, scale, ranks, sweep] = most
        return most.mb if most.mb <= max(self._models.values()) else 0

    def _comparison(self, family: _FamilyKey) -> RunComparison | None:
        if family not in self._peaks:
            return None
        if family not in self._comparisons:
            self._comparisons[family] = RunComparison([*self._peaks[family]])
        return self._comparisons[family]

    def _seconds(self, profile: str, scale: float | None, sweep: str) -> float | None:
        """Returns the longest run time of equal tasks of its sweep; a profile alone does not determine the
        number of epochs. The longest, because a task that takes longer than predicted delays the first
        blocked task."""
        spans = self._spans.get((sweep, profile, scale), [])
        return max(spans) if len(spans) >= _LEAST_RUNS else None


def _key(task: Task) -> _Key:
    return task.profile, task.scale, task.need.cards, task.sweep
