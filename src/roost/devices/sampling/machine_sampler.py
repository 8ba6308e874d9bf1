"""Samples this machine once a second for all sessions, if no other process does.

The process that samples holds the flock of the folder of the rings; the kernel frees it when that process
ends, however it ends, and the next supervisor that misses a sample takes it. A process that holds that lock
and does not sample (one of another user, or one that hangs) stops the samples for some seconds only: then one
process of each user samples for that user, by a lock that only this user can take. There are some of these
locks, for a process of the same user that is stopped; when it goes on, it finds its ring replaced and ends
its sampling.
"""

# Standard library only

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import time
from collections.abc import Mapping, Sequence

from roost.devices.sampling import machine_columns, sample_ring
from roost.devices.sampling.card_query import NO_ANSWER, CardQuery, CardSample
from roost.devices.sampling.host_counters import HostCounters, host_facts
from roost.devices.sampling.sample_ring import MachineSample, RingHeader, RingWriter

SAMPLE_SECONDS = 1.0
_INTERVAL_PER_COST = 500
"""The interval to the next sample is at least this many times the cost of one: 0.2 % of a core."""
_RETRY_SECONDS = 10.0
_OTHER_SECONDS = 8.0
"""How long a sample is missed before a process samples without the lock of the machine."""
_MAX_USER_LOCKS = 4
_OLDEST_SECONDS = 3.5
"""How old an answer about the cards may be."""
_NO_CARDS, _NOT_ASKED, _NOT_YET = 1, 2, 3
"""Indices into `sample_ring.STATES`."""


class MachineSampler:
    """Takes the samples of this machine while it is the one that does.

    Args:
        folder: The folder of the rings, which all users may write to.
        environment: The variables among which ROOST_DEVICES is looked up.
    """

    def __init__(self, folder: str, environment: Mapping[str, str]) -> None:
        self._folder, self._environment = folder, environment
        self.error = ""
        """Why this process cannot sample; empty: it can, or need not."""
        self.spent_cpu_seconds = 0.0
        """The processor time of children that have ended."""
        self._election_at = 0.0
        self._sampling: _Sampling | None = None

    @property
    def is_sampling(self) -> bool:
        """Whether this process is the one that samples."""
        return self._sampling is not None

    @property
    def child_pids(self) -> list[int]:
        """The process that asks the cards: it is no part of the session."""
        return [] if self._sampling is None else self._sampling.query.pids

    def sample(self, missed_seconds: float) -> None:
        """Takes a sample if one is due; first tries to become the process that samples, if none does.

        Args:
            missed_seconds: How long there was no sample of any process.
        """
        now = time.monotonic()
        try:
            if self._sampling is not None:
                if not self._sampling.sample(now):
                    self.close()
            elif missed_seconds > 0 and now >= self._election_at:
                self._election_at = now + SAMPLE_SECONDS
                if (fds := self._elect(missed_seconds)) is not None:
                    self._sampling = _Sampling(fds, self._folder, self._environment)
                    self._sampling.sample(now)
                self.error = ""
        except OSError as error:
            self.error = error.strerror or str(error)
            self._election_at = now + _RETRY_SECONDS
            self.close()

    def close(self) -> None:
        """Stops sampling; another process will."""
        if self._sampling is not None:
            self._sampling.close()
            self.spent_cpu_seconds += self._sampling.query.spent_cpu_seconds
            self._sampling = None

    def _elect(self, missed_seconds: float) -> list[int] | None:
        """The descriptors that hold the locks of the sampler; None: another process has one."""
        folder_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        fds = [folder_fd]
        try:
            is_late = missed_seconds > _OTHER_SECONDS
            if _lock(folder_fd) or is_late:
                for number in range(_MAX_USER_LOCKS if is_late else 1):
                    name = f"{os.geteuid()}.lock{number or ''}"
                    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                    fds.append(os.open(name, flags, 0o600, dir_fd=folder_fd))
                    if os.fstat(fds[-1]).st_uid == os.geteuid() and _lock(fds[-1]):
                        return fds
        except BaseException:
            _close_all(fds)
            raise
        _close_all(fds)
        return None


class _Sampling:
    """The work of the process that samples.

    Args:
        fds: The folder of the rings, and further descriptors to be closed at the end.
        folder: The path of that folder.
        environment: As in `MachineSampler`.
    """

    def __init__(self, fds: Sequence[int], folder: str, environment: Mapping[str, str]) -> None:
        self._fds, self._folder = fds, folder
        self.query = CardQuery(environment)
        self._counters = HostCounters()
        self._cards: list[CardSample] = []
        self._answered_at = -math.inf
        self._next = 0.0
        self._ring: RingWriter | None = None

    def sample(self, now: float) -> bool:
        """Takes a sample if one is due. Raises OSError if it cannot be written; returns False if another
        process of this user samples by now."""
        if now < self._next:
            return True
        if self._ring is not None and self._ring.is_replaced():
            return False
        began = time.process_time()
        answer = self.query.poll() if self.query.is_needed else None
        if answer is not None:
            self._cards, self._answered_at = answer[: machine_columns.MAX_CARDS], now
        host = self._counters.sample()
        spent = time.process_time() - began
        ring = self._current_ring()  # seldom a new one, which costs as much as many samples: it delays none
        began = time.process_time() - spent
        values = [math.nan if value is None else value for value in host]
        is_answered = now - self._answered_at <= _OLDEST_SECONDS
        for card in self._cards if len(ring.header.cards) == len(self._cards) else []:
            found = card.values if is_answered else {}
            values += [found.get(name, math.nan) for name in machine_columns.CARD_COLUMNS]
        values += [math.nan] * (len(ring.columns) - len(values))
        ring.add(
            MachineSample(sample_ring.boot_seconds(), time.time(), self._state(is_answered), tuple(values))
        )
        self._next = now + max(
            0.9 * SAMPLE_SECONDS, (time.process_time() - began) * _INTERVAL_PER_COST
        )  # below the interval of the caller, who would otherwise miss every second one
        return True

    def _state(self, is_answered: bool) -> int:
        if is_answered or not self.query.is_needed:
            return 0
        if self.query.trouble == NO_ANSWER:
            return _NO_CARDS
        return _NOT_ASKED if self.query.trouble else _NOT_YET

    def _current_ring(self) -> RingWriter:
        """The ring, which is made again when the cards are others than before."""
        known = [{"id": card.id, "name": card.name, "total_mb": card.total_mb} for card in self._cards]
        ring = self._ring
        if ring is not None and (ring.header.cards == known or not known):
            return ring
        former = sample_ring.newest_ring(self._folder)
        try:
            if not known and former is not None and self.query.is_needed:
                known = former.header.cards  # until the driver has answered
            made = RingWriter(self._fds[0], RingHeader(cards=known, host=host_facts()), former)
        finally:
            if former is not None:
                former.close()
        if ring is not None:
            ring.close()
        self._ring = made
        return made

    def close(self) -> None:
        """Ends the child and frees the locks."""
        self.query.close()
        self._counters.close()
        if self._ring is not None:
            self._ring.close()
        _close_all(self._fds)


def _lock(fd: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
