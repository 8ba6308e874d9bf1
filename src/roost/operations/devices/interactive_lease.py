"""``lease``: cards for what a person starts: a shell, a notebook, a program that knows nothing of roost."""

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
from roost.lab.policy.card_capacity import spare_mb
from roost.lab.policy.decision import decide
from roost.lab.policy.policy_state import Rules, State
from roost.lab.policy.reason_codes import RESERVATION, word_of
from roost.lab.queue import wakeup
from roost.lab.queue.task import PENDING, Need, Task
from roost.lab.scheduling.other_queues import Neighbours
from roost.lab.scheduling.scheduler import without_all_holders, without_holders
from roost.lab.sessions.session_start import CARDS_VARIABLE
from roost.supervisor.processes.process_tree import descendants, kill_tree

_POLL_SECONDS = 1.0
"""How often a card that is waited for is looked at, should nobody tell that it is free."""
_GRACE_SECONDS = 60.0
"""Between the end of its time and the end of it."""
_TICK_SECONDS = 0.05
_FORWARDED_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGQUIT)


@dataclass(frozen=True, kw_only=True)
class LeaseRequest:
    """What is asked for."""

    count: int = 1
    """How many cards."""
    mb: int | None = None
    """Of each; None: whole cards."""
    wait: bool = False
    """Whether to wait until as many are free."""
    time_limit: float | None = None
    """Seconds for which they are wanted; None: nobody knows."""


@dataclass(frozen=True)
class LeaseWait:
    """Not enough is free."""

    why: str


@dataclass(frozen=True)
class LeasedCards:
    """Cards that are ours until `run_command` ends."""

    cards: Sequence[Card]
    leases: Leases


def lease_cards(request: LeaseRequest) -> Iterator[LeaseWait | LeasedCards]:
    """Takes free cards, those with the most free memory first.

    Yields:
        Why it waits, whenever that changes; in the end the cards.

    Raises:
        Busy: Too few are free, and it is not to wait.
        Refused: The machine does not have as much, or as `roost.devices.lease.take`.
        RoostError: As `roost.devices.visible_cards.cards`.
    """
    try:
        taken = _lease_free_cards(request, visible_cards.cards())
    except CardsBusy:
        if not request.wait:
            raise
    else:
        yield taken
        return
    with closing(_QueuedLease(request)) as turn:
        said = ""
        while True:
            is_next = turn.is_next()
            try:
                if is_next:
                    taken = _lease_free_cards(request, visible_cards.cards())
                    break
                why = f"{_format_request(request)} asked for, and tasks of others come first"
            except CardsBusy as busy:
                why = busy.message
            if why != said:
                said = why
                yield LeaseWait(why)
            turn.wait()
    yield taken


class _QueuedLease:
    """The place of a lease among all that wait for cards on this machine, in whatever queue."""

    def __init__(self, request: LeaseRequest) -> None:
        self._neighbours = Neighbours()
        self._rules = Rules(allowed=tuple(card.id for card in visible_cards.cards()))
        self._want = Task(
            id="lease",
            name="a lease",
            package="",
            user=lease_files.user_name(os.geteuid()),
            state=PENDING,
            need=Need(
                cards=request.count,
                memory_mb=request.mb,
                whole=request.mb is None,
                time_limit=request.time_limit,
            ),
            submitted=time.time(),
        )

    def is_next(self) -> bool:
        """Whether what is free, if anything is, is not for others who wait."""
        self._neighbours.watch()
        cards, now = inventory.read_cards(), time.time()
        found = lease_files.all_leases(lease_files.leases_folder(), first=[card.id for card in cards])
        state = State(
            now=now,
            pending=[self._want],
            cards=without_all_holders(cards, found),
            usage=usage_ledger.decayed_usage(now, leases=found),
            rules=self._rules,
        )
        joined = self._neighbours.joined(state, found)
        whole = decide(joined)
        self._neighbours.answer(joined, whole)
        if self._neighbours.ours(whole).placements:
            return True
        return not whole.placements and word_of(whole.reasons[self._want.id]) != RESERVATION

    def wait(self) -> None:
        """Until there may be more."""
        fd = self._neighbours.fd
        select.select([fd] if fd is not None else [], [], [], _POLL_SECONDS)

    def close(self) -> None:
        """It waits no more."""
        self._neighbours.rest()


def run_command(
    command: Sequence[str],
    taken: LeasedCards,
    *,
    time_limit: float | None = None,
    at_limit: Callable[[], None] = lambda: None,
) -> int:
    """Runs a command on the cards, at this terminal; gives its exit code, above 128 if a signal ended it.

    The command has copies of the descriptors, so that it keeps the cards when we are killed. We stay, because
    some programs (sudo) close what they do not know.

    Args:
        command: And its arguments.
        taken: The cards.
        time_limit: Seconds after which it, and what it has started, is asked to end (SIGTERM); a minute later
            it is killed. None: as long as it takes.
        at_limit: Called when it is asked to.

    Raises:
        NotFound: There is no such program.
        OSError: It cannot be started.
    """
    child: subprocess.Popen[bytes] | None = None
    asked: list[int] = []

    def note(signum: int, frame: FrameType | None) -> None:
        asked.append(signum)
        if child is not None and signum in _FORWARDED_SIGNALS:  # the others the terminal sends to both of us
            child.send_signal(signum)

    # Handlers, as what is ignored would be ignored by the command too.
    before = {signum: signal.signal(signum, note) for signum in (*_FORWARDED_SIGNALS, *_TERMINAL_SIGNALS)}
    try:
        child = subprocess.Popen(command, env=_environment(taken), pass_fds=taken.leases.fds)
        for signum in set(asked) & set(_FORWARDED_SIGNALS):
            child.send_signal(signum)
        code = child.wait() if time_limit is None else _wait_with_limit(child, time_limit, at_limit)
    except FileNotFoundError as error:
        fix = "give its path, or one that PATH finds; a shell's own command: sh -c '...'"
        raise NotFound("there is no such program", received=error.filename, fix=fix) from None
    finally:
        for signum, action in before.items():
            signal.signal(signum, action)
        taken.leases.close()
        wakeup.send(state_folder.lab_folder())  # a task may wait for these cards
    return code if code >= 0 else 128 - code


def _wait_with_limit(child: subprocess.Popen[bytes], seconds: float, at_limit: Callable[[], None]) -> int:
    with suppress(subprocess.TimeoutExpired):
        return child.wait(seconds)
    at_limit()
    deadline = time.monotonic() + _GRACE_SECONDS
    below = {pid: process_identity.start_ticks(pid) for pid in descendants(child.pid)}
    for pid in (child.pid, *below):  # a shell passes nothing on
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
    try:
        child.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGSTOP)  # a shell would go on once what it waits for is killed
        kill_tree(child.pid, include_root=False)
        child.kill()
    _wait_or_kill(below, deadline)
    return child.wait()


def _wait_or_kill(given: Mapping[int, int | None], deadline: float) -> None:
    """Waits for processes, which hold the cards as long as they live, and kills those that are left then.

    Args:
        given: By pid, when they started.
        deadline: In monotonic seconds.
    """
    boot_id = process_identity.boot_id()
    while left := [pid for pid, ticks in given.items() if process_identity.is_alive(pid, ticks, boot_id)]:
        if time.monotonic() >= deadline:
            for pid in left:
                kill_tree(pid, include_root=True)
            return
        time.sleep(_TICK_SECONDS)


def _environment(taken: LeasedCards) -> dict[str, str]:
    cards = ",".join(card.id for card in taken.cards)
    return {**os.environ, CARDS_VARIABLE: cards, **taken.leases.environment()}


def _lease_free_cards(request: LeaseRequest, cards: Sequence[Card]) -> LeasedCards:
    reserve_mb = max((spare_mb(card, Rules()) for card in cards), default=0) if request.mb is not None else 0
    large = [card for card in cards if _is_large_enough(card, request.mb, reserve_mb)]
    if len(large) < request.count:
        raise _too_few_cards(cards, large, request)
    found = lease.cards_with_capacity(large, request.mb, reserve_mb=reserve_mb)
    free = [card for card in found if _is_unused(card, request.mb)]
    if len(free) < request.count:
        raise _cards_busy(large, free, request)
    chosen = visible_cards.most_free(free, request.count)
    return LeasedCards(chosen, lease.take(chosen, request.mb, LeaseHolder.own(), reserve_mb=reserve_mb))


def _is_large_enough(card: Card, mb: int | None, reserve_mb: int) -> bool:
    return mb is None or not card.total_mb or mb <= card.total_mb - reserve_mb


def _is_unused(card: Card, mb: int | None) -> bool:
    """Whether those who hold no lease leave it."""
    if mb is None:
        return not _foreign_users(card)
    return not card.total_mb or mb <= card.free_mb


def _foreign_users(card: Card) -> Sequence[CardProcess]:
    return without_holders(card, lease_files.live_leases(card.id)).users


def _too_few_cards(cards: Sequence[Card], large: Sequence[Card], request: LeaseRequest) -> Refused:
    here = f"there are {len(cards)} here"
    if len(large) < len(cards):
        here = f"{len(large) or 'none'} of {len(cards)} {'have' if len(large) > 1 else 'has'} as much"
    return Refused(
        f"{_format_request(request)} asked for, and {here}",
        fix="ask for less; `roost devices` shows what there is",
    )


def _cards_busy(cards: Sequence[Card], free: Sequence[Card], request: LeaseRequest) -> CardsBusy:
    found = {card.id: lease_files.live_leases(card.id) for card in cards if card not in free}
    numbers: dict[str, list[str]] = {}
    for card in cards:
        if card not in free:
            numbers.setdefault(_format_users(card, found[card.id]), []).append(f"GPU {card.number}")
    each = [f"{join_names(named)}: {whom}" for whom, named in numbers.items()]
    are = f"{len(free) or 'none'} of {len(cards)} {'are' if len(free) > 1 else 'is'} free"
    return CardsBusy(
        f"{_format_request(request)} asked for, and {are}: {'; '.join(each)}",
        held=found,
        fix="write --wait to wait for it, or ask for less",
    )


def _format_users(card: Card, holders: Sequence[lease_files.CardLease]) -> str:
    strangers = _foreign_users(card)
    free = f"{format_memory(card.free_mb)} are free"
    return (
        join_names([*map(str, holders), *(f"used without a lease by {user}" for user in strangers)]) or free
    )


def _format_request(request: LeaseRequest) -> str:
    cards = "1 GPU" if request.count == 1 else f"{request.count} GPUs"
    are = "is" if request.count == 1 else "are"
    return f"{cards} {are}" if request.mb is None else f"{format_memory(request.mb)} of {cards} are"
