"""`roost drain`."""

from __future__ import annotations

import click

from roost.display import terminal


@click.command("drain")
@click.argument("card")
@click.option("--off", is_flag=True, help="Let tasks start again; removes a planned window too.")
@click.option("--from", "begin", metavar="TIME", help="Start of a window: 22:00, 2026-11-22T08:00, or +2h.")
@click.option(
    "--until", "end", metavar="TIME", help="End of the window; +2h counts from --from, or from now."
)
def command(card: str, off: bool, begin: str | None, end: str | None) -> int:
    """Keeps new tasks off GPUs; tasks that run there continue.

    CARD is a GPU, a list of GPUs, or all. With --until it is for a window of time: before it, tasks still
    start whose time limit ends them in time. A time of day in --until is the first one after --from, possibly
    on the next day.

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
        terminal.print_status(f"{names}: tasks can start again")
    elif window is None:
        terminal.print_status(f"{names}: no more tasks start")
    else:
        from_, until = map(terminal.format_time, window)
        is_one_day = from_.partition(" ")[0] == until.partition(" ")[0]
        more = (
            "" if is_one_day else f", over midnight, {terminal.format_duration(window[1] - window[0])} in all"
        )
        terminal.print_status(
            f"{names}: no tasks from {from_} to {until}{more}; tasks that already run continue"
        )
    return 0
