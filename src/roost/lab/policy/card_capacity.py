"""The free memory of the cards during a scheduling pass; it shrinks while tasks are placed."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from roost.base.text.byte_sizes import format_memory
from roost.devices.card import Card
from roost.devices.resource_request import ResourceRequest
from roost.lab.policy.policy_state import PolicyState, Rules
from roost.lab.policy.reason_codes import DRAINED, FOREIGN, TROUBLE
from roost.lab.queue.task import Task

_UNKNOWN_MB = 1 << 40
"""The assumed memory of a card whose driver does not report it: tasks get it only as a whole."""


class Shape(NamedTuple):
    """The cards and memory that a task takes; tasks of equal shape fit on the same cards."""

    cards: int
    mb: int
    """Of each card; 0 where it is not known."""
    whole: bool

    @classmethod
    def from_need(cls, need: ResourceRequest, learned_mb: int | None = None) -> Shape:
        """Returns the shape of a resource request; memory learned from earlier runs replaces the
        request's."""
        mb = (need.memory_mb if learned_mb is None else learned_mb) or 0
        is_whole = need.whole or not mb
        return cls(need.cards, max(mb, need.least_mb or 0), is_whole)


class CardOccupancy:
    """A card with its tasks and leases, and the memory that is left of it."""

    __slots__ = (
        "capacity_mb", "card", "closed_reason", "has_foreign", "index", "is_lease_only", "leases", "left_mb",
        "live", "most_tasks", "num_leases", "opportunistic", "other_users", "takes_one_task", "unreserved_mb",
    )  # fmt: skip

    def __init__(self, card: Card, index: int, rules: Rules) -> None:
        self.card, self.index = card, index
        self.takes_one_task = not card.total_mb
        self.capacity_mb = capacity_mb(card, rules)
        self.most_tasks = 1 if card.exclusive else rules.most_per_card
        self.left_mb = self.capacity_mb
        self.num_leases = 0
        self.live: list[Task] = []
        self.opportunistic = 0
        """How many of them are opportunistic."""
        self.leases: list[tuple[float, int | None]] = []
        """Leases of others: their end and their memory; None: the whole card."""
        self.other_users: list[str] = []
        """The users of these leases."""
        self.has_foreign = False
        """Whether a process without a lease uses it."""
        self.unreserved_mb = 0
        """Memory that such processes use, and that tasks use beyond their reservation."""
        self.closed_reason = ""
        """Why no task starts on it; empty: it is open."""
        self.is_lease_only = False
        """Whether it is open and only lease holders use it: then its free memory follows from the leases
        alone."""

    @property
    def name(self) -> str:
        """The name in messages, as `GPU 0`."""
        return f"GPU {self.card.number}"

    @property
    def holder_name(self) -> str:
        """The first holder: the name of a task of this queue, else the user of another lease."""
        return self.live[0].name if self.live else next(iter(self.other_users), "another process")

    @property
    def obstacle(self) -> str:
        """Why a task does not start on it although its memory would suffice without foreign processes."""
        return self.closed_reason or _foreign_reason(self)

    @property
    def can_be_shared(self) -> bool:
        """Whether one more task may share it, by the number of tasks alone."""
        return not self.takes_one_task and (self.most_tasks is None or self.num_leases < self.most_tasks)

    def add_task(self, task: Task) -> None:
        """Adds a live task; `add_lease` counts its memory."""
        self.live.append(task)
        self.opportunistic += task.need.opportunistic

    def remove_task(self, task: Task) -> None:
        self.live.remove(task)
        self.opportunistic -= task.need.opportunistic

    def add_lease(self, mb: int | None) -> None:
        """Subtracts the memory of one lease; None: the whole card."""
        self.num_leases += 1
        self.left_mb = 0 if mb is None or self.takes_one_task else self.left_mb - mb

    def count_processes(self) -> None:
        """Subtracts the memory that processes without a lease use, and that tasks use beyond their
        reservation."""
        card = self.card
        if not card.users and card.free_mb == card.total_mb:
            return
        used = card.total_mb - card.free_mb
        named = sum(user.memory_mb or 0 for user in card.users)
        if self.left_mb > 0:
            self.unreserved_mb = max(named, used - (self.capacity_mb - self.left_mb), 0)
            self.left_mb -= self.unreserved_mb
        # The driver itself needs less: this is a process that it does not list, or one that has just ended.
        unexplained = not self.num_leases and used > max(1024, card.total_mb // 16)
        self.has_foreign = bool(card.users) or unexplained

    def fits_with(self, shape: Shape, staying: Sequence[int | None]) -> bool:
        """Whether a task fits together with some of the current leases, given by their memory."""
        if shape.whole or self.takes_one_task:
            return not staying and not self.has_foreign and self.capacity_mb >= shape.mb
        if None in staying or (self.most_tasks is not None and len(staying) >= self.most_tasks):
            return False
        unreserved_mb = self.unreserved_mb if staying or self.has_foreign else 0
        return self.capacity_mb - sum(filter(None, staying)) - unreserved_mb >= shape.mb


class FreeCapacity:
    """The cards of a machine, ordered by their free memory.

    A part of a card is taken where the least free memory suffices (best fit), so that large pieces remain.
    Whole cards are the smallest that suffice; several of them are of one model and have close numbers.
    """

    def __init__(self, state: PolicyState) -> None:
        self.occupancies = [
            CardOccupancy(card, index, state.rules)
            for index, card in enumerate(usable(state.cards, state.rules))
        ]
        self.by_id = {occupancy.card.id: occupancy for occupancy in self.occupancies}
        self.largest = sorted((occupancy.capacity_mb, occupancy.index) for occupancy in self.occupancies)
        self._count_leases(state)
        self.shared: list[tuple[int, int]] = []
        self.empty: list[tuple[int, int]] = []
        self.closed_shared: list[tuple[int, int]] = []
        self.closed_empty: list[tuple[int, int]] = []
        self._capacities_when_idle: dict[bool, list[int]] = {True: [], False: []}
        self._allocated: list[CardOccupancy] = []
        self.changes: list[int] = []
        """The indices of the cards that changed, one entry for each change."""
        drained = frozenset(state.rules.drained)
        for occupancy in self.occupancies:
            occupancy.closed_reason = _closing_reason(occupancy, drained, state.rules)
            self._add(occupancy)
        for found in (
            self.shared,
            self.empty,
            self.closed_shared,
            self.closed_empty,
            *self._capacities_when_idle.values(),
        ):
            found.sort()  # type: ignore[attr-defined]

    def _count_leases(self, state: PolicyState) -> None:
        for task in state.live:
            for card in task.cards:
                if (occupancy := self.by_id.get(card)) is not None:
                    occupancy.add_task(task)
                    occupancy.add_lease(task.reserved_mb)
        for card, leases in state.other_leases.items():
            if (occupancy := self.by_id.get(card)) is not None:
                for lease in leases:
                    occupancy.leases.append((lease.end, lease.mb))
                    occupancy.other_users.append(lease.user)
                    occupancy.add_lease(lease.mb)
        if state.rules.foreign != "ignore":
            for occupancy in self.occupancies:
                occupancy.count_processes()

    def _add(self, occupancy: CardOccupancy) -> None:
        occupancy.is_lease_only = not (
            occupancy.closed_reason or occupancy.has_foreign or occupancy.unreserved_mb
        )
        if not occupancy.closed_reason:
            self._capacities_when_idle[False].append(
                occupancy.capacity_mb - (occupancy.unreserved_mb if occupancy.has_foreign else 0)
            )
            if not occupancy.has_foreign:
                self._capacities_when_idle[True].append(occupancy.capacity_mb)
            if occupancy.can_be_shared and occupancy.left_mb > 0:
                self.shared.append((occupancy.left_mb, occupancy.index))
            if not occupancy.num_leases and not occupancy.has_foreign:
                self.empty.append((occupancy.capacity_mb, occupancy.index))
        if occupancy.closed_reason or occupancy.has_foreign:
            left = occupancy.left_mb + occupancy.unreserved_mb
            if occupancy.can_be_shared and left > 0:
                self.closed_shared.append((left, occupancy.index))
            if not occupancy.num_leases:
                self.closed_empty.append((occupancy.capacity_mb, occupancy.index))

    def num_fitting_when_idle(self, shape: Shape) -> int:
        """Returns on how many open cards the shape would fit if no lease was held."""
        found = self._capacities_when_idle[shape.whole]
        return len(found) - bisect_left(found, shape.mb)

    def candidates(self, shape: Shape) -> Sequence[tuple[int, int]]:
        """Returns the cards on which the shape fits, best fit first: pairs of memory and index."""
        found = self.empty if shape.whole else self.shared
        return found[bisect_left(found, (shape.mb, -1)) :]

    def has_fit(self, shape: Shape, barred: frozenset[int]) -> bool:
        """Whether `find` would find cards."""
        found = self.empty if shape.whole else self.shared
        at = bisect_left(found, (shape.mb, -1))
        if not barred or len(found) - at < shape.cards:
            return len(found) - at >= shape.cards
        return sum([found[n][1] not in barred for n in range(at, len(found))]) >= shape.cards

    def closed_candidates(self, shape: Shape) -> list[CardOccupancy]:
        """Returns the cards on which the shape would fit if they were open and no process used them without a
        lease."""
        found = self.closed_empty if shape.whole else self.closed_shared
        fit = {index for _, index in self.candidates(shape)}
        occupancies = [self.occupancies[index] for _, index in found[bisect_left(found, (shape.mb, -1)) :]]
        return [occupancy for occupancy in occupancies if occupancy.index not in fit]

    def find(self, shape: Shape, barred: frozenset[int]) -> list[CardOccupancy] | None:
        """Returns cards for a shape; None if there are not enough.

        Args:
            shape: The requested cards and memory.
            barred: Indices of cards that the task must not have.
        """
        if shape.cards == 1:
            sorted_ = self.empty if shape.whole else self.shared
            for at in range(bisect_left(sorted_, (shape.mb, -1)), len(sorted_)):
                index = sorted_[at][1]
                if index not in barred:
                    return [self.occupancies[index]]
            return None
        found = self.candidates(shape)
        if barred:
            found = [one for one in found if one[1] not in barred]
        if len(found) < shape.cards:
            return None
        return [self.occupancies[index] for index in self._close_together(found, shape)]

    def _close_together(self, found: Iterable[tuple[int, int]], shape: Shape) -> list[int]:
        indices = [index for _, index in found]
        models: dict[str, list[int]] = {}
        for index in indices:
            models.setdefault(self.occupancies[index].card.name, []).append(index)
        indices = next((same for same in models.values() if len(same) >= shape.cards), indices)
        if not shape.whole:
            return indices[: shape.cards]
        indices.sort()
        last = shape.cards - 1
        starts = range(len(indices) - last)
        start = min(starts, key=lambda at: indices[at + last] - indices[at])
        return indices[start : start + shape.cards]

    def allocate(self, occupancies: Iterable[CardOccupancy], shape: Shape, task: Task) -> None:
        """Gives these cards to a task."""
        for occupancy in occupancies:
            self._remove(occupancy)
            occupancy.add_task(task)
            occupancy.add_lease(None if shape.whole else shape.mb)
            self._insert(occupancy)
            self._allocated.append(occupancy)
            self.changes.append(occupancy.index)

    def update(self, gone: Iterable[Task], come: Iterable[Task]) -> bool:
        """Advances to a state that differs by these live tasks from the one it was built of; allocations made
        since are undone. Returns False, and is unusable then, where the difference in tasks does not
        determine the free memory."""
        changed = set(self._allocated)
        for occupancy in self._allocated:
            occupancy.remove_task(occupancy.live[-1])
        self._allocated.clear()
        by_id = self.by_id
        for task in gone:
            for occupancy in [by_id[card] for card in task.cards if card in by_id]:
                occupancy.remove_task(task)
                changed.add(occupancy)
        for task in come:
            for occupancy in [by_id[card] for card in task.cards if card in by_id]:
                occupancy.add_task(task)
                changed.add(occupancy)
        for occupancy in changed:
            if not occupancy.is_lease_only:
                return False
            self._remove(occupancy)
            occupancy.left_mb, occupancy.num_leases = occupancy.capacity_mb, 0
            for mb in (*[task.reserved_mb for task in occupancy.live], *[mb for _, mb in occupancy.leases]):
                occupancy.add_lease(mb)
            self._insert(occupancy)
            self.changes.append(occupancy.index)
        return True

    def _remove(self, occupancy: CardOccupancy) -> None:
        _discard(self.empty, (occupancy.capacity_mb, occupancy.index))
        _discard(self.shared, (occupancy.left_mb, occupancy.index))

    def _insert(self, occupancy: CardOccupancy) -> None:
        if occupancy.can_be_shared and occupancy.left_mb > 0:
            insort(self.shared, (occupancy.left_mb, occupancy.index))
        if not occupancy.num_leases:
            insort(self.empty, (occupancy.capacity_mb, occupancy.index))


def usable(cards: Sequence[Card], rules: Rules) -> Sequence[Card]:
    """Returns the cards that the rules allow to tasks."""
    return cards if rules.allowed is None else [card for card in cards if card.id in rules.allowed]


def capacity_mb(card: Card, rules: Rules) -> int:
    """Returns the memory of an empty card that tasks may reserve."""
    return shared_mb(card.total_mb, rules) if card.total_mb else _UNKNOWN_MB


def shared_mb(total_mb: int, rules: Rules) -> int:
    """Returns the same for a card of which only the total memory is known."""
    return total_mb - max(rules.safety_mb, total_mb // 50)


def spare_mb(card: Card, rules: Rules) -> int:
    """Returns the memory of a card that stays free."""
    return card.total_mb - shared_mb(card.total_mb, rules)


def _closing_reason(occupancy: CardOccupancy, drained: frozenset[str], rules: Rules) -> str:
    card = occupancy.card
    if card.trouble:
        return f"{TROUBLE}: {occupancy.name}: {card.trouble}"
    if card.id in drained:
        return f"{DRAINED}: {occupancy.name} is drained"
    if card.users and (rules.foreign == "avoid" or card.exclusive):
        return _foreign_reason(occupancy)
    return ""


def _foreign_reason(occupancy: CardOccupancy) -> str:
    if occupancy.card.users:
        users = "; ".join(map(str, occupancy.card.users))
        return f"{FOREIGN}: {occupancy.name} is used without a lease by {users}"
    used = format_memory(occupancy.card.total_mb - occupancy.card.free_mb)
    return f"{FOREIGN}: {used} of {occupancy.name} are in use; the driver does not report by which process"


def _discard(found: list[tuple[int, int]], one: tuple[int, int]) -> None:
    at = bisect_left(found, one)
    if at < len(found) and found[at] == one:
        del found[at]
