"""What a task asks of the lab, and whether that makes sense on this machine."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from roost.base.errors import ConfigError, NotFound, Refused, UsageError
from roost.base.interval import parse_duration
from roost.base.text.byte_sizes import format_memory
from roost.base.text.durations import format_duration
from roost.base.text.timestamps import parse_timestamp
from roost.devices import inventory
from roost.lab.queue import admission
from roost.lab.queue.history import RULES
from roost.lab.queue.queue_store import Store
from roost.lab.queue.task import Need, Task
from roost.operations import lab
from roost.operations.queue.task_labels import TaskLabels

if TYPE_CHECKING:
    from roost.config.settings import Devices

HIGHEST_PRIORITY = 1_000_000
_MAX_BEGIN_DAYS = 366
_CLOCK = re.compile(r"(?:(today|tomorrow)\s*)?(?:(\d{1,2}):(\d{2}))?")
_EXAMPLES = 'write 22:30, tomorrow, "tomorrow 08:00", +2h, or 2026-11-22T08:00'


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """What a task asks of the lab."""

    need: Need = field(default_factory=Need)
    """Of a training the time limit is that of its settings."""
    cards_from_settings: bool = False
    """Whether nobody has said how many cards: as many as its settings say, or one where there is one."""
    strategy: str | None = None
    """single, ddp or fsdp; None: as the settings say."""
    priority: int = 0
    after: Sequence[str] = ()
    """Tasks, by their ids, that must have succeeded before."""
    after_any: Sequence[str] = ()
    """Tasks, by their ids, that must have ended before, however."""
    begin: float | None = None
    """Unix seconds before which it does not start."""
    retries: int = 0
    """How many more times it may be started after it has failed."""
    most_parallel: int | None = None
    """How many of a sweep may run at once."""
    simulated: bool = field(default_factory=inventory.is_simulated)
    """Whether the lab's cards are simulated."""

    def check_values(self) -> None:
        """Makes sure that it says something, whatever the queue holds.

        Raises:
            UsageError: It does not.
        """
        if abs(self.priority) > HIGHEST_PRIORITY:
            fix = f"give one from -{HIGHEST_PRIORITY} to {HIGHEST_PRIORITY}"
            raise UsageError("is no priority", setting="--priority", received=self.priority, fix=fix)
        now = time.time()
        if self.begin is not None and self.begin < now - 1:
            what = f"was {format_duration(now - self.begin)} ago"
            fix = f"leave it out, or {_EXAMPLES}"
            raise UsageError(what, setting="--begin", received=_format_time(self.begin), fix=fix)
        if self.begin is not None and self.begin > now + _MAX_BEGIN_DAYS * 86400:
            fix = "give a moment within a year"
            raise UsageError("is too far away", setting="--begin", received=_format_time(self.begin), fix=fix)

    def check_dependencies(self) -> None:
        """Asks the queue whether it can begin some day, as far as other tasks are concerned.

        Raises:
            NotFound: It waits for a task that is not there.
            Refused: It waits for one that did not succeed.
        """
        if self.after:
            with lab.opened() as store:
                states, told = store.states(list(self.after)), TaskLabels(store, self.after)
            for other in self.after:
                admission.require_hope(told.said(other), states.get(other))

    def with_card_count(self, devices: Devices | None) -> TaskOptions:
        """With the number of cards, where nobody has said it.

        Args:
            devices: As the settings of a training say; None: it is a command.

        Raises:
            UsageError: Something is asked of its cards, and it has none; or nobody can know how many.
            Refused: The driver does not report.
        """
        strategy = self.strategy
        if self.cards_from_settings and strategy in ("ddp", "fsdp") and devices == "auto":
            what = f"{strategy} shares the work among several, and nobody has said among how many"
            raise UsageError(what, fix="add --gpus 2; or on the CPU: -CPU devices=2")
        cards = _default_card_count(devices) if self.cards_from_settings else self.need.cards
        need = msgspec.structs.replace(self.need, cards=cards)
        asked = {
            "-m": need.memory_mb is not None,
            "--whole": need.whole,
            "--opportunistic": need.opportunistic,
        }
        about_cards = [option for option, is_asked in asked.items() if is_asked]
        if about_cards and not cards:
            what = f"{' and '.join(about_cards)} is about cards, and this task has none"
            raise UsageError(what, fix="leave it out, or ask for cards: --gpus 1")
        if need.cores is not None and cards:
            what = "counts for tasks without a card alone, and this one has one"
            raise UsageError(what, setting="--cpus", received=need.cores, fix="leave it out, or add -CPU")
        return replace(self, need=need, cards_from_settings=False)


def require_satisfiable(needs: Sequence[Need]) -> None:
    """Makes sure that the machine is large enough, whoever uses it now.

    Raises:
        Refused: A task could never start; or the driver does not report.
    """
    with lab.opened() as store:
        asks = any(need.cards or need.cores for need in needs)
        if not store.settings().get(RULES) and not asks:
            return  # usual rules let every such task run, and reading them takes 20 ms
        from roost.lab.policy.wait_reasons import impossible
        from roost.lab.scheduling.site_rules import rules_in

        rules = rules_in(store)
    cards = inventory.read_cards() if any(need.cards for need in needs) else []
    for need in dict.fromkeys(needs):
        why = impossible(need, cards, rules)
        if why is not None:
            listed = "roost devices" if need.cards else "roost devices --cores N` or `any"
            verb = "lists all" if need.cards else "gives tasks of the CPU more"
            raise Refused(f"the task could never start: it {why}", fix=f"ask for less; `{listed}` {verb}")


def with_previous_share(options: TaskOptions, package: Path) -> tuple[TaskOptions, list[str]]:
    """With as much of each card, or as many cores, as the package's last task asked for, where nobody has
    said it; and what a person should hear of that.

    Args:
        options: What is asked; the number of cards is known.
        package: The package.
    """
    need = options.need
    if need.whole or need.memory_mb is not None or need.cores is not None:
        return options, []
    try:
        with lab.opened() as store:
            before = store.find(str(package)).need
    except NotFound:  # it was never a task
        return options, []
    if not need.cards and before.cores is not None:
        need = msgspec.structs.replace(need, cores=before.cores)
        asked, other = before.cores_in_words, "--cpus"
    elif need.cards and (before.whole or before.memory_mb is not None):
        need = msgspec.structs.replace(need, whole=before.whole, memory_mb=before.memory_mb)
        asked = "whole cards" if need.memory_mb is None else f"{format_memory(need.memory_mb)} of each card"
        other = "-m" if need.memory_mb is None else "-m or --whole"
    else:
        return options, []
    return replace(options, need=need), [f"{asked}, as the task before; {other} says otherwise"]


def find_task_ids(texts: Sequence[str], *, setting: str = "--after") -> tuple[str, ...]:
    """The ids of the tasks that a person means, each once; of a sweep, those of all its tasks.

    Raises:
        NotFound: There is no such task.
        UsageError: Several are meant.
    """
    if not texts:
        return ()
    with lab.opened() as store:
        return tuple(dict.fromkeys(task.id for text in texts for task in _find_tasks(store, text, setting)))


def _find_tasks(store: Store, text: str, setting: str) -> list[Task]:
    try:
        return store.find_all(text)
    except NotFound as error:
        if "," not in text:
            raise
        fix = f"name one at a time: {' '.join(f'{setting} {one}' for one in text.split(','))}"
        raise NotFound(error.message, setting=setting, received=text, fix=fix) from None


def parse_begin(text: str, *, now: float, setting: str = "--begin") -> float:
    """Unix seconds of ``22:30``, the next one; of ``tomorrow``, as it begins, or ``tomorrow 08:00``; of
    ``2026-11-22T08:00``; or of ``+2h`` from now on.

    Args:
        text: What was typed.
        now: Unix seconds.
        setting: Where, for messages.

    Raises:
        UsageError: It is none of these.
    """
    typed = text.strip().lower()
    try:
        if typed.startswith("+"):
            return now + parse_duration(typed[1:].strip(), setting=setting)
        if typed and (said := _CLOCK.fullmatch(typed)):
            return _clock_time(said[1], int(said[2] or 0), int(said[3] or 0), now)
        return parse_timestamp(text, setting=setting)
    except (ConfigError, UsageError, ValueError, OverflowError):
        raise UsageError("is no moment", setting=setting, received=text, fix=_EXAMPLES) from None


def parse_window(begin: str | None, end: str | None, *, off: bool = False) -> tuple[float, float] | None:
    """The moments between which cards are drained, unix seconds; None if nobody has said any.

    Args:
        begin: As for `parse_begin`; None: now.
        end: Likewise, the next one after ``begin``, from which ``+2h`` counts.
        off: All of it is taken back: then there are none.

    Raises:
        UsageError: One is no moment, they do not go together, or all of it is over.
    """
    if off and (begin or end):
        raise UsageError("--off takes all of it back", fix="leave out --from and --until")
    if begin is None and end is None:
        return None
    if end is None:
        raise UsageError("--from needs an end", received=f"--from {begin}", fix="add --until 08:00")
    now = time.time()
    first = parse_begin(begin, now=now, setting="--from") if begin is not None else now
    last = parse_begin(end, now=first, setting="--until")
    if last <= max(first, now):
        is_over = begin is None or last > first
        what = "is over" if is_over else f"is not after --from {begin}"
        fix = "write when it ends: 08:00, 2026-11-22T08:00, or +2h, which counts from --from"
        raise UsageError(f"{what}, and nothing was changed", setting="--until", received=end, fix=fix)
    return first, last


def _clock_time(day: str | None, hour: int, minute: int, now: float) -> float:
    """When the clock shows this on a day, or next."""
    moment = datetime.fromtimestamp(now).replace(hour=hour, minute=minute, second=0, microsecond=0)
    if day == "tomorrow" or (day is None and moment.timestamp() <= now):
        moment += timedelta(days=1)
    return moment.timestamp()


def begin_notes(begin: float | None) -> list[str]:
    """What is said back of the time before which a task does not start, with the whole date."""
    if begin is None:
        return []
    when = time.strftime("%A %Y-%m-%d %H:%M:%S", time.localtime(begin))
    left = max(0.0, begin - time.time())
    left = round(left / 60) * 60 if left >= 3600 else round(left)  # +2h is in 2h 00m, a moment later too
    return [f"begins not before {when}, in {format_duration(left)}"]


def _format_time(moment: float) -> str:
    try:
        return datetime.fromtimestamp(moment).isoformat(" ", "minutes")
    except (ValueError, OverflowError, OSError):  # no year has it
        return f"{moment:g}"


def _default_card_count(devices: Devices | None) -> int:
    """Without a word about it: what the settings say, on a machine that has cards which torch can use."""
    from roost.devices import visible_cards

    can_use = devices is None or inventory.is_simulated() or visible_cards.torch_can_compute()
    if not can_use or not inventory.read_cards():
        return 0
    if devices is None or devices == "auto":
        return 1
    return len(devices) if isinstance(devices, list) else int(devices)
