"""Why a task waits, in one line: a word for programs, a colon, and words for people."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

from roost.base.moment import clock
from roost.base.size import memory
from roost.devices.card import Card
from roost.lab.policy.keep import Kept
from roost.lab.policy.room import Room, Shape, capacity_mb, usable
from roost.lab.policy.state import Rules, Window
from roost.lab.task import CRASHED, ENDED, FAILED, STOPPED, SUCCEEDED, Need, Task

_NEVER_SUCCEEDS = {FAILED: "has failed", CRASHED: "has crashed", STOPPED: "was stopped"}


def impossible(need: Need, cards: Sequence[Card], rules: Rules) -> str | None:
    """Why a task can never start on this machine, with the numbers; None if it can.

    Cards that are drained, in trouble or in use count: they may come back.
    """
    if not need.cards:
        return None if rules.cores > 0 else "needs no card, and this machine runs no tasks of the CPU"
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
            f"needs {memory(shape.mb)} on one card; the largest, GPU {most.number}, gives "
            f"{memory(capacities[-1])} of its {memory(most.total_mb)}"
        )
    return f"needs {memory(shape.mb)} on each of {_cards(shape.cards)}; {enough} here {_has(enough)} as much"


def dependency(after: str, state: str | None) -> str | None:
    """Why a task waits for another one; None if it has succeeded."""
    if state == SUCCEEDED:
        return None
    if state is None:
        return f"dependency: waits for {after}, which is not known any more, so it never starts"
    if state in ENDED:
        return f"dependency: {after} {_NEVER_SUCCEEDS[state]}, so it never starts"
    return f"dependency: waits until {after} has succeeded ({state})"


def held(task: Task) -> str:
    return f"held: until somebody releases it (roost release {task.id})"


def begin(moment: float, now: float) -> str:
    return f"begin: not before {clock(moment)}, {about(moment - now)}"


def sweep(most: int) -> str:
    return f"sweep: {most} of its sweep {_run(most)} already, as many as may at once"


def cores(most: int) -> str:
    tasks = "task" if most == 1 else "tasks"
    return f"cores: {most} {tasks} of the CPU {_run(most)} already, as many as may at once"


def behind(kept: Kept, now: float) -> str:
    """It would fit, on cards that are kept for the head of the queue."""
    when = "" if kept.start is None else f", which starts {about(kept.start - now)}"
    return (
        f"reservation: {_names(kept)} {'is' if len(kept.places) == 1 else 'are'} kept for {kept.task.name} "
        f"({kept.task.id}){when}; this one may not have ended by then"
    )


def reserved(window: Window, name: str) -> str:
    return f"reserved: {name} is {window.user}'s from {clock(window.begin)} to {clock(window.end)}"


def short(shape: Shape, room: Room, *, when: float | None, now: float, kept: Kept | None = None) -> str:
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
        return closed[0].obstacle
    if kept is not None:
        next_free = "" if kept.start is None else f", starts {about(kept.start - now)}"
        if kept.evictions:
            next_free = ", starts once opportunistic tasks have saved and made room"
    else:
        next_free = "" if when is None else f", next free {about(when - now)}"
    beyond = f"; {closed[0].obstacle.partition(': ')[2]}" if closed else ""
    if shape.whole:
        size = f" of {memory(shape.mb)}" if shape.mb else ""
        what = f"cards: needs {_cards(shape.cards, 'whole ')}{size}; {fit or 'none'} {_is(fit)} free"
        return f"{what}{next_free}{beyond}"
    left, index = room.shared[-1] if room.shared else (0, -1)
    most = f"the most free is {memory(left)} ({room.places[index].name})" if left else "none is free"
    if shape.cards == 1:
        return f"memory: needs {memory(shape.mb)} on one card; {most}{next_free}{beyond}"
    has = f"{fit or 'none'} {_has(fit)} as much free"
    return f"memory: needs {memory(shape.mb)} on each of {_cards(shape.cards)}; {has}{next_free}{beyond}"


def about(seconds: float) -> str:
    """``in about 40 min``: coarse, so that what is told stays the same for a while."""
    for unit, size, step, below in (("min", 60, 1, 10), ("min", 60, 5, 60), ("h", 3600, 1, 48)):
        number = max(step, math.ceil(seconds / size / step) * step)
        if number < below:
            return f"in about {number} {unit}"
    return f"in about {math.ceil(seconds / 86400)} days"


def _names(kept: Kept) -> str:
    names = [place.name for place in sorted(kept.places, key=lambda place: place.index)]
    if len(names) > 4:
        return f"{', '.join(names[:3])} and {len(names) - 3} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _cards(count: int, kind: str = "") -> str:
    return f"one {kind}card" if count == 1 else f"{count} {kind}cards"


def _run(count: int) -> str:
    return "run" if count > 1 else "runs"


def _is(count: int) -> str:
    return "are" if count > 1 else "is"


def _has(count: int) -> str:
    return "have" if count > 1 else "has"
