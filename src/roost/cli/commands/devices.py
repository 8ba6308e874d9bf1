"""`roost devices`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from roost.base.errors import UsageError
from roost.base.text.byte_sizes import format_memory, parse_memory
from roost.base.text.counts import format_cores
from roost.base.text.timestamps import format_clock
from roost.display import table, terminal
from roost.display.table import Narrowing, TableColumn

if TYPE_CHECKING:
    from roost.operations.devices.devices import CardStatus
    from roost.operations.devices.host_status import HostStatus

_HEADER = ("GPU", "MODEL", "USED", "OF", "BUSY", "TEMP", "STATE", "WHO")
_SHORTENED: dict[str, tuple[int, Literal["wrapped"]]] = {"STATE": (10, "wrapped"), "WHO": (10, "wrapped")}
_MIN_WRAPPED = 38
"""Characters that the last two columns have together, if they need so many, before others are left out."""


class _TaskCountType(click.IntRange):
    """The type of an option that is a number, or any."""

    name = "number or any"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == "any" else super().convert(value, param, ctx)


def _require_once(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> str | None:
    """Refuses a repeated option: click would silently use the last one only."""
    if len(value) > 1:
        fix = f"write all in one list: -d {','.join(dict.fromkeys(value))}"
        raise UsageError("is given several times", setting="-d", received=" ".join(value), fix=fix)
    if not value:
        return None
    from roost.operations.devices.devices import without_cpu

    if (cards := without_cpu(value[0], setting="-d")) != value[0]:
        terminal.print_status("-1 is the CPU, which tasks may always use")
    return cards


_NUMBER, _NUMBERS = re.compile(r"-?\d+"), re.compile(r"-?\d+(,-?\d+)*")


class _DevicesCommand(click.Command):
    """Takes the numbers after ``-d`` with blanks between them as one list."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        joined: list[str] = []
        for one in args:
            follows = joined[-2:-1] in (["-d"], ["--devices"]) and _NUMBERS.fullmatch(joined[-1])
            if follows and _NUMBER.fullmatch(one):
                joined[-1] += f",{one}"
            else:
                joined.append(one)
        return super().parse_args(ctx, joined)


@click.command("devices", cls=_DevicesCommand)
@click.option(
    "-d",
    "--devices",
    "allowed",
    multiple=True,
    callback=_require_once,
    metavar="LIST",
    help="Let the lab use only these: 0,2 or 0 2, or all.",
)
@click.option(
    "--most-per-card", type=_TaskCountType(1), metavar="N", help="How many tasks may share a card, or any."
)
@click.option(
    "--foreign",
    type=click.Choice(["avoid", "fit", "ignore"]),
    help="On cards with a process without a lease: start no task, one that fits in free memory, or any.",
)
@click.option("--keep-free", metavar="MB", help="Memory of each card that no task gets: 2000, or 2GB.")
@click.option(
    "--cores",
    type=_TaskCountType(0),
    metavar="N",
    help="Cores for all tasks; any: all cores. A CPU task without --cpus takes one.",
)
@click.option(
    "--host-memory", metavar="MB", help="Memory of the machine for all tasks: 64000, 64GB, or any: all of it."
)
@click.option("--history", "is_history", is_flag=True, help="Draw what cards and host did.")
@click.option("--since", metavar="TIME", help="How far back --history goes: 30min, 12h; default: 1h.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    allowed: str | None,
    most_per_card: Any,
    foreign: Any,
    keep_free: str | None,
    cores: Any,
    host_memory: str | None,
    is_history: bool,
    since: str | None,
    as_json: bool,
) -> int:
    """Lists the GPUs of this machine, what uses them, and the host; changes how the lab uses them.

    In the row of the host, MODEL are its cores, USED and OF is its memory, and BUSY is its load: how many
    processes compute or wait for a core.

    A change applies to tasks that start from now on. Running tasks continue.

    \b
    roost devices
    roost devices -d 0,2            # the lab uses only these two
    roost devices -d all --most-per-card 2 --foreign avoid
    roost devices --keep-free 2GB   # for the desktop and other programs
    roost devices --cores 4 --host-memory 16GB   # what all tasks together may have of the host
    roost devices --history --since 12h          # a picture of the last hours; about a day is stored
    """
    from roost.operations.devices import devices

    if since is not None and not is_history:
        raise UsageError("belongs to --history", setting="--since", received=since, fix="add --history")
    free_mb = parse_memory(keep_free, setting="--keep-free") if keep_free is not None else None
    host_mb: Any = host_memory
    if host_memory not in (None, "any"):
        host_mb = parse_memory(str(host_memory), setting="--host-memory")
    change = devices.DeviceChange(
        allowed=allowed,
        most_per_card=most_per_card,
        foreign=foreign,
        keep_free_mb=free_mb,
        cores=cores,
        host_memory_mb=host_mb,
    )
    if change != devices.DeviceChange():
        devices.change(change)
    if is_history:
        return _print_history(since, as_json=as_json)
    shown = devices.show()
    if as_json:
        terminal.print_json(shown)
        return 0
    rows = [*(row for card in shown.cards for row in _rows(card)), _host_row(shown.host)]
    for line in _lines(rows, table.terminal_width()):
        click.echo(line)
    for_tasks = _format_host(shown.host.cores, shown.host.memory_mb)
    if not shown.cards:
        terminal.print_status(f"no GPUs; for tasks: {for_tasks}")
        return 0
    most = "any number" if shown.most_per_card is None else str(shown.most_per_card)
    terminal.print_status(
        f"tasks per card: {most}; cards with processes without a lease: {shown.foreign}; "
        f"kept free on each card: {format_memory(shown.keep_free_mb)}; for tasks: {for_tasks}"
    )
    return 0


def _print_history(since: str | None, *, as_json: bool) -> int:
    from roost.cli import device_history_view
    from roost.operations.devices import device_history

    found = device_history.history(since or device_history.DEFAULT_SINCE)
    if as_json:
        terminal.print_json(found)
        return 0
    if not found.times:
        terminal.print_status("nothing was sampled in this time: the machine is sampled while sessions run")
        return 0
    for line in device_history_view.format_history(found, width=shutil.get_terminal_size().columns):
        click.echo(line)
    if found.trouble:
        terminal.print_status(f"no samples of the cards now: {found.trouble}")
    return 0


def _lines(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Returns the lines of the table. On a terminal STATE and WHO continue in further lines, so that no line
    is broken within a word; TEMP and BUSY are left out where these two would be too narrow."""
    columns = zip(_HEADER, zip(*rows, strict=True), strict=True)
    return table.format_columns(
        [TableColumn(name, cells, *_SHORTENED.get(name, ())) for name, cells in columns],
        width,
        narrowing=[Narrowing(_MIN_WRAPPED, (("TEMP",), ("BUSY",)))],
    )


def _rows(card: CardStatus) -> Iterator[list[str]]:
    """Yields the row of a card, and one more row for each further task, lease or process on it."""
    first, *others = [*_users(card)] or [""]
    total = card.total_mb
    yield [
        str(card.number),
        card.name,
        format_memory(total - card.free_mb) if total else "",
        format_memory(total) if total else "",
        "" if card.utilization is None else f"{card.utilization}%",
        "" if card.temperature is None else f"{card.temperature} C",
        _state(card),
        first,
    ]
    for who in others:
        yield ["", "", "", "", "", "", "", who]


def _host_row(host: HostStatus) -> list[str]:
    used, total, busy = host.memory_used_mb, host.total_memory_mb, host.busy_cores
    given = _format_host(host.cores_given, host.memory_given_mb or None)
    return [
        "host",
        _format_host(host.cores),
        "" if used is None else format_memory(used),
        "" if total is None else format_memory(total),
        "" if busy is None else f"load {busy:.1f}",
        "",
        f"given to tasks: {given}" if host.cores_given or host.memory_given_mb else "",
        "",
    ]


def _format_host(cores: int, mb: int | None = None) -> str:
    memory = [] if mb is None else [format_memory(mb)]
    return ", ".join([format_cores(cores), *memory])


def _state(card: CardStatus) -> str:
    times = [
        f"drained {terminal.format_time(one.begin)[:-3]} to {terminal.format_time(one.end)[:-3]}"
        for one in card.windows
    ]
    alone = "one process at a time" * card.exclusive
    reasons = (
        card.trouble,
        "drained" * card.drained,
        *times,
        "not used by the lab" * (not card.allowed),
        alone,
    )
    return ", ".join(filter(None, reasons))


def _users(card: CardStatus) -> Iterator[str]:
    for task in card.tasks:
        yield f"task {task.short or task.id} {task.name}: {_format_share(task.mb)}, {task.state}"
    for lease in card.leases:
        what = f", {lease.package}" if lease.package else ""
        pid = f", pid {lease.pid}" if lease.pid is not None else ""
        who = f"a task of {lease.user}" if lease.task else f"{lease.user}{pid}"
        yield f"{who}: {_format_share(lease.mb)} since {format_clock(lease.since)}{what}"
    for one in card.processes:
        used = "" if one.mb is None else f": {format_memory(one.mb)}"
        yield f"{one.user or 'unknown user'}, pid {one.pid}, without a lease{used}"


def _format_share(mb: int | None) -> str:
    return "the whole card" if mb is None else format_memory(mb)
