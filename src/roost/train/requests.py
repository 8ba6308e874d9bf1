"""What hooks, signals and users may ask of a trainer."""

from __future__ import annotations

import threading
import time

from roost.train.agenda import Agenda
from roost.train.distributed.agreement import Agreement, WindowDecision
from roost.train.distributed.ranks import Ranks


class TrainerRequests:
    """The part of a trainer that is asked for things, at any time and from any thread.

    What a hook asks for holds at once: every rank's hooks ask for the same. What comes from outside of them,
    a signal or another thread, comes to one rank alone; with several it holds once all have agreed, which is
    before the step after next.

    Args:
        ranks: Who trains together.
        agenda: Of the trainer.
    """

    agenda: Agenda

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.agreement = Agreement(ranks.control) if ranks.are_several else None
        self.clock = time.monotonic if self.agreement is None else self.agreement.clock
        """Seconds, by which things are due; the same for all ranks."""
        self.has_unfinished_step = False
        """Whether a stop dropped an evaluation, so that even a run at its goal has work left."""
        self._thread = threading.get_ident()
        self._own_stop_reason: str | None = None
        """Why this process was asked to stop."""
        self._agreed_stop_reason: str | None = None
        """Why all of them do."""
        self._finished = False
        self.ended_early = False
        """Whether it reached its goal because a hook said so, before `until`."""
        self.has_failed = False
        """Whether an error ends the run; it may be that of the last save."""

    def request_stop(self, reason: str, *, finished: bool = False) -> None:
        """Ends the run at a step edge, the next where nobody else must agree, saved. ``finished``: it reached
        its goal, so `continue` does not go on; otherwise it is stopped and may be continued."""
        if finished:
            self.ended_early = self.ended_early or not self._finished
            self._finished, self.agenda.wake_step = True, 0  # its last step is owed a row
            return
        if self.agreement is not None:
            self.agreement.ask_to_stop()
        self._own_stop_reason = (
            self._own_stop_reason or reason
        )  # after it: whoever stops waiting by this tells the others
        if self.agreement is None:
            self._agreed_stop_reason = self._own_stop_reason

    def requested(self, what: str) -> bool:
        """Whether somebody asked for it and it was not served yet: save, hold, best, validate, …"""
        return what in self.agenda.requests

    @property
    def due_now(self) -> bool:
        """Whether the hook that runs is due by its interval, not only asked for."""
        return self.agenda.due_now

    def request_save(self, *, hold: bool = False, best: bool = False) -> None:
        """Saves in this step, or in the next when its SAVE phase is over or from outside of one.

        Args:
            hold: Put it into the held track.
            best: It is made because it is among the best.

        Raises:
            ContractError: The trainer has no hook that saves.
        """
        self._ask("save", *(["hold"] if hold else []), *(["best"] if best else []))

    def request_validate(self) -> None:
        """Validates in this step when asked from MODEL or SCHEDULE, else in the next."""
        self._ask("validate")

    def request_visualize(self) -> None:
        """Visualizes in this step when asked from MODEL or SCHEDULE, else in the next."""
        self._ask("visualize")

    def _ask(self, *requests: str) -> None:
        if self.agreement is not None and threading.get_ident() != self._thread:
            self.agreement.ask(*requests)
        else:
            self.agenda.request(*requests)

    def apply_verdict(self, verdict: WindowDecision) -> None:
        """Takes over what the ranks have agreed on."""
        if verdict.requests:
            self.agenda.request(*verdict.requests)
        if verdict.stops is not None:
            self.confirm_stop(f"rank {verdict.stops} was asked to stop")

    def confirm_stop(self, default_reason: str = "stopped on request") -> None:
        """All ranks stop: for what this one was asked to, or ``otherwise`` where it was not."""
        self._agreed_stop_reason = self._agreed_stop_reason or self._own_stop_reason or default_reason

    @property
    def at_end(self) -> bool:
        """Whether no further step will be taken."""
        return self.is_stopped or self._finished

    @property
    def is_stopped(self) -> bool:
        """Whether a stop was requested, and agreed on."""
        return self._agreed_stop_reason is not None

    @property
    def wants_to_stop(self) -> bool:
        """Whether this process was asked to stop, so that it waits for no data, and drops an evaluation."""
        return self._own_stop_reason is not None

    @property
    def finished(self) -> bool:
        """Whether the run has reached its goal; in its last step everything with an interval is due."""
        return self._finished

    def _reason(self) -> str:
        return (
            "finished" if self._finished and not self.has_unfinished_step else str(self._agreed_stop_reason)
        )
