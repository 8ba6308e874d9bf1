"""``devices`` and ``drain``: the cards of this machine, who is on them, and which of them the lab may use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from roost.base.errors import NotFound, UsageError
from roost.base.listed import listed
from roost.devices import held, providers
from roost.devices.card import Card
from roost.devices.held import Held
from roost.lab import database, place
from roost.lab.policy.state import Rules
from roost.lab.scheduler import RULES, rules_in, without_holders
from roost.lab.store import Store
from roost.lab.task import LIVE, Task
from roost.operations import lab

ALL, ANY = "all", "any"


class TaskThere(msgspec.Struct, frozen=True):
    """A task of this lab on a card."""

    id: str
    name: str
    state: str
    mb: int | None
    """What it holds; None: the whole card."""


class LeaseThere(msgspec.Struct, frozen=True):
    """A lease that no task of this lab holds: of another user, or of a run at a terminal."""

    user: str
    pid: int
    mb: int | None
    since: float
    package: str
    task: str


class ProcessThere(msgspec.Struct, frozen=True):
    """A process whose owner holds no lease of the card."""

    pid: int
    user: str | None
    mb: int | None


class CardShown(msgspec.Struct, frozen=True, kw_only=True):
    """A card. What the driver does not tell is None, or 0 for memory."""

    number: int
    id: str
    name: str
    total_mb: int
    free_mb: int
    utilization: int | None
    temperature: int | None
    power: float | None
    trouble: str
    part_of: str
    allowed: bool
    drained: bool
    tasks: list[TaskThere]
    leases: list[LeaseThere]
    processes: list[ProcessThere]


class Shown(msgspec.Struct, frozen=True):
    """The machine."""

    cards: list[CardShown]
    most_per_card: int | None
    foreign: str


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be changed; None: nothing."""

    allowed: str | None = None
    """``0,2``, or `ALL`."""
    most_per_card: int | Literal["any"] | None = None
    foreign: Literal["avoid", "fit", "ignore"] | None = None


def show() -> Shown:
    """The cards as they are now. No queue is made for that.

    Raises:
        Refused: The driver does not tell, or the lab's folder will not do.
        RoostError: As `roost.devices.providers.look`, or the queue cannot be read.
    """
    cards = providers.look()
    rules, live = Rules(), list[Task]()
    if (place.folder() / database.NAME).exists():
        with lab.opened() as store:
            rules, live = rules_in(store), store.tasks(states=LIVE)
    found = [_shown(card, rules, live, held.live_leases(card.id)) for card in cards]
    return Shown(found, rules.most_per_card, rules.foreign)


def change(asked: Asked) -> None:
    """Changes how the lab uses the cards, and has the daemon look at it. Whatever runs goes on.

    Raises:
        UsageError: A list means no cards; then nothing was changed.
        RoostError: As `show`.
    """
    new: dict[str, Any] = {}
    if asked.allowed is not None:
        chosen = None if asked.allowed == ALL else _chosen(asked.allowed, "-d")
        new["allowed"] = None if chosen is None else [card.id for card in chosen]
    if asked.most_per_card is not None:
        new["most_per_card"] = None if asked.most_per_card == ANY else asked.most_per_card
    if asked.foreign is not None:
        new["foreign"] = asked.foreign
    _change(lambda rules: {**rules, **new})


def drain(text: str, *, off: bool = False) -> list[Card]:
    """Lets nothing more begin on cards; gives them. Whatever runs there goes on.

    Args:
        text: Which, as ``0,2``, or `ALL`; also of those that are not there any more when it is taken back.
        off: Take it back.

    Raises:
        UsageError: The list means no cards; then nothing was changed.
        NotFound: There are no cards.
        RoostError: As `show`.
    """
    cards = _chosen(text, "CARD")
    ids = [card.id for card in cards]

    def edited(rules: dict[str, Any]) -> dict[str, Any]:
        before = rules.get("drained", [])
        if off:
            left = [] if text == ALL else [id for id in before if id not in ids]
        else:
            left = list(dict.fromkeys([*before, *ids]))
        return {**rules, "drained": left or None}

    _change(edited)
    return cards


def _change(edited: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    with lab.opened() as store:
        with place.alone(store.folder):  # two who change different things at once both have it
            _write(store, edited(store.settings().get(RULES, {})))
        store.wake()


def _write(store: Store, rules: dict[str, Any]) -> None:
    store.set(RULES, {name: value for name, value in rules.items() if value is not None} or None)


def _chosen(text: str, setting: str) -> list[Card]:
    """The cards of ``0,2``, of ids or beginnings of ids, or of `ALL`; each once."""
    cards = providers.look()
    if not cards:
        raise NotFound("this machine has no GPU, or its driver does not tell of one (nvidia-smi shows it)")
    if text == ALL:
        return cards
    chosen: dict[str, Card] = {}
    for entry in (one.strip() for one in text.split(",")):
        alike = [card for card in cards if _is_meant(entry, card)]
        if len(alike) != 1:
            what = "this means several GPUs" if alike else f"there is no GPU {entry or 'without a number'}"
            raise UsageError(
                f"{what}, and nothing was changed",
                setting=setting,
                received=text,
                fix=f"name some of {listed([str(card.number) for card in cards])}, or write {ALL}",
            )
        chosen[alike[0].id] = alike[0]
    return list(chosen.values())


def _is_meant(entry: str, card: Card) -> bool:
    return entry == str(card.number) if entry.isdecimal() else bool(entry) and card.id.startswith(entry)


def _shown(card: Card, rules: Rules, live: Sequence[Task], leases: Sequence[Held]) -> CardShown:
    ours = [task for task in live if card.id in task.cards]
    ids = {task.id for task in ours}
    return CardShown(
        number=card.number,
        id=card.id,
        name=card.name,
        total_mb=card.total_mb,
        free_mb=card.free_mb,
        utilization=card.utilization,
        temperature=card.temperature,
        power=card.power,
        trouble=card.trouble,
        part_of=card.part_of,
        allowed=rules.allowed is None or card.id in rules.allowed,
        drained=card.id in rules.drained,
        tasks=[TaskThere(task.id, task.name, task.state, task.reserved_mb) for task in ours],
        leases=[_lease(one) for one in leases if one.said.task not in ids],
        processes=[
            ProcessThere(user.pid, user.name, user.memory_mb) for user in without_holders(card, leases).users
        ],
    )


def _lease(one: Held) -> LeaseThere:
    said = one.said
    return LeaseThere(one.user, said.pid, said.mb, said.since, said.package, said.task)
