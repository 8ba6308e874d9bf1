"""What earlier runs tell of those that wait: how much memory they take, and how long."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

from roost.devices.card import Card
from roost.lab.memory.memory_prediction import predict_memory
from roost.lab.policy.card_capacity import capacity_mb, usable
from roost.lab.policy.policy_state import Expectation, Rules
from roost.lab.queue.history import MOST_PEAKS, Peak, Remembered
from roost.lab.queue.task import Task

_LEAST_RUNS = 3
"""Of fewer runs nobody knows how long the next one takes."""

_Key = tuple[str, float | None, int, str | None]
_SpanKey = tuple[str, str, float | None]


class Expectations:
    """Of the tasks of one queue. A pass costs a look at what was measured since the last one, and a look-up a
    task.

    Args:
        remembered: Where it stands.
    """

    def __init__(self, remembered: Remembered) -> None:
        self._remembered = remembered
        self._peak_seq = self._event_seq = 0
        self._peaks: defaultdict[str, deque[Peak]] = defaultdict(lambda: deque(maxlen=MOST_PEAKS))
        self._spans: defaultdict[_SpanKey, list[float]] = defaultdict(list)
        self._known: dict[_Key, Expectation | None] = {}
        self._models: Mapping[str, int] = {}

    def of(self, tasks: Sequence[Task], cards: Sequence[Card], rules: Rules) -> dict[str, Expectation]:
        """By task, where something is known.

        Args:
            tasks: Those that are asked for.
            cards: Of the machine.
            rules: Which of them tasks may have, and how much of each.
        """
        models: dict[str, int] = {}
        for card in usable(cards, rules):
            models[card.name] = max(capacity_mb(card, rules), models.get(card.name, 0))
        self._look(models)
        found: dict[str, Expectation] = {}
        if not self._peaks and not self._spans:
            return found
        known = self._known
        for task in tasks:
            if not task.profile:
                continue
            key = (task.profile, task.scale, task.need.cards, task.sweep)
            if key not in known:
                known[key] = self._expected(*key)
            expected = known[key]
            if expected is not None:
                found[task.id] = expected
        return found

    def _look(self, models: Mapping[str, int]) -> None:
        self._peak_seq, peaks = self._remembered.learned_since(self._peak_seq)
        for peak in peaks:
            self._peaks[peak.key].append(peak)
        self._event_seq, spans = self._remembered.spans_since(self._event_seq)
        for span in spans:
            self._spans[span.sweep, span.profile, span.scale].append(span.seconds)
        if peaks or spans or models != self._models:
            self._known.clear()
            self._models = models

    def _expected(
        self, profile: str, scale: float | None, cards: int, sweep: str | None
    ) -> Expectation | None:
        memory_mb = self._memory_mb(profile, scale, cards) if profile in self._peaks else None
        seconds = self._seconds(profile, scale, sweep) if sweep is not None else None
        return Expectation(memory_mb, seconds) if (memory_mb, seconds) != (None, None) else None

    def _memory_mb(self, profile: str, scale: float | None, ranks: int) -> int | None:
        """Which card it gets is not known yet: so the most that it would take on one of the models here. What
        it takes on a model that it never ran on is taken to be that, too."""
        peaks = self._peaks[profile]
        given = [
            predict_memory(peaks, scale=scale, device=model, ranks=ranks, declared_mb=None).mb
            for model in self._models
        ]
        known = [mb for mb in given if mb is not None]
        if not known:
            return None
        return max(known) if max(known) <= max(self._models.values()) else 0

    def _seconds(self, profile: str, scale: float | None, sweep: str) -> float | None:
        """As long as the longest of its sweep so far that is like it; a profile alone does not tell how many
        epochs there are. Whoever is thought too quick would hold up the head of the queue."""
        spans = self._spans.get((sweep, profile, scale), [])
        return max(spans) if len(spans) >= _LEAST_RUNS else None
