"""The operation ``lease``: cards for a program that the user starts, such as a shell, a notebook, or one that
does not use roost."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from types import FrameType

from roost.base.errors import NotFound, Refused
from roost.base.system import process_identity, state_folder
from roost.base.text.byte_sizes import format_memory
from roost.base.text.word_list import join_names
from roost.devices import inventory, lease, lease_files, usage_ledger, visible_cards
from roost.devices.card import Card, CardProcess
from roost.devices.lease import CardsBusy, LeaseHolder, Leases
from roost.devices.resource_request import ResourceRequest
from roost.lab.policy.card_capacity import spare_mb
from roost.lab.policy.decision import decide
from roost.lab.policy.policy_state import PolicyState, Rules
from roost.lab.policy.reason_codes import RESERVATION, reason_code
from roost.lab.queue import wakeup
from roost.lab.queue.task import PENDING, Task
from roost.lab.scheduling.other_queues import OtherQueues
from roost.lab.scheduling.scheduler import all_without_leased_processes, without_leased_processes
from roost.supervisor.processes.process_tree import descendants, kill_tree

_POLL_SECONDS = 1.0
"""How often cards are checked while waiting, in case no process announces that one is free."""
_GRACE_SECONDS = 60.0
"""Between SIGTERM at the time limit and SIGKILL."""
_TICK_SECONDS = 0.05
_FORWARDED_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGQUIT)


@dataclass(frozen=True)
class LeaseWait:
    """An event: not enough cards are free."""

    why: str


@dataclass(frozen=True)
class LeasedCards:
    """Cards that this process holds until `run_command` ends."""

    cards: Sequence[Card]
    leases: Leases


def lease_cards(request: ResourceRequest, *, wait: bool = False) -> Iterator[LeaseWait | LeasedCards]:
    """Leases free cards, those with the most free memory first.

    Args:
        request: The cards and their memory (None: whole cards), and for how long they are needed.
        wait: Whether to wait until enough cards are free.

    Yields:
        A `LeaseWait` whenever the reason for waiting changes; at last the `LeasedCards`.

    Raises:
        Busy: Too few cards are free, and the request is not to wait.
        Refused: The machine does not have that much, or as `roost.devices.lease.take`.
        RoostError: As `roost.devices.visible_cards.cards`.
    """
    try:
        leased = _lease_free_cards(request, visible_cards.cards())
    except CardsBusy:
        if not wait:
            raise
    else:
        yield leased
        return
    with closing(_QueuedLease(request)) as queued:
        reported = ""
        while True:
            is_next = queued.is_next()
            try:
                if is_next:
                    leased = _lease_free_cards(request, visible_cards.cards())
                    break
                why = f"{_format_request(request)} requested, and tasks of other users come first"
            except CardsBusy as busy:
                why = busy.message
            if why != reported:
                reported = why
                yield LeaseWait(why)
            queued.wait()
    yield leased


class _QueuedLease:
    """A waiting lease among all tasks that wait for cards of this machine, in any queue."""

    def __init__(self, request: ResourceRequest) -> None:
        self._other_queues = OtherQueues()
        self._rules = Rules(allowed=tuple(card.id for card in visible_cards.cards()))
        self._task = Task(
            id="lease",
            name="a lease",
            package="",
            user=lease_files.user_name(os.geteuid()),
            state=PENDING,
            need=request,
            submitted=time.time(),
        )

    def is_next(self) -> bool:
        """Whether the free cards, if there are any, are not reserved for other waiting tasks."""
        self._other_queues.watch()
        cards, now = inventory.read_cards(), time.time()
        found = lease_files.all_leases(lease_files.leases_folder(), first=[card.id for card in cards])
        state = PolicyState(
            now=now,
            pending=[self._task],
            cards=all_without_leased_processes(cards, found),
            usage=usage_ledger.decayed_usage(now, leases=found),
            rules=self._rules,
        )
        joined = self._other_queues.with_other_queues(state, found)
        whole = decide(joined)
        placed = [one.task for one in self._other_queues.own_decision(whole).placements]
        self._other_queues.publish_demand(joined, whole, not_started=placed)
        if placed:
            return True
        return not whole.placements and reason_code(whole.reasons[self._task.id]) != RESERVATION

    def wait(self) -> None:
        """Waits until more cards may be free."""
        fd = self._other_queues.fd
        select.select([fd] if fd is not None else [], [], [], _POLL_SECONDS)

    def close(self) -> None:
        """Leaves the queue of waiting leases."""
        self._other_queues.withdraw()


def run_command(
    command: Sequence[str],
    leased: LeasedCards,
    *,
    time_limit: float | None = None,
    at_limit: Callable[[], None] = lambda: None,
) -> int:
    """Runs a command on the cards at this terminal, and returns its exit code, or 128 + n if signal n ended
    it.

    The command inherits copies of the lease descriptors, so it keeps the cards if this process is killed.
    This process stays, because some programs (sudo) close descriptors that they do not know.

    Args:
        command: The program and its arguments.
        leased: The cards.
        time_limit: Seconds after which the command and its child processes get SIGTERM, and a minute later
            SIGKILL. None: no limit.
        at_limit: Called when SIGTERM is sent.

    Raises:
        NotFound: There is no such program.
        OSError: The program cannot be started.
    """
    child: subprocess.Popen[bytes] | None = None
    received: list[int] = []

    def note(signum: int, frame: FrameType | None) -> None:
        received.append(signum)
        if (
            child is not None and signum in _FORWARDED_SIGNALS
        ):  # the terminal itself sends the other signals to both processes
            child.send_signal(signum)

    # Handlers, not SIG_IGN, because the command would inherit ignored signals.
    before = {signum: signal.signal(signum, note) for signum in (*_FORWARDED_SIGNALS, *_TERMINAL_SIGNALS)}
    try:
        child = subprocess.Popen(command, env=_environment(leased), pass_fds=leased.leases.fds)
        for signum in set(received) & set(_FORWARDED_SIGNALS):
            child.send_signal(signum)
        code = child.wait() if time_limit is None else _wait_with_limit(child, time_limit, at_limit)
    except FileNotFoundError as error:
        fix = "give its path, or one that PATH finds; a shell's own command: sh -c '...'"
        raise NotFound("there is no such program", received=error.filename, fix=fix) from None
    finally:
        for signum, action in before.items():
            signal.signal(signum, action)
        leased.leases.close()
        wakeup.send(state_folder.lab_folder())  # a task may wait for these cards
    return code if code >= 0 else 128 - code


def _wait_with_limit(child: subprocess.Popen[bytes], seconds: float, at_limit: Callable[[], None]) -> int:
    with suppress(subprocess.TimeoutExpired):
        return child.wait(seconds)
    at_limit()
    deadline = time.monotonic() + _GRACE_SECONDS
    below = {pid: process_identity.start_ticks(pid) for pid in descendants(child.pid)}
    for pid in (child.pid, *below):  # a shell forwards no signals
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
    try:
        child.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.send_signal(
            signal.SIGSTOP
        )  # a shell would continue with its next command once its child is killed
        kill_tree(child.pid, include_root=False)
        child.kill()
    _wait_or_kill(below, deadline)
    return child.wait()


def _wait_or_kill(given: Mapping[int, int | None], deadline: float) -> None:
    """Waits for processes, which hold the cards as long as they live, and kills those that live at the
    deadline.

    Args:
        given: Start time by pid.
        deadline: In monotonic seconds.
    """
    boot_id = process_identity.boot_id()
    while left := [pid for pid, ticks in given.items() if process_identity.is_alive(pid, ticks, boot_id)]:
        if time.monotonic() >= deadline:
            for pid in left:
                kill_tree(pid, include_root=True)
            return
        time.sleep(_TICK_SECONDS)


def _environment(leased: LeasedCards) -> dict[str, str]:
    cards = ",".join(card.id for card in leased.cards)
    return {**os.environ, visible_cards.VARIABLE: cards, **leased.leases.environment()}


def _lease_free_cards(request: ResourceRequest, cards: Sequence[Card]) -> LeasedCards:
    reserve_mb = (
        max((spare_mb(card, Rules()) for card in cards), default=0) if request.memory_mb is not None else 0
    )
    large = [card for card in cards if _is_large_enough(card, request.memory_mb, reserve_mb)]
    if len(large) < request.cards:
        raise _too_few_cards(cards, large, request)
    found = lease.cards_with_capacity(large, request.memory_mb, reserve_mb=reserve_mb)
    free = [card for card in found if _is_unused(card, request.memory_mb)]
    if len(free) < request.cards:
        raise _cards_busy(large, free, request)
    chosen = visible_cards.most_free(free, request.cards)
    return LeasedCards(
        chosen, lease.take(chosen, request.memory_mb, LeaseHolder.this_process(), reserve_mb=reserve_mb)
    )


def _is_large_enough(card: Card, mb: int | None, reserve_mb: int) -> bool:
    return mb is None or not card.total_mb or mb <= card.total_mb - reserve_mb


def _is_unused(card: Card, mb: int | None) -> bool:
    """Whether processes without a lease leave enough of the card."""
    if mb is None:
        return not _foreign_users(card)
    return not card.total_mb or mb <= card.free_mb


def _foreign_users(card: Card) -> Sequence[CardProcess]:
    return without_leased_processes(card, lease_files.live_leases(card.id)).users


def _too_few_cards(cards: Sequence[Card], large: Sequence[Card], request: ResourceRequest) -> Refused:
    here = f"there are {len(cards)} here"
    if len(large) < len(cards):
        here = f"{len(large) or 'none'} of {len(cards)} {'have' if len(large) > 1 else 'has'} as much"
    return Refused(
        f"{_format_request(request)} requested, and {here}",
        fix="request less; `roost devices` lists the cards",
    )


def _cards_busy(cards: Sequence[Card], free: Sequence[Card], request: ResourceRequest) -> CardsBusy:
    found = {card.id: lease_files.live_leases(card.id) for card in cards if card not in free}
    numbers: dict[str, list[str]] = {}
    for card in cards:
        if card not in free:
            numbers.setdefault(_format_users(card, found[card.id]), []).append(f"GPU {card.number}")
    each = [f"{join_names(named)}: {users}" for users, named in numbers.items()]
    are = f"{len(free) or 'none'} of {len(cards)} {'are' if len(free) > 1 else 'is'} free"
    return CardsBusy(
        f"{_format_request(request)} requested, and {are}: {'; '.join(each)}",
        leases=found,
        fix="add --wait, or request less",
    )


def _format_users(card: Card, holders: Sequence[lease_files.CardLease]) -> str:
    foreign = _foreign_users(card)
    free = f"{format_memory(card.free_mb)} are free"
    return join_names([*map(str, holders), *(f"used without a lease by {user}" for user in foreign)]) or free


def _format_request(request: ResourceRequest) -> str:
    cards = "1 GPU" if request.cards == 1 else f"{request.cards} GPUs"
    are = "is" if request.cards == 1 else "are"
    return (
        f"{cards} {are}"
        if request.memory_mb is None
        else f"{format_memory(request.memory_mb)} of {cards} are"
    )
