"""The operations ``devices`` and ``drain``: the cards of this machine, their users, and the rules by which
the lab may use them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from roost.base.errors import NotFound, UsageError
from roost.base.system import process_identity, state_folder
from roost.base.text.byte_sizes import format_memory
from roost.base.text.word_list import join_names
from roost.devices import inventory, lease_files
from roost.devices.card import Card
from roost.devices.lease_files import CardLease
from roost.lab.policy.policy_state import ReservedWindow, Rules
from roost.lab.queue import database
from roost.lab.queue.history import RULES_KEY
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import LIVE, Task
from roost.lab.scheduling.scheduler import without_leased_processes
from roost.lab.scheduling.site_rules import default_host, read_rules
from roost.operations import lab
from roost.operations.devices.device_list import (
    CardStatus,
    DeviceList,
    ForeignProcess,
    LeaseOnCard,
    TaskOnCard,
)
from roost.operations.devices.host_status import host_status

ALL, ANY = "all", "any"
_CPU = "-1"


class DeviceChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the lab's rules; fields that are None stay as they are."""

    allowed: str | None = None
    """``0,2``, or `ALL`."""
    most_per_card: int | Literal["any"] | None = None
    foreign: Literal["avoid", "fit", "ignore"] | None = None
    keep_free_mb: int | None = None
    cores: int | Literal["any"] | None = None
    """`ANY`: as many as the machine has; likewise in the next field."""
    host_memory_mb: int | Literal["any"] | None = None


def show() -> DeviceList:
    """Returns the cards as they are now, without creating a queue.

    Raises:
        Refused: The driver does not answer, the lab's folder cannot be used, or its queue is missing.
        RoostError: As `roost.devices.inventory.read_cards`, or the queue cannot be read.
    """
    cards = inventory.read_cards()
    rules, live, short = msgspec.convert(default_host(), Rules), list[Task](), dict[str, str]()
    if database.has_existed(state_folder.lab_folder()):
        with lab.open_queue() as store:
            rules, live = read_rules(store), store.tasks(states=LIVE)
            short = store.unique_prefixes(task.id for task in live)
    return list_devices(cards, rules, live, short)


def list_devices(
    cards: Sequence[Card], rules: Rules, live: Sequence[Task], short: Mapping[str, str]
) -> DeviceList:
    """Returns the list of `show` for cards and live tasks that are known.

    Args:
        cards: The cards of the machine.
        rules: Of the lab.
        live: The live tasks of the lab.
        short: The shortest unique prefixes of their ids.

    Raises:
        RoostError: The leases cannot be read.
    """
    found = [_card_status(card, rules, live, short, lease_files.live_leases(card.id)) for card in cards]
    host = host_status(rules, live)
    return DeviceList(found, rules.most_per_card, rules.foreign, rules.safety_mb, rules.cores, host)


def change(request: DeviceChange) -> None:
    """Changes how the lab uses the cards and wakes the daemon. Running tasks continue.

    Raises:
        UsageError: A list names no cards, or no card has that much memory; then nothing was changed.
        RoostError: As for `show`.
    """
    new: dict[str, Any] = {}
    if request.allowed is not None:
        chosen = None if request.allowed == ALL else _parse_cards(request.allowed, "-d")
        new["allowed"] = None if chosen is None else [card.id for card in chosen]
    if request.most_per_card is not None:
        new["most_per_card"] = None if request.most_per_card == ANY else request.most_per_card
    if request.foreign is not None:
        new["foreign"] = request.foreign
    if request.keep_free_mb is not None:
        new["safety_mb"] = _checked_reserve(request.keep_free_mb)
    if request.cores is not None:
        new["cores"] = None if request.cores == ANY else request.cores
    if request.host_memory_mb is not None:
        new["host_memory_mb"] = None if request.host_memory_mb == ANY else request.host_memory_mb
    _edit_rules(lambda rules: {**rules, **new})


def without_cpu(cards: str, *, setting: str, count_cards: Callable[[], int] | None = None) -> str:
    """Returns a list of cards without the CPU, which DLNest lists as -1. On a machine without cards the CPU
    alone is `ALL`.

    Args:
        cards: The list.
        setting: The option or field that has it.
        count_cards: Counts the cards of the lab; None: those of this machine.

    Raises:
        UsageError: The list names only the CPU, and there are cards.
    """
    entries = cards.split(",")
    found = [one for one in entries if one != _CPU]
    if not found:
        if not (count_cards() if count_cards is not None else len(inventory.read_cards())):
            return ALL
        fix = "use `roost drain all` to start no further task on any card"
        raise UsageError("tasks need at least one card", setting=setting, received=cards, fix=fix)
    return ",".join(found)


def drain(text: str, *, off: bool = False, window: tuple[float, float] | None = None) -> list[Card]:
    """Keeps new tasks off cards, and returns these cards. Running tasks continue.

    Args:
        text: The cards as ``0,2``, or `ALL`; with ``off``, `ALL` includes cards that the machine no longer
            has.
        off: Whether to end the drain, with all its windows.
        window: Begin and end in unix seconds, as `resources.parse_window` returns them: only tasks that end
            before the begin, or start after the end, may run there. None: no task starts from now on.

    Raises:
        UsageError: The list names no cards; then nothing was changed.
        NotFound: There are no cards.
        RoostError: As for `show`.
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
            new = [ReservedWindow(card=id, user="", begin=window[0], end=window[1]) for id in ids]
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
    with lab.locked_queue() as store:
        with state_folder.exclusive_lock(
            store.folder
        ):  # two changes of different rules at the same time must both take effect
            _write_rules(store, edited(store.settings().get(RULES_KEY, {})))
        store.wake_daemon()


def _write_rules(store: QueueStore, rules: dict[str, Any]) -> None:
    store.set_setting(RULES_KEY, {name: value for name, value in rules.items() if value is not None} or None)


def _parse_cards(text: str, setting: str) -> list[Card]:
    """Returns the cards named by numbers (``0,2``), by ids or beginnings of ids, or by `ALL`; each once."""
    cards = inventory.read_cards()
    if not cards:
        raise NotFound("this machine has no GPU, or its driver reports none (see nvidia-smi)")
    if text == ALL:
        return cards
    chosen: dict[str, Card] = {}
    for entry in (one.strip() for one in text.split(",")):
        alike = [card for card in cards if _matches(entry, card)]
        if len(alike) != 1:
            none = f"there is no GPU {entry}" if entry else "an entry of the list is empty"
            what = "this fits several GPUs" if alike else none
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
    rest = without_leased_processes(card, leases)
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
        leases=[_lease_on_card(one) for one in leases if one.record.task not in ids and not one.blocked],
        processes=[ForeignProcess(user.pid, user.name, user.memory_mb) for user in rest.users],
    )


def _lease_on_card(one: CardLease) -> LeaseOnCard:
    record = one.record
    # The daemon takes the leases of tasks, and may be restarted while a task runs.
    owner = (record.pid, record.start_ticks, record.boot_id)
    is_owner_alive = not record.task and process_identity.is_alive(*owner)
    pid = record.pid if is_owner_alive else None
    return LeaseOnCard(one.user, pid, record.mb, record.since, record.package, record.task)
