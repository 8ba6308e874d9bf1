"""`roost ls`."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roost.base.errors import NotFound
from roost.cli import terminal

if TYPE_CHECKING:
    from roost.operations.queue.seed_statistics import MeanStd
    from roost.operations.reading.package_row import PackageSummary

_HEADER = (
    "NAME", "STATE", "STEP", "EPOCH", "METRIC", "LAST", "BEST", "STARTED", "TIME", "SESSIONS",
    "FROM", "ABOUT",
)  # fmt: skip
_MAX_ABOUT = 60
_DROPPED_COLUMNS = (
    ("EPOCH",),
    ("SESSIONS",),
    ("FROM",),
    ("STARTED",),
    ("BEST",),
    ("TIME",),
    ("METRIC", "LAST"),
)
"""Columns that are left out on a narrow terminal, in this order, until the rest fits."""
_MIN_ABOUT = 16
"""Characters of the last column that stay visible when it is truncated."""
_OPERATORS = frozenset(" :=<>")


@click.command("ls")
@click.argument("words", nargs=-1, metavar="[DIRECTORY] [QUERY]...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(words: tuple[str, ...], as_json: bool) -> int:
    """Lists the packages of the current folder, or of ./runs or ./Saves if it has none, or of DIRECTORY.

    QUERY selects packages. All its terms must hold: a word (part of the name or description), KEY:TEXT,
    KEY=VALUE, or != < <= > >=. sort:KEY and sort:-KEY sort the list. A KEY is a column (status, step, best,
    seconds, started), a setting (optimizers.main.lr, or its end: lr) or a metric (its newest value). Packages
    without a value do not match, and are sorted last. Put < and > into quotes.

    FROM is the parent of a fork, and the step. ABOUT is the description, with early stop or time limit if
    that ended the run, or the last error of a failed run. On a narrow terminal columns are left out. Below
    the table are mean and standard deviation over the succeeded runs of a sweep that differ only in their
    seed (`roost submit CONFIG seed=0..4`).

    \b
    roost ls
    roost ls runs --json
    roost ls 'status:running lr<1e-3 valid/accuracy>=0.9 sort:-valid/accuracy'
    """
    from roost.operations.reading.list_packages import list_packages, listed_folder

    directory, query = _folder_and_query(words)
    rows = list_packages(directory, query)
    if not rows and directory is None and len(words) == 1 and not set(query) & _OPERATORS:
        raise NotFound(
            "no package has this in its name or description, and there is no such folder",
            received=query,
            fix="run `roost ls` to list all packages of this folder",
        )
    if as_json:
        import msgspec

        sys.stdout.write(terminal.encode_json(msgspec.json.encode(rows)) + "\n")
    elif rows:
        sys.stdout.write(
            "\n".join([*_table([_cells(row) for row in rows]), *_seed_statistics_lines(rows)]) + "\n"
        )
    else:
        terminal.print_status(
            f"no packages in {listed_folder(directory)}" + (f" match {query}" if query else "")
        )
    return 0


def _folder_and_query(words: Sequence[str]) -> tuple[Path | None, str]:
    """Returns the folder and the query. The first word is a folder if it exists, or looks like a path."""
    first = words[0] if words else ""
    is_path = first.startswith((".", "/", "~")) and not set(first) & _OPERATORS
    if first and (is_path or Path(first).is_dir()):
        return Path(first), " ".join(words[1:])
    return None, " ".join(words)


def _table(rows: list[list[str]]) -> list[str]:
    columns = {
        name: cells for name, cells in zip(_HEADER, zip(*rows, strict=True), strict=True) if any(cells)
    }
    width = _terminal_width()
    names = list(columns)
    if width is not None:
        names = terminal.fit_columns(
            columns, width, dropped=_DROPPED_COLUMNS, truncated="ABOUT", min_truncated=_MIN_ABOUT
        )
    if terminal.allows_colours(sys.stdout):
        columns["STATE"] = tuple(map(terminal.format_state, columns["STATE"]))
    lines = terminal.format_table(names, zip(*(columns[name] for name in names), strict=True))
    return _truncate(lines, width)


def _seed_statistics_lines(rows: Sequence[PackageSummary]) -> list[str]:
    """Returns the lines of the second table, with mean and standard deviation over seeds."""
    if not any(row.group for row in rows):  # ten thousand packages without a sweep cost no import
        return []
    from roost.operations.queue.seed_statistics import statistics_over_seeds

    found = statistics_over_seeds(rows)
    cells = [
        [one.name, str(one.runs), one.metric, _format_mean_std(one.last), _format_mean_std(one.best)]
        for one in found
    ]
    if not cells:
        return []
    lines = terminal.format_table(("OVER SEEDS", "RUNS", "METRIC", "LAST", "BEST"), cells)
    return ["", *_truncate(lines, _terminal_width())]


def _terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _truncate(lines: list[str], width: int | None) -> list[str]:
    """Truncates lines, as a line that wraps makes a table unreadable; --json has everything."""
    return lines if width is None else [terminal.truncate(line, width) for line in lines]


def _format_mean_std(values: MeanStd | None) -> str:
    return "" if values is None else f"{terminal.format_number(values.mean)} ± {values.std:.2g}"


def _cells(row: PackageSummary) -> list[str]:
    number = terminal.format_number
    step = "" if row.step is None else f"{row.step}/{row.total_steps}" if row.total_steps else f"{row.step}"
    return [
        row.name,
        row.state,
        step,
        "" if row.epoch is None else str(row.epoch),
        row.metric or "",
        number(row.last),
        number(row.best),
        "" if row.started is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(row.started)),
        terminal.format_duration(row.seconds),
        str(row.sessions),
        "" if row.parent is None else f"{row.parent}@{row.parent_step}",
        _about(row),
    ]


def _about(row: PackageSummary) -> str:
    text = row.error or "; ".join(filter(None, (row.reason, row.description)))
    line = text if text.isprintable() else terminal.escape_text(" ".join(text.split()))
    return line if len(line) <= _MAX_ABOUT else line[: _MAX_ABOUT - 1] + "…"
