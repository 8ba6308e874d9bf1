"""Requests to a trainer by hooks, signals and users: save, validate, visualize, stop."""

from __future__ import annotations

import threading
import time

from roost.train.agenda import Agenda
from roost.train.distributed.agreement import Agreement, WindowDecision
from roost.train.distributed.ranks import Ranks


class TrainerRequests:
    """The part of a trainer that takes requests, at any time and from any thread.

    A request of a hook takes effect at once, because the hooks of every rank make the same requests. A
    request from outside the hooks (a signal, another thread) reaches one rank only; with several ranks it
    takes effect after all have agreed on it, which is before the step after next.

    Args:
        ranks: The ranks that train together.
    """

    agenda: Agenda

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.agreement = Agreement(ranks.control) if ranks.are_several else None
        self.clock = time.monotonic if self.agreement is None else self.agreement.clock
        """The clock of intervals and limits, in seconds; the same on all ranks."""
        self.has_unfinished_step = False
        """Whether a stop interrupted an evaluation, so that even a run at its goal has work left."""
        self._thread = threading.get_ident()
        self._own_stop_reason: str | None = None
        """The reason for which this process was requested to stop."""
        self._agreed_stop_reason: str | None = None
        """The reason for which all ranks stop."""
        self._finished = False
        self.ended_early = False
        """Whether a hook declared the goal reached before `until`."""
        self.has_failed = False
        """Whether an error ends the run, including an error of the last save."""

    def request_stop(self, reason: str, *, finished: bool = False) -> None:
        """Saves and ends the run after a step: the current one, unless other ranks must agree first.

        Args:
            reason: Why.
            finished: The run reached its goal, so `continue` does not train it further. Otherwise it is
                stopped and can be continued.
        """
        if finished:
            self.ended_early = self.ended_early or not self._finished
            self._finished, self.agenda.wake_step = True, 0  # so that the last step gets its row
            return
        if self.agreement is not None:
            self.agreement.request_stop()
        self._own_stop_reason = (
            self._own_stop_reason or reason
        )  # after it: a rank that stops waiting because of this must inform the others
        if self.agreement is None:
            self._agreed_stop_reason = self._own_stop_reason

    def requested(self, what: str) -> bool:
        """Whether a request (save, hold, best, validate, …) is open."""
        return what in self.agenda.requests

    @property
    def due_now(self) -> bool:
        """Whether the running hook is due by its interval, not only by a request."""
        return self.agenda.due_now

    def request_save(self, *, hold: bool = False, best: bool = False) -> None:
        """Requests a save in this step; in the next if the SAVE phase is over or no step is running.

        Args:
            hold: Add the checkpoint to the held track.
            best: The checkpoint is made for the best track.

        Raises:
            ContractError: The trainer has no hook that saves.
        """
        self._ask("save", *(["hold"] if hold else []), *(["best"] if best else []))

    def request_validate(self) -> None:
        """Requests a validation: in this step if called in MODEL or SCHEDULE, otherwise in the next.

        Raises:
            ContractError: The trainer has no hook that validates.
        """
        self._ask("validate")

    def request_visualize(self) -> None:
        """Requests `Runner.visualize`: in this step if called in MODEL or SCHEDULE, otherwise in the next.

        Raises:
            ContractError: The trainer has no hook that visualizes.
        """
        self._ask("visualize")

    def _ask(self, *requests: str) -> None:
        if self.agreement is not None and threading.get_ident() != self._thread:
            self.agreement.request(*requests)
        else:
            self.agenda.request(*requests)

    def apply_verdict(self, verdict: WindowDecision) -> None:
        """Applies the requests and the stop that the ranks agreed on."""
        if verdict.requests:
            self.agenda.request(*verdict.requests)
        if verdict.stopping_rank is not None:
            self.confirm_stop(f"rank {verdict.stopping_rank} was requested to stop")

    def confirm_stop(self, default_reason: str = "stopped on request") -> None:
        """Stops all ranks, for the reason given to this rank, or ``default_reason`` if none was given."""
        self._agreed_stop_reason = self._agreed_stop_reason or self._own_stop_reason or default_reason

    @property
    def at_end(self) -> bool:
        """Whether no further step will be taken."""
        return self.is_stopped or self._finished

    @property
    def is_stopped(self) -> bool:
        """Whether a stop was requested and all ranks agreed to it."""
        return self._agreed_stop_reason is not None

    @property
    def wants_to_stop(self) -> bool:
        """Whether this process was requested to stop: it then waits for no data and interrupts an
        evaluation."""
        return self._own_stop_reason is not None

    @property
    def finished(self) -> bool:
        """Whether the run reached its goal; in its last step every call with an interval is due."""
        return self._finished

    def _reason(self) -> str:
        return (
            "finished" if self._finished and not self.has_unfinished_step else str(self._agreed_stop_reason)
        )
