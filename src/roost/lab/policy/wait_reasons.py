"""The wait reasons of tasks, one line each: a code for programs, a colon, and a sentence for people."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from roost.base.text.byte_sizes import format_memory
from roost.base.text.timestamps import format_clock, format_dated_clock
from roost.devices.card import Card
from roost.devices.resource_request import ResourceRequest, format_card_memory
from roost.lab.policy.card_capacity import CardOccupancy, FreeCapacity, Shape, capacity_mb, usable
from roost.lab.policy.host_share import HostShare
from roost.lab.policy.policy_state import ReservedWindow, Rules
from roost.lab.policy.reason_codes import (
    BEGIN,
    CARDS,
    CLOSED,
    CORES,
    DEPENDENCY,
    DRAINED,
    HELD,
    HOST_MEMORY,
    MEMORY,
    RESERVATION,
    RESERVED,
    SWEEP,
    reason_code,
)
from roost.lab.policy.reservation import Reservation
from roost.lab.queue.task import CRASHED, ENDED, FAILED, STOPPED, SUCCEEDED, Task

T = TypeVar("T")

_NEVER_SUCCEEDS = {
    FAILED: "has failed",
    CRASHED: "has crashed",
    STOPPED: "was stopped before its end, by a user or by its time limit",
}
_MOST_HOLDERS, _LONGEST_NAME = 3, 24


def impossible(need: ResourceRequest, cards: Sequence[Card], rules: Rules) -> str | None:
    """Returns why a task can never start on this machine, with the numbers; None if it can.

    Cards that are drained, in trouble or in use count: they may come back.
    """
    if not need.cards and rules.cores <= 0:
        return "needs no card, and this machine runs no tasks without a card"
    if (why := host_too_small(HostShare.from_need(need), rules)) is not None or not need.cards:
        return why
    found = usable(cards, rules)
    if need.card is not None and sum(map(need.card.fits, found)) < need.cards:
        kinds = sorted({f"{card.name} with {format_card_memory(card.total_mb)}" for card in found})
        names = ", ".join(kinds) or "none"
        which = "one" if need.cards == 1 else f"{need.cards} of them"
        return f"requires {need.card}, and this machine does not have {which} ({names})"
    return too_large(Shape.from_need(need), sorted(capacity_mb(card, rules) for card in found), found)


def host_too_small(share: HostShare, rules: Rules) -> str | None:
    """Returns why the host is too small for a share of it, whatever else runs; None if it is not."""
    if share.cores > rules.cores:
        return f"needs {_cores(share.cores)}, and tasks may have {rules.cores} here"
    if rules.host_memory_mb is not None and share.mb > rules.host_memory_mb:
        most = format_memory(rules.host_memory_mb)
        return f"needs {format_memory(share.mb)} of host memory, and tasks may have {most} here"
    return None


def too_large(shape: Shape, capacities: Sequence[int], cards: Sequence[Card]) -> str | None:
    """Returns the same for a shape, of cards that are empty.

    Args:
        shape: The requested cards and memory.
        capacities: Memory that tasks may have of each card, the smallest first.
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
    each = f"needs {format_memory(shape.mb)} on each of {_cards(shape.cards)}"
    return f"{each}; {enough} here {_has(enough)} as much"


def dependency(after: str, state: str | None, cause: str | None = None) -> str | None:
    """Returns why a task waits for the success of another one; None if that has succeeded.

    Args:
        after: The other one.
        state: Its state; None: it is not in the queue.
        cause: Why the other one can never start, if so (`never_succeeds`).
    """
    if state == SUCCEEDED:
        return None
    if cause is not None:
        return f"{DEPENDENCY}: {cause}, so {after} never starts, nor does this one"
    if (why := never_succeeds(after, state)) is not None:
        return f"{DEPENDENCY}: {why}, so it never starts"
    return f"{DEPENDENCY}: waits until {after} has succeeded ({state})"


def dependency_end(other: str, state: str | None, cause: str | None = None) -> str | None:
    """Returns why a task waits for the end of another one, in any state; None if that has ended. Arguments as
    in `dependency`; a task that is not in the queue has ended."""
    if state is None or state in ENDED:
        return None
    if cause is not None:
        return f"{DEPENDENCY}: {cause}, so {other} never starts; this one does once it is stopped"
    return f"{DEPENDENCY}: waits until {other} has ended ({state})"


def never_succeeds(id: str, state: str | None) -> str | None:
    """Returns why a task can no longer succeed, by its own state; None if it can, or has."""
    if state is None:
        return f"{id} is not known any more"
    return f"{id} {_NEVER_SUCCEEDS[state]}" if state in _NEVER_SUCCEEDS else None


def held(task: Task) -> str:
    """The user holds it."""
    return f"{HELD}: until it is released (roost release {task.id})"


def begin(task: Task, now: float) -> str:
    """Its begin time is not reached; after an attempt that is the end of a pause."""
    moment = task.begin or 0.0
    if task.attempt:
        why = f"attempt {task.attempt} ended right after its start"
        return f"{BEGIN}: not before {format_clock(moment, seconds=True)}, because {why}"
    return f"{BEGIN}: not before {format_dated_clock(moment, now=now)}"


def begin_and(begin: str, dependency: str) -> str:
    """Neither its begin time is reached nor its dependency met."""
    return f"{begin}, and {dependency.partition(': ')[2]}"


def sweep(most: int) -> str:
    """The limit of its sweep is reached."""
    return f"{SWEEP}: {most} of its sweep {_run(most)} already, as many as may at once"


def cores(needed: int, left: int, most: int, *, holders: Iterable[tuple[int, Task]]) -> str:
    """There are not enough cores.

    Args:
        needed: How many the task needs.
        left: How many are free.
        most: How many tasks may have together.
        holders: The number of cores of each task that has some.
    """
    held = _largest_first(holders)
    if needed == 1 and len(held) == most and not any(task.need.cards for _, task in held):
        tasks = "task" if most == 1 else "tasks"
        return f"{CORES}: {most} {tasks} without a card {_run(most)} already, as many as may at once"
    # Only tasks of several cores by name: the others change often, and each time all reasons would be
    # rewritten.
    shown = [f"{_shortened(task.name)} has {count}" for count, task in held if count > 1]
    if ones := len(held) - len(shown):
        shown.append("one task has one" if ones == 1 else f"{ones} tasks have one each")
    free = f"{max(0, left) or 'none'} of {most} {_is(left)} free"
    return f"{CORES}: needs {_cores(needed)}; {free}{_format_first(shown, str)}"


def host_memory(needed_mb: int, left_mb: int, most_mb: int, *, holders: Iterable[tuple[int, Task]]) -> str:
    """There is not enough memory of the host; arguments as for `cores`, in MB."""
    free = f"{format_memory(left_mb) if left_mb > 0 else 'none'} of {format_memory(most_mb)} is not given out"
    shown = [f"{_shortened(task.name)} has {format_memory(mb)}" for mb, task in _largest_first(holders)]
    needed = f"needs {format_memory(needed_mb)} of host memory"
    return f"{HOST_MEMORY}: {needed}; {free}{_format_first(shown, str)}"


def _largest_first(holders: Iterable[tuple[int, Task]]) -> list[tuple[int, Task]]:
    return sorted(holders, key=lambda holder: (-holder[0], holder[1].name))


def host_reserved(first_blocked: Task, share: HostShare, start: float, now: float) -> str:
    """It would fit, on cores or memory of the host that are reserved for the first task that lacks them."""
    when = "" if math.isinf(start) else f", which starts {format_approximate_clock(start, now)}"
    code, parts = HOST_MEMORY, [f"{format_memory(share.mb)} of host memory"] if share.mb else []
    if share.cores:
        code, parts = CORES, [_cores(share.cores), *parts]
    verb = "is" if code == HOST_MEMORY else "are"
    return (
        f"{code}: {' and '.join(parts)} {verb} kept for {first_blocked.name} ({first_blocked.id}){when}; "
        "this one may not have ended by then"
    )


def behind_reservation(reservation: Reservation, now: float) -> str:
    """It would fit, on cards that are reserved for the first blocked task."""
    if reservation.preempted and reservation.start == now:
        when = ", which starts once opportunistic tasks have made room"
    else:
        start = reservation.start
        when = "" if start is None else f", which starts {format_approximate_clock(start, now)}"
    names, task = _names(reservation), reservation.task
    return (
        f"{RESERVATION}: {names} {_is(len(reservation.occupancies))} kept for {task.name} ({task.id}){when}; "
        "this one may not have ended by then"
    )


def closed(name: str) -> str:
    """The task of another queue may not have this card."""
    return f"{CLOSED}: it may not have {name}"


def other_card(need: ResourceRequest, name: str) -> str:
    """The card is not one that the task requires."""
    return f"{CLOSED}: it requires {need.card}, and {name} is another one"


def reserved(window: ReservedWindow, name: str) -> str:
    """The card is reserved at this time, for one user or for none."""
    whose = f"{window.user}'s" if window.user else "drained"
    return f"{RESERVED}: {name} is {whose} from {format_clock(window.begin)} to {format_clock(window.end)}"


def too_little_capacity(
    shape: Shape,
    free_capacity: FreeCapacity,
    *,
    when: float | None,
    now: float,
    reservation: Reservation | None = None,
) -> str:
    """There is not enough free capacity.

    Args:
        shape: The requested cards and memory.
        free_capacity: The cards.
        when: When the next card is expected to become free.
        now: Unix seconds.
        reservation: Given for the first blocked task.
    """
    closed = free_capacity.closed_candidates(shape)
    fit = len(free_capacity.candidates(shape))
    if fit + len(closed) >= shape.cards:
        return _obstacle(closed, free_capacity)
    if reservation is not None:
        next_free = _start_of_reservation(reservation, now)
    else:
        next_free = "" if when is None else f", next free {format_approximate_clock(when, now)}"
    beyond = f"; {_obstacle(closed, free_capacity).partition(': ')[2]}" if closed else ""
    if shape.whole:
        size = f" of {format_memory(shape.mb)}" if shape.mb else ""
        what = f"{CARDS}: needs {_cards(shape.cards, 'whole ')}{size}; {fit or 'none'} {_is(fit)} free"
        return f"{what}{_holders(shape, free_capacity)}{next_free}{beyond}"
    left, index = free_capacity.shared[-1] if free_capacity.shared else (0, -1)
    most = (
        f"the most free is {format_memory(left)} ({free_capacity.occupancies[index].name})"
        if left
        else "none is free"
    )
    if shape.cards == 1:
        return f"{MEMORY}: needs {format_memory(shape.mb)} on one card; {most}{next_free}{beyond}"
    has = f"{fit or 'none'} {_has(fit)} as much free"
    each = f"needs {format_memory(shape.mb)} on each of {_cards(shape.cards)}"
    return f"{MEMORY}: {each}; {has}{next_free}{beyond}"


def _start_of_reservation(reservation: Reservation, now: float) -> str:
    """Describes when the first blocked task starts, and which tasks are preempted for it."""
    starts = (
        "" if reservation.start is None else f", starts {format_approximate_clock(reservation.start, now)}"
    )
    count = len(reservation.preempted)
    if not count:
        return starts
    who = f"{count} opportunistic tasks"
    if count == 1:
        who = f"{_shortened(reservation.preempted[0])}, which is opportunistic,"
    if reservation.start == now:
        return f", starts once {who} {_has(count)} saved and made room"
    makes = f"{who} {'makes' if count == 1 else 'make'} room"
    return f"; {makes} once the rest is free" if reservation.start is None else f"{starts}: {makes} by then"


def _holders(shape: Shape, free_capacity: FreeCapacity) -> str:
    """Lists the holders of the other cards."""
    free = {index for _, index in free_capacity.candidates(shape)}
    taken = [one for one in free_capacity.occupancies if one.num_leases and one.index not in free]
    return _format_first(taken, _format_holder)


def _format_holder(occupancy: CardOccupancy) -> str:
    beyond = f", {reason_code(occupancy.closed_reason)}" if occupancy.closed_reason else ""
    return f"{occupancy.name}: {_shortened(occupancy.holder_name)}{beyond}"


def _obstacle(closed: Sequence[CardOccupancy], free_capacity: FreeCapacity) -> str:
    """Returns what closes cards on which a task would fit: draining, which a user can undo, else the first
    reason."""
    drained = [occupancy for occupancy in closed if reason_code(occupancy.closed_reason) == DRAINED]
    if not drained:
        return closed[0].obstacle
    if len(drained) == len(free_capacity.occupancies) > 1:
        return f"{DRAINED}: all {len(drained)} cards are drained (roost drain all --off)"
    drained.sort(key=lambda occupancy: occupancy.index)
    numbers = ",".join(str(occupancy.card.number) for occupancy in drained)
    names = _joined([occupancy.name for occupancy in drained])
    return f"{DRAINED}: {names} {_is(len(drained))} drained (roost drain {numbers} --off)"


def _format_first(holders: Sequence[T], describe: Callable[[T], str]) -> str:
    """Formats the first few of many holders in parentheses, with the number of the rest."""
    shown = [describe(one) for one in holders[:_MOST_HOLDERS]]
    more = [f"{len(holders) - len(shown)} more"] if len(holders) > len(shown) else []
    return f" ({', '.join([*shown, *more])})" if shown else ""


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def format_approximate_clock(moment: float, now: float) -> str:
    """Formats a time as ``about 14:40``: not a duration, because the reason may be read much later. Rounded
    to five minutes, so that the reason stays the same for a while; to one minute if it comes within ten."""
    step = 300 if moment - now > 600 else 60
    return f"about {format_dated_clock(math.ceil(moment / step) * step, now=now)}"


def _names(reservation: Reservation) -> str:
    return _joined([one.name for one in sorted(reservation.occupancies, key=lambda one: one.index)])


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
