"""What is left of the cards; it shrinks while tasks are placed."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from roost.base.text.byte_sizes import format_memory
from roost.devices.card import Card
from roost.lab.policy.policy_state import PolicyState, Rules
from roost.lab.policy.reason_codes import DRAINED, FOREIGN, TROUBLE
from roost.lab.queue.task import Need, Task

_UNKNOWN_MB = 1 << 40
"""Stands for the memory of a card whose driver does not tell it: it is given out whole, and nobody counts."""


class Shape(NamedTuple):
    """What a task takes of the cards; equal shapes get equal answers."""

    cards: int
    mb: int
    """0 where it is not known."""
    whole: bool

    @classmethod
    def of(cls, need: Need, learned_mb: int | None = None) -> Shape:
        """Of a task with this need; of one whose memory earlier runs have taught, with that."""
        mb = (need.memory_mb if learned_mb is None else learned_mb) or 0
        is_whole = need.whole or not mb
        return cls(need.cards, max(mb, need.least_mb or 0), is_whole)


class CardOccupancy:
    """A card with what is on it."""

    __slots__ = (
        "beyond", "card", "closed", "count", "guests", "index", "is_plain", "leases", "left", "live", "most",
        "most_tasks", "opportunistic", "others", "single",
    )  # fmt: skip

    def __init__(self, card: Card, index: int, rules: Rules) -> None:
        self.card, self.index = card, index
        self.single = not card.total_mb
        self.most = capacity_mb(card, rules)
        self.most_tasks = 1 if card.exclusive else rules.most_per_card
        self.left = self.most
        self.count = 0
        self.live: list[Task] = []
        self.opportunistic = 0
        """How many of these are."""
        self.leases: list[tuple[float, int | None]] = []
        """Of others: when they end, and their memory; None: the whole."""
        self.guests: list[str] = []
        """Whose these are."""
        self.others = False
        """Whether somebody without a lease is on it."""
        self.beyond = 0
        """What they use, and what tasks use beyond their reservation."""
        self.closed = ""
        """Why nothing begins on it."""
        self.is_plain = False
        """Whether it is open, and nobody without a lease is on it: what is left follows from who is there."""

    @property
    def name(self) -> str:
        """As people know the card."""
        return f"GPU {self.card.number}"

    @property
    def holder(self) -> str:
        """Who has it, or the first part of it: a task by name, others as users."""
        return self.live[0].name if self.live else next(iter(self.guests), "somebody")

    @property
    def obstacle(self) -> str:
        """Why a task does not begin on it that would fit if it were ours alone."""
        return self.closed or _foreign_reason(self)

    @property
    def takes_more(self) -> bool:
        """Whether one more task may share it, as far as their number goes."""
        return not self.single and (self.most_tasks is None or self.count < self.most_tasks)

    def seat(self, task: Task) -> None:
        """It is here; what it holds is counted by `hold`."""
        self.live.append(task)
        self.opportunistic += task.need.opportunistic

    def leave(self, task: Task) -> None:
        self.live.remove(task)
        self.opportunistic -= task.need.opportunistic

    def hold(self, mb: int | None) -> None:
        """Somebody has so much of it; None: the whole."""
        self.count += 1
        self.left = 0 if mb is None or self.single else self.left - mb

    def see_processes(self) -> None:
        """Takes off what processes without a lease use, and what tasks use beyond their reservation."""
        card = self.card
        if not card.users and card.free_mb == card.total_mb:
            return
        used = card.total_mb - card.free_mb
        named = sum(user.memory_mb or 0 for user in card.users)
        if self.left > 0:
            self.beyond = max(named, used - (self.most - self.left), 0)
            self.left -= self.beyond
        # What the driver itself keeps is less: a process that it does not show, or one that has just ended.
        unexplained = not self.count and used > max(1024, card.total_mb // 16)
        self.others = bool(card.users) or unexplained

    def fits_beside(self, shape: Shape, staying: Sequence[int | None]) -> bool:
        """Whether a task fits beside what some of those hold who are here now."""
        if shape.whole or self.single:
            return not staying and not self.others and self.most >= shape.mb
        if None in staying or (self.most_tasks is not None and len(staying) >= self.most_tasks):
            return False
        beyond = self.beyond if staying or self.others else 0
        return self.most - sum(filter(None, staying)) - beyond >= shape.mb


class FreeCapacity:
    """The cards of a machine, by what is left on them.

    Shared memory goes where the least is left that suffices, so that large pieces stay; whole cards are the
    smallest that suffice, several of them of one model and close together.
    """

    def __init__(self, state: PolicyState) -> None:
        self.places = [
            CardOccupancy(card, index, state.rules)
            for index, card in enumerate(usable(state.cards, state.rules))
        ]
        self.by_id = {place.card.id: place for place in self.places}
        self.largest = sorted((place.most, place.index) for place in self.places)
        self._count(state)
        self.shared: list[tuple[int, int]] = []
        self.empty: list[tuple[int, int]] = []
        self.closed_shared: list[tuple[int, int]] = []
        self.closed_empty: list[tuple[int, int]] = []
        self._someday: dict[bool, list[int]] = {True: [], False: []}
        self._taken: list[CardOccupancy] = []
        self.changes: list[int] = []
        """The indices of places, each time that somebody has come or gone."""
        drained = frozenset(state.rules.drained)
        for place in self.places:
            place.closed = _closing_reason(place, drained, state.rules)
            self._add(place)
        for found in (
            self.shared,
            self.empty,
            self.closed_shared,
            self.closed_empty,
            *self._someday.values(),
        ):
            found.sort()  # type: ignore[attr-defined]

    def _count(self, state: PolicyState) -> None:
        for task in state.live:
            for card in task.cards:
                if (place := self.by_id.get(card)) is not None:
                    place.seat(task)
                    place.hold(task.reserved_mb)
        for card, leases in state.held.items():
            if (place := self.by_id.get(card)) is not None:
                for lease in leases:
                    place.leases.append((lease.end, lease.mb))
                    place.guests.append(lease.user)
                    place.hold(lease.mb)
        if state.rules.foreign != "ignore":
            for place in self.places:
                place.see_processes()

    def _add(self, place: CardOccupancy) -> None:
        place.is_plain = not (place.closed or place.others or place.beyond)
        if not place.closed:
            self._someday[False].append(place.most - (place.beyond if place.others else 0))
            if not place.others:
                self._someday[True].append(place.most)
            if place.takes_more and place.left > 0:
                self.shared.append((place.left, place.index))
            if not place.count and not place.others:
                self.empty.append((place.most, place.index))
        if place.closed or place.others:
            left = place.left + place.beyond
            if place.takes_more and left > 0:
                self.closed_shared.append((left, place.index))
            if not place.count:
                self.closed_empty.append((place.most, place.index))

    def someday(self, shape: Shape) -> int:
        """On how many open cards it would fit if nobody held a lease."""
        found = self._someday[shape.whole]
        return len(found) - bisect_left(found, shape.mb)

    def candidates(self, shape: Shape) -> Sequence[tuple[int, int]]:
        """Where it would fit, the closest first: pairs of memory and index."""
        found = self.empty if shape.whole else self.shared
        return found[bisect_left(found, (shape.mb, -1)) :]

    def has(self, shape: Shape, barred: frozenset[int]) -> bool:
        """Whether `find` would find some."""
        found = self.empty if shape.whole else self.shared
        at = bisect_left(found, (shape.mb, -1))
        if not barred or len(found) - at < shape.cards:
            return len(found) - at >= shape.cards
        return sum([found[n][1] not in barred for n in range(at, len(found))]) >= shape.cards

    def could_if_open(self, shape: Shape) -> list[CardOccupancy]:
        """Cards on which it would fit but for what closes them, or for who uses them without a lease."""
        found = self.closed_empty if shape.whole else self.closed_shared
        fit = {index for _, index in self.candidates(shape)}
        places = [self.places[index] for _, index in found[bisect_left(found, (shape.mb, -1)) :]]
        return [place for place in places if place.index not in fit]

    def find(self, shape: Shape, barred: frozenset[int]) -> list[CardOccupancy] | None:
        """The cards for it, or None where there are not enough.

        Args:
            shape: What it takes.
            barred: Indices of cards that it must not have.
        """
        if shape.cards == 1:
            sorted_ = self.empty if shape.whole else self.shared
            for at in range(bisect_left(sorted_, (shape.mb, -1)), len(sorted_)):
                index = sorted_[at][1]
                if index not in barred:
                    return [self.places[index]]
            return None
        found = self.candidates(shape)
        if barred:
            found = [one for one in found if one[1] not in barred]
        if len(found) < shape.cards:
            return None
        return [self.places[index] for index in self._together(found, shape)]

    def _together(self, found: Iterable[tuple[int, int]], shape: Shape) -> list[int]:
        indices = [index for _, index in found]
        models: dict[str, list[int]] = {}
        for index in indices:
            models.setdefault(self.places[index].card.name, []).append(index)
        indices = next((of for of in models.values() if len(of) >= shape.cards), indices)
        if not shape.whole:
            return indices[: shape.cards]
        indices.sort()
        last = shape.cards - 1
        starts = range(len(indices) - last)
        start = min(starts, key=lambda at: indices[at + last] - indices[at])
        return indices[start : start + shape.cards]

    def take(self, places: Iterable[CardOccupancy], shape: Shape, task: Task) -> None:
        """Gives a task these cards."""
        for place in places:
            self._unlist(place)
            place.seat(task)
            place.hold(None if shape.whole else shape.mb)
            self._list(place)
            self._taken.append(place)
            self.changes.append(place.index)

    def follow(self, gone: Iterable[Task], come: Iterable[Task]) -> bool:
        """Goes on from the state of which it was made, whatever was taken since, to one that differs by these
        live tasks; False, and of no use any more, where that does not tell all."""
        changed = set(self._taken)
        for place in self._taken:
            place.leave(place.live[-1])
        self._taken.clear()
        by_id = self.by_id
        for task in gone:
            for place in [by_id[card] for card in task.cards if card in by_id]:
                place.leave(task)
                changed.add(place)
        for task in come:
            for place in [by_id[card] for card in task.cards if card in by_id]:
                place.seat(task)
                changed.add(place)
        for place in changed:
            if not place.is_plain:
                return False
            self._unlist(place)
            place.left, place.count = place.most, 0
            for mb in (*[task.reserved_mb for task in place.live], *[mb for _, mb in place.leases]):
                place.hold(mb)
            self._list(place)
            self.changes.append(place.index)
        return True

    def _unlist(self, place: CardOccupancy) -> None:
        _discard(self.empty, (place.most, place.index))
        _discard(self.shared, (place.left, place.index))

    def _list(self, place: CardOccupancy) -> None:
        if place.takes_more and place.left > 0:
            insort(self.shared, (place.left, place.index))
        if not place.count:
            insort(self.empty, (place.most, place.index))


def usable(cards: Sequence[Card], rules: Rules) -> Sequence[Card]:
    """Those that tasks may have at all."""
    return cards if rules.allowed is None else [card for card in cards if card.id in rules.allowed]


def capacity_mb(card: Card, rules: Rules) -> int:
    """What tasks may hold of an empty card."""
    return shared_mb(card.total_mb, rules) if card.total_mb else _UNKNOWN_MB


def shared_mb(total_mb: int, rules: Rules) -> int:
    """The same of one of which this is known alone."""
    return total_mb - max(rules.safety_mb, total_mb // 50)


def spare_mb(card: Card, rules: Rules) -> int:
    """What is nobody's."""
    return card.total_mb - shared_mb(card.total_mb, rules)


def _closing_reason(place: CardOccupancy, drained: frozenset[str], rules: Rules) -> str:
    card = place.card
    if card.trouble:
        return f"{TROUBLE}: {place.name}: {card.trouble}"
    if card.id in drained:
        return f"{DRAINED}: {place.name} is drained"
    if card.users and (rules.foreign == "avoid" or card.exclusive):
        return _foreign_reason(place)
    return ""


def _foreign_reason(place: CardOccupancy) -> str:
    if place.card.users:
        return f"{FOREIGN}: {place.name} is used without a lease by {'; '.join(map(str, place.card.users))}"
    used = format_memory(place.card.total_mb - place.card.free_mb)
    return f"{FOREIGN}: {used} of {place.name} are in use, by whom the driver does not tell"


def _discard(found: list[tuple[int, int]], one: tuple[int, int]) -> None:
    at = bisect_left(found, one)
    if at < len(found) and found[at] == one:
        del found[at]
