"""``devices`` and ``drain``: the cards of this machine, who is on them, and which of them the lab may use."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from roost.base.errors import NotFound, UsageError
from roost.base.system import cpu_cores, process_identity, state_folder
from roost.base.text.byte_sizes import format_memory
from roost.base.text.word_list import join_names
from roost.devices import inventory, lease_files
from roost.devices.card import Card
from roost.devices.lease_files import CardLease
from roost.lab.policy.policy_state import Rules, Window
from roost.lab.queue import database
from roost.lab.queue.history import RULES
from roost.lab.queue.queue_store import Store
from roost.lab.queue.task import LIVE, Task
from roost.lab.scheduling.scheduler import without_holders
from roost.lab.scheduling.site_rules import rules_in
from roost.operations import lab

ALL, ANY = "all", "any"


class TaskOnCard(msgspec.Struct, frozen=True):
    """A task of this lab on a card."""

    id: str
    name: str
    state: str
    mb: int | None
    """What it holds; None: the whole card."""
    short: str = ""
    """As much of the id as tells it from all others."""


class LeaseOnCard(msgspec.Struct, frozen=True):
    """A lease that no task of this lab holds: of another user, or of a run at a terminal."""

    user: str
    pid: int | None
    """Of who took it, as long as that one lives: of a run, of `roost lease`. A task is nobody's child."""
    mb: int | None
    since: float
    package: str
    task: str


class ForeignProcess(msgspec.Struct, frozen=True):
    """A process whose owner holds no lease of the card."""

    pid: int
    user: str | None
    mb: int | None


class CardStatus(msgspec.Struct, frozen=True, kw_only=True):
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
    exclusive: bool
    """The driver lets one process at a time compute on it, so nobody shares it."""
    allowed: bool
    drained: bool
    windows: list[Window]
    """Times in which nothing may run there, that are not over."""
    tasks: list[TaskOnCard]
    leases: list[LeaseOnCard]
    processes: list[ForeignProcess]


class DeviceList(msgspec.Struct, frozen=True):
    """The machine."""

    cards: list[CardStatus]
    most_per_card: int | None
    foreign: str
    keep_free_mb: int
    """Of each card, at least 2 %."""
    cores: int
    """For tasks of the CPU; each takes one unless it says how many."""


class DeviceChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be changed; None: nothing."""

    allowed: str | None = None
    """``0,2``, or `ALL`."""
    most_per_card: int | Literal["any"] | None = None
    foreign: Literal["avoid", "fit", "ignore"] | None = None
    keep_free_mb: int | None = None
    cores: int | Literal["any"] | None = None
    """`ANY`: as many as the machine has cores."""


def show() -> DeviceList:
    """The cards as they are now. No queue is made for that.

    Raises:
        Refused: The driver does not tell, the lab's folder will not do, or its queue is gone.
        RoostError: As `roost.devices.inventory.read_cards`, or the queue cannot be read.
    """
    cards = inventory.read_cards()
    rules, live, short = Rules(cores=cpu_cores.usable_cores()), list[Task](), dict[str, str]()
    if database.was_made(state_folder.lab_folder()):
        with lab.opened() as store:
            rules, live = rules_in(store), store.tasks(states=LIVE)
            short = store.beginnings(task.id for task in live)
    found = [_card_status(card, rules, live, short, lease_files.live_leases(card.id)) for card in cards]
    return DeviceList(found, rules.most_per_card, rules.foreign, rules.safety_mb, rules.cores)


def change(asked: DeviceChange) -> None:
    """Changes how the lab uses the cards, and has the daemon look at it. Whatever runs goes on.

    Raises:
        UsageError: A list means no cards, or no card has as much memory; then nothing was changed.
        RoostError: As `show`.
    """
    new: dict[str, Any] = {}
    if asked.allowed is not None:
        chosen = None if asked.allowed == ALL else _parse_cards(asked.allowed, "-d")
        new["allowed"] = None if chosen is None else [card.id for card in chosen]
    if asked.most_per_card is not None:
        new["most_per_card"] = None if asked.most_per_card == ANY else asked.most_per_card
    if asked.foreign is not None:
        new["foreign"] = asked.foreign
    if asked.keep_free_mb is not None:
        new["safety_mb"] = _checked_reserve(asked.keep_free_mb)
    if asked.cores is not None:
        new["cores"] = None if asked.cores == ANY else asked.cores
    _edit_rules(lambda rules: {**rules, **new})


def drain(text: str, *, off: bool = False, window: tuple[float, float] | None = None) -> list[Card]:
    """Lets nothing more begin on cards; gives them. Whatever runs there goes on.

    Args:
        text: Which, as ``0,2``, or `ALL`; also of those that are not there any more when it is taken back.
        off: Take it back, that of a time too.
        window: Only what has ended before the first of these moments, or begins after the second one (unix
            seconds, as `wanted.parse_window` gives them), may run there. None: nothing begins from now on.

    Raises:
        UsageError: The list means no cards; then nothing was changed.
        NotFound: There are no cards.
        RoostError: As `show`.
    """
    now = time.time()
    cards = _parse_cards(text, "CARD")
    ids = [card.id for card in cards]

    def edited(rules: dict[str, Any]) -> dict[str, Any]:
        drained, windows = rules.get("drained", []), _unexpired(rules.get("reserved", []), now)
        if off:
            gone = {*ids, *(drained if text == ALL else ())}
            drained = [id for id in drained if id not in gone]
            windows = [] if text == ALL else [one for one in windows if one["card"] not in ids]
        elif window is not None:
            new = [Window(card=id, user="", begin=window[0], end=window[1]) for id in ids]
            windows += [one for one in map(msgspec.to_builtins, new) if one not in windows]
        else:
            drained = list(dict.fromkeys([*drained, *ids]))
        return {**rules, "drained": drained or None, "reserved": windows or None}

    _edit_rules(edited)
    return cards


def _unexpired(windows: Sequence[dict[str, Any]], now: float) -> list[dict[str, Any]]:
    return [window for window in windows if window["end"] > now]


def _checked_reserve(mb: int) -> int:
    largest = max((card.total_mb for card in inventory.read_cards()), default=0)
    if largest and mb >= largest:
        raise UsageError(
            f"the largest card has {format_memory(largest)}, and nothing was changed",
            setting="--keep-free",
            received=format_memory(mb),
            fix="keep less free, or drain the cards: roost drain all",
        )
    return mb


def _edit_rules(edited: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    with lab.changed() as store:
        with state_folder.exclusive_lock(
            store.folder
        ):  # two who change different things at once both have it
            _write_rules(store, edited(store.settings().get(RULES, {})))
        store.wake()


def _write_rules(store: Store, rules: dict[str, Any]) -> None:
    store.set(RULES, {name: value for name, value in rules.items() if value is not None} or None)


def _parse_cards(text: str, setting: str) -> list[Card]:
    """The cards of ``0,2``, of ids or beginnings of ids, or of `ALL`; each once."""
    cards = inventory.read_cards()
    if not cards:
        raise NotFound("this machine has no GPU, or its driver does not tell of one (nvidia-smi shows it)")
    if text == ALL:
        return cards
    chosen: dict[str, Card] = {}
    for entry in (one.strip() for one in text.split(",")):
        alike = [card for card in cards if _matches(entry, card)]
        if len(alike) != 1:
            none = f"there is no GPU {entry}" if entry else "an entry of the list is empty"
            what = "this means several GPUs" if alike else none
            raise UsageError(
                f"{what}, and nothing was changed",
                setting=setting,
                received=text,
                fix=f"name some of {join_names([str(card.number) for card in cards])}, or write {ALL}",
            )
        chosen[alike[0].id] = alike[0]
    return list(chosen.values())


def _matches(entry: str, card: Card) -> bool:
    return entry == str(card.number) if entry.isdecimal() else bool(entry) and card.id.startswith(entry)


def _card_status(
    card: Card, rules: Rules, live: Sequence[Task], short: Mapping[str, str], leases: Sequence[CardLease]
) -> CardStatus:
    ours = [task for task in live if card.id in task.cards]
    ids = {task.id for task in ours}
    rest = without_holders(card, leases)
    return CardStatus(
        number=card.number,
        id=card.id,
        name=card.name,
        total_mb=card.total_mb,
        free_mb=card.free_mb,
        utilization=card.utilization,
        temperature=card.temperature,
        power=card.power,
        trouble=rest.trouble,
        part_of=card.part_of,
        exclusive=card.exclusive,
        allowed=rules.allowed is None or card.id in rules.allowed,
        drained=card.id in rules.drained,
        windows=[one for one in rules.reserved if one.card == card.id and one.end > time.time()],
        tasks=[TaskOnCard(task.id, task.name, task.state, task.reserved_mb, short[task.id]) for task in ours],
        leases=[_lease_on_card(one) for one in leases if one.said.task not in ids and not one.blocked],
        processes=[ForeignProcess(user.pid, user.name, user.memory_mb) for user in rest.users],
    )


def _lease_on_card(one: CardLease) -> LeaseOnCard:
    said = one.said
    # Who has taken it for a task is the daemon, which goes and comes while the task runs.
    is_there = not said.task and process_identity.is_alive(said.pid, said.start_ticks, said.boot_id)
    pid = said.pid if is_there else None
    return LeaseOnCard(one.user, pid, said.mb, said.since, said.package, said.task)
