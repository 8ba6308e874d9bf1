"""`roost logs`."""

from __future__ import annotations

import sys

import click

from roost.cli import terminal


@click.command("logs")
@click.argument("package", metavar="PACKAGE|TASK")
@click.option("-f", "--follow", is_flag=True, help="Go on until what runs has ended; a task, for good.")
@click.option("-n", "--lines", type=click.IntRange(min=0), help="Only the last so many lines.")
@click.option("--rank", type=click.IntRange(min=0), default=0, help="What this rank printed; else rank 0.")
def command(package: str, follow: bool, lines: int | None, rank: int) -> int:
    """Prints what a package printed: bytes into a pipe, without control sequences onto a terminal.

    A package is given by its path, a task by its id, the beginning of that, or its name.

    \b
    roost logs runs/NAME -n 50
    roost logs runs/NAME -f
    roost logs 01m7ybz8bp -f           # a task, from its start on, through all attempts
    roost logs runs/NAME --rank 1    # of a run of several processes
    """
    from roost.operations.reading.logs import logs, silence

    decode, is_silent = terminal.OutputDecoder() if sys.stdout.isatty() else None, lines != 0
    for piece in logs(package, follow=follow, lines=lines, rank=rank):
        if isinstance(piece, str):
            terminal.print_status(piece)
        else:
            is_silent = is_silent and not piece
            terminal.write_bytes(decode(piece).encode() if decode else piece)
    if decode:
        terminal.write_bytes(decode(b"", final=True).encode())
    if is_silent and not rank:
        terminal.print_status(silence(package))
    return 0
