"""`roost drain`."""

from __future__ import annotations

import click

from roost.cli import terminal


@click.command("drain")
@click.argument("card")
@click.option("--off", is_flag=True, help="Let tasks begin there again, also where a time was said.")
@click.option("--from", "begin", metavar="TIME", help="From then on: 22:00, 2026-11-22T08:00, or +2h.")
@click.option(
    "--until", "end", metavar="TIME", help="Until then, likewise; +2h counts from --from, or else from now."
)
def command(card: str, off: bool, begin: str | None, end: str | None) -> int:
    """Lets no more tasks begin on a GPU, or on all; what runs there goes on.

    For a time alone, with --until: tasks that end before by their limit still begin. A clock that --until
    names is the next one after --from, which may be that of the next day.

    \b
    roost drain 0
    roost drain 0,2 --off
    roost drain all             # before the machine is shut down
    roost drain 1 --from 22:00 --until 08:00
    """
    from roost.operations.devices.devices import drain
    from roost.operations.queue.resources import parse_window

    window = parse_window(begin, end, off=off)
    drained = drain(card, off=off, window=window)
    names = ", ".join(f"GPU {one.number}" for one in drained)
    if off:
        terminal.print_status(f"{names}: tasks begin there again")
    elif window is None:
        terminal.print_status(f"{names}: no more tasks begin there")
    else:
        from_, until = map(terminal.format_time, window)
        is_one_day = from_.partition(" ")[0] == until.partition(" ")[0]
        more = (
            "" if is_one_day else f", over midnight, {terminal.format_duration(window[1] - window[0])} in all"
        )
        terminal.print_status(
            f"{names}: nothing runs there from {from_} to {until}{more}, but what runs already"
        )
    return 0
