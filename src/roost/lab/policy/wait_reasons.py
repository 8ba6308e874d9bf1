"""Why a task waits, in one line: a word for programs, a colon, and words for people."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from roost.base.text.byte_sizes import format_memory
from roost.base.text.timestamps import format_clock, format_dated_clock
from roost.devices.card import Card
from roost.lab.policy.card_capacity import CardOccupancy, FreeCapacity, Shape, capacity_mb, usable
from roost.lab.policy.policy_state import ReservedWindow, Rules
from roost.lab.policy.reason_codes import (
    BEGIN,
    CARDS,
    CLOSED,
    CORES,
    DEPENDENCY,
    DRAINED,
    HELD,
    MEMORY,
    NEVER,
    NOR_THIS,
    RESERVATION,
    RESERVED,
    SWEEP,
    reason_code,
)
from roost.lab.policy.reservation import Reservation
from roost.lab.queue.task import CRASHED, ENDED, FAILED, STOPPED, SUCCEEDED, Need, Task

T = TypeVar("T")

_NEVER_SUCCEEDS = {
    FAILED: "has failed",
    CRASHED: "has crashed",
    STOPPED: "was stopped before its end, by somebody or by its time limit",
}
_MOST_HOLDERS, _LONGEST_NAME = 3, 24


def impossible(need: Need, cards: Sequence[Card], rules: Rules) -> str | None:
    """Why a task can never start on this machine, with the numbers; None if it can.

    Cards that are drained, in trouble or in use count: they may come back.
    """
    if not need.cards:
        if rules.cores <= 0:
            return "needs no card, and this machine runs no tasks of the CPU"
        most = rules.cores
        return (
            None if (need.cores or 1) <= most else f"needs {need.cores} cores, and tasks may have {most} here"
        )
    found = usable(cards, rules)
    return too_large(Shape.of(need), sorted(capacity_mb(card, rules) for card in found), found)


def too_large(shape: Shape, capacities: Sequence[int], cards: Sequence[Card]) -> str | None:
    """The same of a shape, whatever is on the cards.

    Args:
        shape: What is needed.
        capacities: Of the cards, the smallest first.
        cards: The cards.
    """
    if not capacities:
        return f"needs {_cards(shape.cards)}, and tasks may have none here"
    if shape.cards > len(capacities):
        return f"needs {_cards(shape.cards)}, and tasks may have {len(capacities)} here"
    enough = len(capacities) - bisect_left(capacities, shape.mb)
    if enough >= shape.cards:
        return None
    most = max(cards, key=lambda card: (card.total_mb, -card.number))
    if not enough:
        return (
            f"needs {format_memory(shape.mb)} on one card; the largest, GPU {most.number}, gives "
            f"{format_memory(capacities[-1])} of its {format_memory(most.total_mb)}"
        )
    return f"needs {format_memory(shape.mb)} on each of {_cards(shape.cards)}; {enough} here {_has(enough)} as much"


def dependency(after: str, state: str | None, cause: str | None = None) -> str | None:
    """Why a task waits for another one; None if it has succeeded.

    Args:
        after: The other one.
        state: Its state; None: nobody knows it.
        cause: Why that one can never start, if so (`never_succeeds`).
    """
    if state == SUCCEEDED:
        return None
    if cause is not None:
        return f"{DEPENDENCY}: {cause}, so {after} never starts{NOR_THIS}"
    if (why := never_succeeds(after, state)) is not None:
        return f"{DEPENDENCY}: {why}{NEVER}"
    return f"{DEPENDENCY}: waits until {after} has succeeded ({state})"


def dependency_end(other: str, state: str | None, cause: str | None = None) -> str | None:
    """Why a task waits for the end of another one, whatever that is; None if it has ended. Arguments as of
    `dependency`; one that nobody knows any more has ended."""
    if state is None or state in ENDED:
        return None
    if cause is not None:
        return f"{DEPENDENCY}: {cause}, so {other} never starts; this one does once it is stopped"
    return f"{DEPENDENCY}: waits until {other} has ended ({state})"


def never_succeeds(id: str, state: str | None) -> str | None:
    """Why a task that has not succeeded never will; None if it may."""
    if state is None:
        return f"{id} is not known any more"
    return f"{id} {_NEVER_SUCCEEDS[state]}" if state in _NEVER_SUCCEEDS else None


def held(task: Task) -> str:
    """Somebody holds it back."""
    return f"{HELD}: until somebody releases it (roost release {task.id})"


def begin(task: Task, now: float) -> str:
    """Its time has not come; after an attempt that is the end of a pause, whatever was asked before."""
    moment = task.begin or 0.0
    if task.attempt:
        why = f"attempt {task.attempt} ended right after its start"
        return f"{BEGIN}: not before {format_clock(moment, seconds=True)}, because {why}"
    return f"{BEGIN}: not before {format_dated_clock(moment, now=now)}"


def begin_and(begin: str, dependency: str) -> str:
    """Its time has not come, nor has what it waits for."""
    return f"{begin}, and {dependency.partition(': ')[2]}"


def sweep(most: int) -> str:
    """As many of its sweep run as may at once."""
    return f"{SWEEP}: {most} of its sweep {_run(most)} already, as many as may at once"


def cores(asked: int, left: int, most: int, *, holders: Iterable[tuple[int, str]]) -> str:
    """There are not enough cores.

    Args:
        asked: How many are needed.
        left: How many are left.
        most: How many tasks may have together.
        holders: How many each task has that has some, and its name.
    """
    held = sorted(holders, key=lambda holder: (-holder[0], holder[1]))
    if asked == 1 and len(held) == most:
        tasks = "task" if most == 1 else "tasks"
        return f"{CORES}: {most} {tasks} of the CPU {_run(most)} already, as many as may at once"
    # By name only those of several: the others come and go, and each time all that wait would be told anew.
    told = [f"{_shortened(name)} has {count}" for count, name in held if count > 1]
    if ones := len(held) - len(told):
        told.append("one task has one" if ones == 1 else f"{ones} tasks have one each")
    free = f"{max(0, left) or 'none'} of {most} {_is(left)} free"
    return f"{CORES}: needs {_cores(asked)}; {free}{_format_first(told, str)}"


def cores_reserved(head: Task, count: int, start: float, now: float) -> str:
    """It would fit, on cores that are kept for the head of those that wait for some."""
    when = "" if math.isinf(start) else f", which starts {format_approximate_clock(start, now)}"
    return (
        f"{CORES}: {_cores(count)} are kept for {head.name} ({head.id}){when}; this one may not have "
        "ended by then"
    )


def behind_reservation(kept: Reservation, now: float) -> str:
    """It would fit, on cards that are kept for the head of the queue."""
    if kept.making_room and kept.start == now:
        when = ", which starts once opportunistic tasks have made room"
    else:
        when = "" if kept.start is None else f", which starts {format_approximate_clock(kept.start, now)}"
    return (
        f"{RESERVATION}: {_names(kept)} {'is' if len(kept.places) == 1 else 'are'} kept for {kept.task.name} "
        f"({kept.task.id}){when}; this one may not have ended by then"
    )


def closed(name: str) -> str:
    """It may not have this card."""
    return f"{CLOSED}: it may not have {name}"


def reserved(window: ReservedWindow, name: str) -> str:
    """The card is kept free at this time, for somebody or from all."""
    whose = f"{window.user}'s" if window.user else "drained"
    return f"{RESERVED}: {name} is {whose} from {format_clock(window.begin)} to {format_clock(window.end)}"


def too_little_capacity(
    shape: Shape, room: FreeCapacity, *, when: float | None, now: float, kept: Reservation | None = None
) -> str:
    """There is not enough room.

    Args:
        shape: What is needed.
        room: What is left.
        when: When something is expected to become free next.
        now: Unix seconds.
        kept: Given for the head of the queue.
    """
    closed = room.could_if_open(shape)
    fit = len(room.candidates(shape))
    if fit + len(closed) >= shape.cards:
        return _obstacle(closed, room)
    if kept is not None:
        next_free = _start_of_reservation(kept, now)
    else:
        next_free = "" if when is None else f", next free {format_approximate_clock(when, now)}"
    beyond = f"; {_obstacle(closed, room).partition(': ')[2]}" if closed else ""
    if shape.whole:
        size = f" of {format_memory(shape.mb)}" if shape.mb else ""
        what = f"{CARDS}: needs {_cards(shape.cards, 'whole ')}{size}; {fit or 'none'} {_is(fit)} free"
        return f"{what}{_holders(shape, room)}{next_free}{beyond}"
    left, index = room.shared[-1] if room.shared else (0, -1)
    most = f"the most free is {format_memory(left)} ({room.places[index].name})" if left else "none is free"
    if shape.cards == 1:
        return f"{MEMORY}: needs {format_memory(shape.mb)} on one card; {most}{next_free}{beyond}"
    has = f"{fit or 'none'} {_has(fit)} as much free"
    return f"{MEMORY}: needs {format_memory(shape.mb)} on each of {_cards(shape.cards)}; {has}{next_free}{beyond}"


def _start_of_reservation(kept: Reservation, now: float) -> str:
    """When the head of the queue does, and who makes room for it."""
    starts = "" if kept.start is None else f", starts {format_approximate_clock(kept.start, now)}"
    count = len(kept.making_room)
    if not count:
        return starts
    who = f"{count} opportunistic tasks"
    if count == 1:
        who = f"{_shortened(kept.making_room[0])}, which is opportunistic,"
    if kept.start == now:
        return f", starts once {who} {_has(count)} saved and made room"
    makes = f"{who} {'makes' if count == 1 else 'make'} room"
    return f"; {makes} once the rest is free" if kept.start is None else f"{starts}: {makes} by then"


def _holders(shape: Shape, room: FreeCapacity) -> str:
    """Who has the other cards."""
    free = {index for _, index in room.candidates(shape)}
    taken = [place for place in room.places if place.count and place.index not in free]
    return _format_first(taken, _format_holder)


def _format_holder(place: CardOccupancy) -> str:
    beyond = f", {reason_code(place.closed)}" if place.closed else ""
    return f"{place.name}: {_shortened(place.holder)}{beyond}"


def _obstacle(closed: Sequence[CardOccupancy], room: FreeCapacity) -> str:
    """What closes cards on which a task would fit: those that somebody can open again, else the first."""
    drained = [place for place in closed if reason_code(place.closed) == DRAINED]
    if not drained:
        return closed[0].obstacle
    if len(drained) == len(room.places) > 1:
        return f"{DRAINED}: all {len(drained)} cards are drained (roost drain all --off)"
    drained.sort(key=lambda place: place.index)
    numbers = ",".join(str(place.card.number) for place in drained)
    names = _joined([place.name for place in drained])
    return f"{DRAINED}: {names} {_is(len(drained))} drained (roost drain {numbers} --off)"


def _format_first(holders: Sequence[T], said: Callable[[T], str]) -> str:
    """Of a thousand only the first few are put into words."""
    told = [said(one) for one in holders[:_MOST_HOLDERS]]
    more = [f"{len(holders) - len(told)} more"] if len(holders) > len(told) else []
    return f" ({', '.join([*told, *more])})" if told else ""


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def format_approximate_clock(moment: float, now: float) -> str:
    """``about 14:40``. A moment, because what is told may be read much later; to five minutes, so that it
    stays the same for a while, and to one of what comes within ten."""
    step = 300 if moment - now > 600 else 60
    return f"about {format_dated_clock(math.ceil(moment / step) * step, now=now)}"


def _names(kept: Reservation) -> str:
    return _joined([place.name for place in sorted(kept.places, key=lambda place: place.index)])


def _joined(names: Sequence[str]) -> str:
    if len(names) > 4:
        return f"{', '.join(names[:3])} and {len(names) - 3} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _cards(count: int, kind: str = "") -> str:
    return f"one {kind}card" if count == 1 else f"{count} {kind}cards"


def _cores(count: int) -> str:
    return "one core" if count == 1 else f"{count} cores"


def _run(count: int) -> str:
    return "run" if count > 1 else "runs"


def _is(count: int) -> str:
    return "are" if count > 1 else "is"


def _has(count: int) -> str:
    return "have" if count > 1 else "has"
