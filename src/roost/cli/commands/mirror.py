"""`roost mirror`."""

from __future__ import annotations

import click

from roost.display import table, terminal


@click.command("mirror")
@click.argument("words", nargs=-1, metavar="[PACKAGE...]")
@click.option("--flush", is_flag=True, help="Send the rows that mirrors of ended runs lack.")
@click.option(
    "--timeout",
    "timeout_seconds",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="With --flush: how long one mirror may take (default 60).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(words: tuple[str, ...], flush: bool, timeout_seconds: float | None, as_json: bool) -> int:
    """Shows whether the mirrors of packages (TensorBoard, W&B, MLflow, CSV) have all rows.

    A word is a path, a name, a task, a pattern or a folder, or they are a query as for roost ls; without any,
    all packages that roost knows. With --flush, mirrors of runs that have ended get what they lack: after a
    kill, or if a server did not answer in time. The exit code is 1 if one of them still lacks rows.

    \b
    roost mirror runs
    roost mirror --flush
    roost mirror --flush runs/NAME --timeout 600
    """
    from roost.base.errors import UsageError
    from roost.operations.curves.flush_mirrors import TIMEOUT_SECONDS, flush_mirrors, list_mirrors

    if timeout_seconds is not None and not flush:
        raise UsageError("--timeout is for --flush", fix="add --flush, or leave it out")
    seconds = TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds
    found = []
    for one in flush_mirrors(words, timeout_seconds=seconds) if flush else list_mirrors(words):
        found.append(one)
        for line in one.lines:
            terminal.print_status(line)
    if as_json:
        terminal.print_json([one._asdict() for one in found])
    else:
        rows = [(one.package, one.kind, one.state, str(one.rows or ""), one.error or "") for one in found]
        for text in table.fit_table(("PACKAGE", "MIRROR", "STATE", "SENT", "ERROR"), rows, left_out=["SENT"]):
            click.echo(text)
    if not found:
        terminal.print_status("no package here has a mirror; section `mirrors` of the config switches one on")
    lacking = [one for one in found if one.state in ("incomplete", "unknown")]
    if lacking and not flush:
        terminal.print_status(f"{len(lacking)} may lack rows; `roost mirror --flush` sends them")
    return 1 if flush and lacking else 0
