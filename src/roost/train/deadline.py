"""The time at which a session with a deadline must begin to end, computed from its saves and steps."""

from __future__ import annotations

import math
from collections import deque

MARGIN = 1.5
"""Factor on the longest of the recent saves, and on the step before it, that the last save may take."""
_NUM_RECENT_SAVES = 5
_UNMEASURED_DIVISOR = 4
"""A save that was not measured yet is assumed to need 1/4 of the session. The longest step counts as no more
than that: a step that hung for an hour says nothing about the next one."""
_UNMEASURED_RESERVE_DIVISOR = 2
"""As long as no save was measured, at most 1/2 of the session is reserved."""
_TRIAL_SAVE_DIVISOR = 10
"""After 1/10 of the session (later if training begins later) a save is made to measure it, if there is time
for two saves of 1/4 of the session each."""
_MAX_UPLOAD_DIVISOR = 4
"""An upload counts as no more than 1/4 of the session: else a slow network would leave no time to train."""
_SHUTDOWN_DIVISOR, _MAX_SHUTDOWN_SECONDS = 10, 10.0
"""Time for the work after the last save (mirrors that send their last rows, processes that end): 10 s, in a
short session 1/10 of it."""
_PACED_SLOWDOWN = 8
"""Written with pauses, concurrently with the training, a save takes less than this many times as long."""
_RECENT_SECONDS = 300.0
"""The longest step is taken over the last five to ten minutes."""


class Deadline:
    """Computes when to end, without any I/O. Times are unix seconds.

    ::

        start   start + 1/10                                 latest            ends
          |----------|-----------------------------------------|-----------------|
               a save to measure it,                           |- 1.5 × (save + step) + end -|
               if there was none

    A deadline may come while the session runs (`move`): the notice of a spot instance. Then the time from the
    notice on is what there is, with all that was measured before.

    Args:
        ends: The deadline; infinite: there is none yet.
        start: The start of the session.
        saves: Saves that may follow each other after the end was requested: 2 with several ranks, which agree
            on the end a step later, when a save may have started.
    """

    def __init__(self, ends: float, start: float, *, saves: int = 1) -> None:
        self.ends, self._start, self._saves = ends, start, saves
        self._length = max(0.0, ends - start)
        self.has_trained = False
        """Whether a step was taken; set by the caller."""
        self.upload_seconds = 0.0
        """The time that the upload of the last save takes after it, beyond what lies after the deadline; set
        by the caller."""
        self._save_times: deque[float] = deque(maxlen=_NUM_RECENT_SAVES)
        self._longest, self._longest_before, self._since = 0.0, 0.0, start

    def move(self, ends: float, start: float) -> None:
        """Sets another deadline, of a session that counts from ``start`` on."""
        self.ends, self._start = ends, start
        self._length = max(0.0, ends - start)

    @property
    def is_set(self) -> bool:
        """Whether there is a deadline."""
        return math.isfinite(self.ends)

    @property
    def is_measured(self) -> bool:
        """Whether a save was measured."""
        return bool(self._save_times)

    @property
    def save_seconds(self) -> float:
        """The expected duration of a save: the longest of the last five."""
        return max(self._save_times, default=self._length / _UNMEASURED_DIVISOR)

    @property
    def step_seconds(self) -> float:
        """The longest time that the loop may take until it checks for the end."""
        return min(max(self._longest, self._longest_before), self._length / _UNMEASURED_DIVISOR)

    @property
    def check_interval_seconds(self) -> float:
        """The interval between two checks, and so the most of a session that is lost by them."""
        return min(1.0, max(0.05, self._length / 100)) if self.is_set else 1.0

    def note_save(self, seconds: float) -> None:
        """Records the duration of a save, until it was committed and everything that waits for it was
        done."""
        self._save_times.append(seconds)

    def note_step(self, seconds: float, now: float) -> None:
        """Records that the loop did not check for so long."""
        if now - self._since > _RECENT_SECONDS:
            self._longest, self._longest_before, self._since = 0.0, self._longest, now
        self._longest = max(self._longest, seconds)

    def reserve(self) -> float:
        """Returns how many seconds before the deadline the end must be requested. There is no margin as long
        as nothing was trained: then a save that comes too late loses nothing."""
        found = self._last(MARGIN * self._saves if self.has_trained else 1.0)
        return found if self.is_measured else min(found, self._length / _UNMEASURED_RESERVE_DIVISOR)

    def _last(self, times: float) -> float:
        """Returns the seconds of the last save, with the step before it, and the work and the upload after
        it."""
        end = min(_MAX_SHUTDOWN_SECONDS, self._length / _SHUTDOWN_DIVISOR)
        end += min(self.upload_seconds, self._length / _MAX_UPLOAD_DIVISOR)
        return times * (self.save_seconds + self.step_seconds) + end

    def is_due(self, now: float) -> bool:
        """Whether the end must be requested now."""
        return self.is_set and now >= self.ends - self.reserve()

    def allows_two(self, now: float) -> bool:
        """Whether another save is possible after one that begins now; otherwise that one is the last."""
        if not self.is_set:
            return True
        last = self.reserve() if self.is_measured else self._last(1.0)
        return now + self.save_seconds < self.ends - last

    def is_near(self, now: float) -> bool:
        """Whether a save must be written without pauses: because its duration must be known soon, or because
        it might not be finished when the last save begins."""
        if not self.is_set:
            return False
        return not self.is_measured or now >= self.ends - self.reserve() - _PACED_SLOWDOWN * self.save_seconds

    def needs_trial_save(self, now: float) -> bool:
        """Whether a save must be made now to measure it."""
        due = self.is_set and self.has_trained and now >= self._start + self._length / _TRIAL_SAVE_DIVISOR
        return due and not self.is_measured and self.allows_two(now)
