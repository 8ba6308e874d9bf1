"""Completes the options of a task (`roost.devices.resource_request`) and checks whether this machine and its
queue can meet them."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from roost.base.errors import ConfigError, NotFound, Refused, UsageError
from roost.base.interval import parse_duration
from roost.base.text.byte_sizes import format_memory
from roost.base.text.durations import format_duration
from roost.base.text.timestamps import parse_timestamp
from roost.devices import inventory
from roost.devices.resource_request import (
    HIGHEST_PRIORITY,
    ResourceRequest,
    TaskOptions,
    format_card_share,
)
from roost.lab.queue import admission
from roost.lab.queue.history import RULES_KEY
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import Task
from roost.operations import lab
from roost.operations.queue.task_labels import TaskLabels

if TYPE_CHECKING:
    from roost.config.run_settings import Devices

_MAX_BEGIN_DAYS = 366
_CLOCK = re.compile(r"(?:(today|tomorrow)\s*)?(?:(\d{1,2}):(\d{2}))?")
_LAST_DATE = 253_402_300_800.0
"""A later time, after the year 9999, has no date that could be shown."""
_EXAMPLES = 'write 22:30, tomorrow, "tomorrow 08:00", +2h, or 2026-11-22T08:00'


class TaskConditions(NamedTuple):
    """The conditions of a task's start that the options name by texts, as the queue stores them."""

    begin: float | None = None
    """The begin time in Unix seconds."""
    after: tuple[str, ...] = ()
    """Ids of tasks that must succeed first."""
    after_any: tuple[str, ...] = ()
    """Ids of tasks that must end first, with any outcome."""

    @property
    def has_dependencies(self) -> bool:
        """Whether another task precedes it."""
        return bool(self.after or self.after_any)


def task_conditions(options: TaskOptions, *, requested: float | None = None) -> TaskConditions:
    """Returns the conditions of the start, checked.

    Args:
        options: The options of the task.
        requested: When the request was made, from which ``+2h`` counts; None: now.

    Raises:
        NotFound: A dependency does not exist.
        UsageError: A value is out of range, or no time; or options contradict each other.
        Refused: A dependency has ended without success.
    """
    now = time.time()
    begin = None
    if options.begin is not None:
        begin = parse_begin(options.begin, now=now if requested is None else requested)
    after = find_task_ids(options.after)
    after_any = find_task_ids(options.after_any, setting="--after-any")
    if abs(options.priority) > HIGHEST_PRIORITY:
        fix = f"give one from -{HIGHEST_PRIORITY} to {HIGHEST_PRIORITY}"
        raise UsageError("is not a valid priority", setting="--priority", received=options.priority, fix=fix)
    if options.no_restart and (options.retries or options.opportunistic):
        what = f"contradicts {'--retry' if options.retries else '--opportunistic'}, which starts a task again"
        raise UsageError(what, setting="--no-restart", fix="leave out one")
    if begin is not None:
        check_begin(begin, now)
    _check_dependencies(after)
    return TaskConditions(begin, after, after_any)


def check_begin(begin: float, now: float) -> None:
    """Raises a UsageError for a begin time in the past, or too far in the future; both in Unix seconds."""
    if begin < now - 1:
        what = f"was {format_duration(now - begin)} ago"
        fix = f"leave it out, or {_EXAMPLES}"
        raise UsageError(what, setting="--begin", received=_format_time(begin), fix=fix)
    if begin > now + _MAX_BEGIN_DAYS * 86400:
        if begin > _LAST_DATE:
            years = (begin - now) / (365.25 * 86400)
            raise UsageError(
                f"is {years:,.0f} years away", setting="--begin", fix="give a time within a year"
            )
        fix, received = "give a time within a year", _format_time(begin)
        raise UsageError("is too far in the future", setting="--begin", received=received, fix=fix)


def _check_dependencies(after: Sequence[str]) -> None:
    """Checks in the queue that every task which must succeed first still can."""
    if after:
        with lab.open_queue() as store:
            states, labels = store.states(list(after)), TaskLabels(store, after)
        for other in after:
            admission.require_can_succeed(labels.replace_ids(other), states.get(other))


def with_card_count(options: TaskOptions, devices: Devices | None) -> TaskOptions:
    """Returns the options with the number of cards filled in where the caller gave none.

    Args:
        options: The options of the task.
        devices: `devices` of a training's settings; None for a command.

    Raises:
        UsageError: Options about cards are given for a task without cards, or the number of cards cannot be
            derived.
        Refused: The driver does not answer.
    """
    strategy = options.strategy
    if options.gpus is None and strategy in ("ddp", "fsdp") and devices == "auto":
        what = f"{strategy} needs the number of devices, which is not set"
        raise UsageError(what, fix="add --gpus 2, or on the CPU -CPU devices=2")
    gpus = _default_card_count(devices) if options.gpus is None else options.gpus
    given = {
        "-m": options.memory_mb is not None,
        "--whole": options.whole,
        "--opportunistic": options.opportunistic,
    }
    about_cards = [option for option, is_given in given.items() if is_given]
    if about_cards and not gpus:
        also = f" (also {', '.join(about_cards[1:])})" if about_cards[1:] else ""
        what = f"applies to cards, and this task has none{also}"
        raise UsageError(what, setting=about_cards[0], fix="leave it out, or request cards")
    return msgspec.structs.replace(options, gpus=gpus)


def require_satisfiable(needs: Sequence[ResourceRequest]) -> None:
    """Checks that this machine is large enough for each request, whatever is running on it now.

    Raises:
        Refused: A task could never start; or the driver does not answer.
    """
    with lab.open_queue() as store:
        has_amounts = any(need.cards or need.cores or need.host_memory_mb for need in needs)
        if not store.settings().get(RULES_KEY) and not has_amounts:
            return  # the default rules let every such task run, and the imports below take 20 ms
        from roost.lab.policy.host_share import HostShare
        from roost.lab.policy.wait_reasons import host_too_small, impossible
        from roost.lab.scheduling.site_rules import read_rules

        rules = read_rules(store)
    cards = inventory.read_cards() if any(need.cards for need in needs) else []
    for need in dict.fromkeys(needs):
        why = impossible(need, cards, rules)
        if why is None:
            continue
        share = HostShare.from_need(need)
        fix = "`roost devices` lists the cards"
        if share.cores > rules.cores:
            fix = "`roost devices --cores N` or `any` raises the cores for tasks"
        elif host_too_small(share, rules) is not None:
            fix = "`roost devices --host-memory MB` or `any` raises the memory for tasks"
        raise Refused(f"the task could never start: it {why}", fix=f"request less; {fix}")


def with_previous_share(options: TaskOptions, package: Path) -> tuple[TaskOptions, list[str]]:
    """Returns the options with the share of each card and of the host that the package's last task requested,
    unless the options set it; and notes for the user.

    Args:
        options: With a known number of cards.
        package: The folder of the package.
    """
    try:
        with lab.open_queue() as store:
            before = store.find(str(package)).need
    except NotFound:  # the package was never a task
        return options, []
    if bool(before.cards) != bool(options.gpus):
        return options, []
    changes, notes = dict[str, Any](), list[str]()
    is_share_given = options.whole or options.memory_mb is not None
    if not is_share_given and (before.whole or before.memory_mb is not None):
        changes |= {"whole": before.whole, "memory_mb": before.memory_mb}
        option = "-m" if before.memory_mb is None else "-m or --whole"
        notes.append(_share_note(format_card_share(before.memory_mb), option))
    if options.cpus is None and before.cores is not None:
        changes["cpus"] = before.cores
        notes.append(_share_note(before.cores_text, "--cpus"))
    if options.host_memory_mb is None and before.host_memory_mb is not None:
        changes["host_memory_mb"] = before.host_memory_mb
        notes.append(_share_note(f"{format_memory(before.host_memory_mb)} of host memory", "--host-memory"))
    return msgspec.structs.replace(options, **changes), notes


def _share_note(share: str, option: str) -> str:
    return f"{share}, as in the package's last task; {option} changes it"


def find_task_ids(texts: Sequence[str], *, setting: str = "--after") -> tuple[str, ...]:
    """Returns the ids of the named tasks, each once; for a sweep, the ids of all its tasks.

    Raises:
        NotFound: There is no such task.
        UsageError: A text fits several tasks.
    """
    if not texts:
        return ()
    with lab.open_queue() as store:
        return tuple(dict.fromkeys(task.id for text in texts for task in _find_tasks(store, text, setting)))


def _find_tasks(store: QueueStore, text: str, setting: str) -> list[Task]:
    try:
        return store.find_all(text)
    except NotFound as error:
        if "," not in text:
            raise
        fix = f"name one at a time: {' '.join(f'{setting} {one}' for one in text.split(','))}"
        raise NotFound(error.message, setting=setting, received=text, fix=fix) from None


def parse_begin(text: str, *, now: float, setting: str = "--begin") -> float:
    """Returns the unix seconds of a begin time: ``22:30`` (the next one), ``tomorrow`` (its midnight),
    ``tomorrow 08:00``, ``2026-11-22T08:00``, or ``+2h`` from ``now``.

    Args:
        text: As typed.
        now: Unix seconds.
        setting: The name of the option, for messages.

    Raises:
        UsageError: The text is no time.
    """
    typed = text.strip().lower()
    try:
        if typed.startswith("+"):
            return now + parse_duration(typed[1:].strip(), setting=setting)
        if typed and (match := _CLOCK.fullmatch(typed)):
            return _clock_time(match[1], int(match[2] or 0), int(match[3] or 0), now)
        return parse_timestamp(text, setting=setting)
    except (ConfigError, UsageError, ValueError, OverflowError):
        raise UsageError("is not a time", setting=setting, received=text, fix=_EXAMPLES) from None


def parse_window(begin: str | None, end: str | None, *, off: bool = False) -> tuple[float, float] | None:
    """Returns the begin and end of a drain window in unix seconds; None if neither is given.

    Args:
        begin: As for `parse_begin`; None: now.
        end: As for `parse_begin`, the next one after ``begin``, from which ``+2h`` counts.
        off: Whether the drain is removed; then no times may be given.

    Raises:
        UsageError: A text is no time, the two do not fit each other, or the window is over.
    """
    if off and (begin or end):
        raise UsageError("--off removes the whole drain", fix="leave out --from and --until")
    if begin is None and end is None:
        return None
    if end is None:
        raise UsageError("--from needs --until", received=f"--from {begin}", fix="add --until 08:00")
    now = time.time()
    first = parse_begin(begin, now=now, setting="--from") if begin is not None else now
    last = parse_begin(end, now=first, setting="--until")
    if last <= max(first, now):
        is_over = begin is None or last > first
        what = "is over" if is_over else f"is not after --from {begin}"
        fix = "give the end as 08:00, 2026-11-22T08:00, or +2h, which counts from --from"
        raise UsageError(f"{what}, and nothing was changed", setting="--until", received=end, fix=fix)
    return first, last


def _clock_time(day: str | None, hour: int, minute: int, now: float) -> float:
    """Returns the unix seconds of a clock time on a day; without a day, of the next such time."""
    moment = datetime.fromtimestamp(now).replace(hour=hour, minute=minute, second=0, microsecond=0)
    if day == "tomorrow" or (day is None and moment.timestamp() <= now):
        moment += timedelta(days=1)
    return moment.timestamp()


def begin_notes(begin: float | None) -> list[str]:
    """Returns a note that confirms the begin time with its whole date; no note without a begin time."""
    if begin is None:
        return []
    when = time.strftime("%A %Y-%m-%d %H:%M:%S", time.localtime(begin))
    seconds = max(0.0, begin - time.time())
    # Rounded, so that +2h reads "in 2h 00m" although some milliseconds have passed.
    seconds = round(seconds / 60) * 60 if seconds >= 3600 else round(seconds)
    return [f"starts no earlier than {when}, in {format_duration(seconds)}"]


def _format_time(moment: float) -> str:
    try:
        return datetime.fromtimestamp(moment).isoformat(" ", "minutes")
    except (ValueError, OverflowError, OSError):  # out of the range of dates
        return f"{moment:g}"


def _default_card_count(devices: Devices | None) -> int:
    """Returns the number of cards of a task that gives none: from the settings, if torch can use cards of
    this machine."""
    from roost.devices import visible_cards

    can_use = devices is None or inventory.is_simulated() or visible_cards.torch_can_compute()
    if not can_use or not inventory.read_cards():
        return 0
    if devices is None or devices == "auto":
        return 1
    return len(devices) if isinstance(devices, list) else int(devices)
