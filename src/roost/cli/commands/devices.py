"""`roost devices`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from roost.base.errors import UsageError
from roost.base.text.byte_sizes import format_memory, parse_memory
from roost.base.text.timestamps import format_clock
from roost.cli import terminal

if TYPE_CHECKING:
    from roost.operations.devices.devices import CardStatus

_HEADER = ("GPU", "MODEL", "USED", "OF", "BUSY", "TEMP", "STATE", "WHO")


class _TaskCountType(click.IntRange):
    """How many tasks: a number, or any."""

    name = "number or any"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == "any" else super().convert(value, param, ctx)


def _require_once(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> str | None:
    """Of an option that comes twice the last one would hold, in silence."""
    if len(value) > 1:
        fix = f"write all in one list: -d {','.join(dict.fromkeys(value))}"
        raise UsageError("is given several times", setting="-d", received=" ".join(value), fix=fix)
    return value[0] if value else None


@click.command("devices")
@click.option(
    "-d",
    "--devices",
    "allowed",
    multiple=True,
    callback=_require_once,
    metavar="LIST",
    help="Let the lab use these alone: 0,2 or all.",
)
@click.option(
    "--most-per-card", type=_TaskCountType(1), metavar="N", help="So many tasks may share a card, or any."
)
@click.option(
    "--foreign",
    type=click.Choice(["avoid", "fit", "ignore"]),
    help="On cards that somebody uses without a lease: nothing begins, what fits beside, or anything.",
)
@click.option("--keep-free", metavar="MB", help="So much of each card is given to no task: 2000, or 2GB.")
@click.option(
    "--cores",
    type=_TaskCountType(0),
    metavar="N",
    help="Cores for tasks of the CPU, one each without --cpus; any: all.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON.")
def command(
    allowed: str | None, most_per_card: Any, foreign: Any, keep_free: str | None, cores: Any, as_json: bool
) -> int:
    """Lists the GPUs of this machine and who is on them; changes how the lab uses them.

    A change holds from now on; what runs goes on.

    \b
    roost devices
    roost devices -d 0,2            # the lab uses these two
    roost devices -d all --most-per-card 2 --foreign avoid
    roost devices --keep-free 2GB   # for drivers and desktops
    roost devices --cores 4         # so many cores for tasks without a card
    """
    from roost.operations.devices import devices

    free_mb = parse_memory(keep_free, setting="--keep-free") if keep_free is not None else None
    asked = devices.DeviceChange(
        allowed=allowed, most_per_card=most_per_card, foreign=foreign, keep_free_mb=free_mb, cores=cores
    )
    if asked != devices.DeviceChange():
        devices.change(asked)
    shown = devices.show()
    if as_json:
        terminal.print_json(shown)
        return 0
    of_cpu = f"cores for tasks of the CPU: {shown.cores}"
    if not shown.cards:
        terminal.print_status(f"no GPUs; {of_cpu}")
        return 0
    for line in terminal.format_table(_HEADER, [row for card in shown.cards for row in _rows(card)]):
        click.echo(line)
    most = "any number" if shown.most_per_card is None else str(shown.most_per_card)
    terminal.print_status(
        f"tasks on a card: {most}; beside processes without a lease: {shown.foreign}; "
        f"{format_memory(shown.keep_free_mb)} of each stay free; {of_cpu}"
    )
    return 0


def _rows(card: CardStatus) -> Iterator[list[str]]:
    """One row, and one more for each further one who is on it."""
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


def _state(card: CardStatus) -> str:
    times = [
        f"drained {terminal.format_time(one.begin)[:-3]} to {terminal.format_time(one.end)[:-3]}"
        for one in card.windows
    ]
    alone = "one process at a time" * card.exclusive
    said = (card.trouble, "drained" * card.drained, *times, "not for the lab" * (not card.allowed), alone)
    return ", ".join(filter(None, said))


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
        yield f"{one.user or 'somebody'}, pid {one.pid}, without a lease{used}"


def _format_share(mb: int | None) -> str:
    return "the whole card" if mb is None else format_memory(mb)
