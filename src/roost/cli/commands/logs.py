"""`roost logs`."""

from __future__ import annotations

import sys

import click

from roost.display import terminal


@click.command("logs")
@click.argument("package", metavar="PACKAGE|TASK")
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Print new output until the session ends; of a task, until the task ends.",
)
@click.option("-n", "--lines", type=click.IntRange(min=0), help="Only the last N lines.")
@click.option(
    "--rank", type=click.IntRange(min=0), default=0, help="The output of this rank; default: rank 0."
)
def command(package: str, follow: bool, lines: int | None, rank: int) -> int:
    """Prints the output of a package or task: unchanged to a pipe, without control sequences on a terminal.

    A package is given by its path; a task by its id, the beginning of its id, or its name. With -f the exit
    code is that of the run or the command: 0 succeeded, 75 stopped, another one failed or crashed. Ctrl-C
    ends only the following.

    \b
    roost logs runs/NAME -n 50
    roost logs runs/NAME -f
    roost logs 01m7ybz8bp -f           # a task from its start, with all its attempts
    roost logs runs/NAME --rank 1    # one rank of a run with several
    """
    from roost.operations.reading.logs import explain_no_output, logs

    decode = terminal.OutputDecoder() if terminal.shows_text(sys.stdout) else None
    is_silent = lines != 0
    code, pieces = 0, logs(package, follow=follow, lines=lines, rank=rank)
    while True:
        try:
            piece = next(pieces)
        except StopIteration as end:
            code = int(end.value)
            break
        if isinstance(piece, str):
            terminal.print_status(piece)
        else:
            is_silent = is_silent and not piece
            terminal.write_bytes(decode(piece).encode() if decode else piece)
    if decode:
        terminal.write_bytes(decode(b"", final=True).encode())
    if is_silent and not rank:
        terminal.print_status(explain_no_output(package))
    return code
