"""`roost ls`."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roost.cli import terminal

if TYPE_CHECKING:
    from roost.operations.row import Row

_HEADER = ("NAME", "STATE", "STEP", "EPOCH", "METRIC", "LAST", "BEST", "STARTED", "TIME", "SESSIONS", "ABOUT")
_LONGEST_ABOUT = 60


@click.command("ls")
@click.argument("directory", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="JSON.")
def command(directory: Path | None, as_json: bool) -> int:
    """Lists the packages of a folder; of ./runs, where the current one holds none.

    ABOUT is the description, or the last error of a run that failed.

    \b
    roost ls
    roost ls runs --json
    """
    from roost.operations.list_packages import list_packages

    rows = list_packages(directory)
    if as_json:
        import msgspec

        sys.stdout.buffer.write(msgspec.json.encode(rows) + b"\n")
    elif rows:
        draw = terminal.state if terminal.colours(sys.stdout) else str
        lines = terminal.columns(_HEADER, [_cells(row, draw) for row in rows])
        if sys.stdout.isatty():  # a line that wraps makes a table unreadable; --json has everything
            width = shutil.get_terminal_size().columns
            lines = [terminal.cut(line, width) for line in lines]
        sys.stdout.write("\n".join(lines) + "\n")
    else:
        terminal.say(f"no packages in {directory or '.'}")
    return 0


def _cells(row: Row, draw: object) -> list[str]:
    number = terminal.number
    step = "" if row.step is None else f"{row.step}/{row.total_steps}" if row.total_steps else f"{row.step}"
    return [
        row.name,
        draw(row.state),  # type: ignore[operator]
        step,
        "" if row.epoch is None else str(row.epoch),
        row.metric or "",
        number(row.last),
        number(row.best),
        "" if row.started is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(row.started)),
        terminal.duration(row.seconds),
        str(row.sessions),
        _about(row),
    ]


def _about(row: Row) -> str:
    text = row.error or row.description or ""
    line = text if text.isprintable() else terminal.harmless(" ".join(text.split()))
    return line if len(line) <= _LONGEST_ABOUT else line[: _LONGEST_ABOUT - 1] + "…"
