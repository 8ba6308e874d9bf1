"""`roost devices`."""

from __future__ import annotations

import re
import shutil
from typing import Any

import click

from roost.base.errors import UsageError
from roost.base.text.byte_sizes import parse_memory
from roost.display import table, terminal


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
    from roost.display.device_table import format_devices
    from roost.operations.live_lab.card_cells import rules_text

    for line in format_devices(shown, table.terminal_width()):
        click.echo(line)
    terminal.print_status(rules_text(shown))
    return 0


def _print_history(since: str | None, *, as_json: bool) -> int:
    from roost.cli import device_history_view
    from roost.operations.devices import device_history
    from roost.operations.devices.device_list import DEFAULT_SINCE

    found = device_history.history(since or DEFAULT_SINCE)
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
