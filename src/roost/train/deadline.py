"""How long before its deadline a session must begin to end, from what its saves and steps take."""

from __future__ import annotations

from collections import deque

MARGIN = 1.5
"""The last save may take so many times what the longest of the last few took; the step before it, too."""
_NUM_RECENT_SAVES = 5
_UNMEASURED_FRACTION = 4
"""A save that nobody has seen yet is taken to need a quarter of the session, and so is the longest step at
most: one that hung for an hour tells nothing about the next."""
_UNMEASURED_RESERVE_FRACTION = 2
"""What is not known takes half of the session at most."""
_TRIAL_SAVE_FRACTION = 10
"""After a tenth of the session, or a longer start, a save is made to find out what it takes, while there is
time for two that need a quarter."""
_SHUTDOWN_FRACTION, _MAX_SHUTDOWN_SECONDS = 10, 10.0
"""What comes after the save (mirrors that hand over their last rows, processes that end): 10 s, in a short
session a tenth of it."""
_PACED_SLOWDOWN = 8
"""A save that is written beside the training takes less than so many times what it takes at full speed."""
_RECENT_SECONDS = 300.0
"""The longest step is that of the last five to ten minutes."""


class Deadline:
    """Reckons when to end; asks nothing and nobody. Moments are unix seconds.

    ::

        begun   begun + 1/10                                 latest            ends
          |----------|-----------------------------------------|-----------------|
               a save, if there was none,                      |- 1.5 × (save + step) + end -|
               so that its time is known

    Args:
        ends: When all must be over.
        start: When the session began.
        saves: How many saves may come one after the other once the end was asked for: 2 with several ranks,
            which agree on it a step later, when one may have start.
    """

    def __init__(self, ends: float, start: float, *, saves: int = 1) -> None:
        self.ends, self._start, self._saves = ends, start, saves
        self._length = max(0.0, ends - start)
        self.has_trained = False
        """Whether a step was taken; set by whoever knows."""
        self._save_times: deque[float] = deque(maxlen=_NUM_RECENT_SAVES)
        self._longest, self._longest_before, self._since = 0.0, 0.0, start

    @property
    def is_measured(self) -> bool:
        """Whether a save was seen."""
        return bool(self._save_times)

    @property
    def save_seconds(self) -> float:
        """What a save will take: the longest of the last few."""
        return max(self._save_times, default=self._length / _UNMEASURED_FRACTION)

    @property
    def step_seconds(self) -> float:
        """How long the loop may take until it looks whether it shall end."""
        return min(max(self._longest, self._longest_before), self._length / _UNMEASURED_FRACTION)

    @property
    def check_interval_seconds(self) -> float:
        """How often to look, so that as much of a session is lost by it at most."""
        return min(1.0, max(0.05, self._length / 100))

    def note_save(self, seconds: float) -> None:
        """A save took so long, until it stood and all who wait for it were done."""
        self._save_times.append(seconds)

    def note_step(self, seconds: float, now: float) -> None:
        """The loop did not look for so long."""
        if now - self._since > _RECENT_SECONDS:
            self._longest, self._longest_before, self._since = 0.0, self._longest, now
        self._longest = max(self._longest, seconds)

    def reserve(self) -> float:
        """Seconds before the deadline at which to ask for the end. Where nothing was trained so far, a save
        that comes too late loses nothing: then there is no margin."""
        found = self._last(MARGIN * self._saves if self.has_trained else 1.0)
        return found if self.is_measured else min(found, self._length / _UNMEASURED_RESERVE_FRACTION)

    def _last(self, times: float) -> float:
        """What the last save takes, with what comes before and after it."""
        end = min(_MAX_SHUTDOWN_SECONDS, self._length / _SHUTDOWN_FRACTION)
        return times * (self.save_seconds + self.step_seconds) + end

    def is_due(self, now: float) -> bool:
        """Whether the end must be asked for now."""
        return now >= self.ends - self.reserve()

    def allows_two(self, now: float) -> bool:
        """Whether after a save that begins now another one can be made; else this is the last."""
        last = self.reserve() if self.is_measured else self._last(1.0)
        return now + self.save_seconds < self.ends - last

    def is_near(self, now: float) -> bool:
        """Whether what is being written must take no rests: its time is to be known soon, or else it might be
        under way when the last save begins."""
        return not self.is_measured or now >= self.ends - self.reserve() - _PACED_SLOWDOWN * self.save_seconds

    def needs_trial_save(self, now: float) -> bool:
        """Whether one must be made to find out what it takes."""
        due = self.has_trained and now >= self._start + self._length / _TRIAL_SAVE_FRACTION
        return due and not self.is_measured and self.allows_two(now)
