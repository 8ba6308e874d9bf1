"""`roost ls`."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from roost.base.errors import NotFound, UsageError
from roost.base.text.byte_sizes import format_bytes
from roost.base.text.durations import format_age
from roost.display import table, terminal
from roost.display.table import Narrowing, TableColumn

if TYPE_CHECKING:
    from roost.operations.listing.package_row import PackageSummary
    from roost.operations.listing.run_groups import MeanStd, RunGroup
    from roost.operations.listing.run_listing import RunListing

_HEADER = (
    "NAME", "STATE", "STEP", "EPOCH", "METRIC", "LAST", "BEST", "STARTED", "TIME", "SESSIONS",
    "FROM", "DURABLE", "TAGS", "ABOUT",
)  # fmt: skip
_MAX_ABOUT = 60
_MAX_CELL = 24
"""Characters of a setting."""
_LEFT_OUT = (
    ("EPOCH",),
    ("SESSIONS",),
    ("FROM",),
    ("STARTED",),
    ("BEST",),
    ("TIME",),
    ("TAGS",),
    ("DURABLE",),
)
"""Columns that are left out on a narrow terminal, in this order, until the rest fits; after them settings,
the last one first, then `_LAST_LEFT_OUT`."""
_LAST_LEFT_OUT = (("METRIC", "LAST", "BEST"),)
_MIN_ABOUT = 16
"""Characters of the last column that stay visible when it is shortened."""
_BAR_CHARACTERS = 10
_LINES_BESIDE_ROWS = 4
"""Lines of a screen that are no rows: the header, the number of packages left out, the next prompt."""
_LINES_BESIDE_GROUPS = 2
"""The empty line and the header of the second table."""
SEED = "seed"
"""As `roost.operations.listing.run_groups.SEED`, which is imported only where there are groups."""


@click.command("ls")
@click.argument("words", nargs=-1, metavar="[DIRECTORY]... [QUERY]...")
@click.option("--all", "everywhere", is_flag=True, help="List the packages of every known folder.")
@click.option("--columns", metavar="KEY,...", help="Show these columns: keys as in QUERY.")
@click.option("--sort", "sort", metavar="KEY", help="As the term sort:KEY; -KEY sorts in descending order.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    metavar="N",
    help="At most N packages or groups, unsorted: the newest packages; 0: all. Default: a screenful.",
)
@click.option("--group-by", metavar="KEY", help="A line for each seed group, sweep, or value of KEY.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all settings and metrics.")
def command(
    words: tuple[str, ...],
    everywhere: bool,
    columns: str | None,
    sort: str | None,
    limit: int | None,
    group_by: str | None,
    as_json: bool,
) -> int:
    """Lists the packages of the current folder, or of ./runs or ./Saves if it has none, or of each
    DIRECTORY.

    QUERY selects packages. All its terms must hold: a word (part of the name or description), KEY:TEXT,
    KEY=VALUE, or != < <= > >=. sort:KEY and sort:-KEY sort the list. A KEY is a column (status, step, best,
    seconds, started, size), a setting (optimizers.main.lr, or its end: lr) or a metric (its newest value).
    Packages without a value do not match, and are sorted last. Put < and > into quotes.

    Settings in which the packages differ, and keys of the query, are columns. FROM is the parent of a fork,
    and the step. DURABLE is the step up to which the remote copy has the run, or since which it does not get
    further. TAGS begin with a star if the package is starred. ABOUT is the description and the note,
    with early stop or time limit if that ended the run, or the last error of a failed run. On a narrow
    terminal columns are left out. Below the table of a sweep are mean and standard deviation over the
    succeeded runs that differ only in their seed.

    --group-by seed shows that for any packages, --group-by sweep for whole sweeps, --group-by lr for equal
    values of a key. Groups are sorted by the means of the first sort key.

    \b
    roost ls
    roost ls runs ../older/runs 'status:running lr<1e-3' --sort -valid/accuracy
    roost ls --all --columns lr,valid/accuracy,size --limit 20
    roost ls runs --group-by seed --sort valid/loss
    """
    from roost.operations.listing.named_packages import is_query, split_words
    from roost.operations.listing.run_listing import list_runs

    directories, query = split_words([*words, *([_sort_term(sort)] if sort is not None else [])])
    if everywhere:
        from roost.operations.listing.known_folders import known_folders

        if directories:
            raise UsageError(
                "lists every folder", setting="--all", received=str(directories[0]), fix="give one of the two"
            )
        directories = known_folders()
    given = directories if directories or everywhere else [None]
    if group_by is not None:
        if columns is not None:
            raise UsageError(
                "groups have no such columns", setting="--columns", received=columns, fix="leave out one"
            )
        return _print_groups(given, query, group_by, limit=limit or None, as_json=as_json)
    names = _column_names(columns) if columns is not None else [] if as_json else None
    screen = None
    if limit is None and sys.stdout.isatty() and not as_json:
        screen = limit = max(1, shutil.get_terminal_size().lines - _LINES_BESIDE_ROWS)
    found = list_runs(given, query, columns=names, limit=limit or None)
    if not found.packages and not directories and len(words) == 1 and not is_query(query):
        raise NotFound(
            "no package has this in its name or description, and there is no such folder",
            received=query,
            fix="run `roost ls` to list all packages of this folder",
        )
    if as_json:
        import msgspec

        from roost.operations.listing.run_listing import complete_rows

        sys.stdout.write(terminal.encode_json(msgspec.json.encode(complete_rows(found))) + "\n")
        return 0
    if not found.packages:
        _report_none(given, query)
        return 0
    is_chosen = columns is not None
    groups = _seed_groups(given, query) if any(row.sweep for row in found.rows) and not is_chosen else []
    hidden_groups = 0
    if screen is not None and groups:
        shown = groups[: max(1, screen // 2 - _LINES_BESIDE_GROUPS)]
        hidden_groups, groups = len(groups) - len(shown), shown
        found = found.first(max(1, screen - len(groups) - _LINES_BESIDE_GROUPS - bool(hidden_groups)))
    lines = _lines(found, show_folders=len(given) > 1, chosen=is_chosen)
    if groups:
        lines += ["", *_group_table(SEED, groups)]
    sys.stdout.write("\n".join(lines) + "\n")
    if hidden_groups:
        terminal.print_status(f"… and {hidden_groups:,} more of these: --group-by seed")
    _report_hidden(found.hidden)
    if columns is not None:
        _report_empty(found.columns)
    return 0


def _column_names(text: str) -> list[str]:
    return [name for one in text.split(",") if (name := one.strip())]


def _sort_term(key: str) -> str:
    """Returns the term of a query that sorts by a key, which may have spaces."""
    if key[:1] in "\"'" or not any(map(str.isspace, key)):
        return f"sort:{key}"
    quote = "'" if '"' in key else '"'
    return f"sort:{quote}{key}{quote}"


def _report_empty(columns: Mapping[str, Sequence[Any]]) -> None:
    """Names the columns that the table leaves out, because they are empty."""
    empty = [name for name, values in columns.items() if not any(_cell(name, one) for one in values)]
    if empty:
        terminal.print_status(terminal.escape_text(f"no package shown has a value: {', '.join(empty)}"))


def _report_hidden(count: int) -> None:
    if count:
        terminal.print_status(f"… and {count:,} more: --limit 0")


def _report_none(directories: Sequence[Path | None], query: str) -> None:
    from roost.operations.listing.list_packages import listed_folder

    where = ", ".join(str(listed_folder(one)) for one in directories) or "any known folder"
    terminal.print_status(f"no packages in {where}" + (f" match {query}" if query else ""))


def _lines(found: RunListing, *, show_folders: bool, chosen: bool) -> list[str]:
    """Returns the lines of the table.

    Args:
        found: The packages.
        show_folders: Whether the names are paths, because there are several folders.
        chosen: Whether the user has chosen the columns.
    """
    cells = [_cells(row) for row in found.rows]
    every: dict[str, Sequence[str]] = dict(zip(_HEADER, zip(*cells, strict=True), strict=True))
    if show_folders:
        every["NAME"] = [terminal.format_path(one.folder / one.name) for one in found.packages]
    if terminal.allows_colours(sys.stdout):
        every["STATE"] = tuple(map(terminal.format_state, every["STATE"]))
    added = {f"'{name}'" if name in every else name: [_cell(name, value) for value in values]
             for name, values in found.columns.items()}  # fmt: skip
    columns = {name: every.pop(name) for name in ("NAME", "STATE")} | added | ({} if chosen else every)
    width = table.terminal_width()
    half = (width or 0) // 2
    shortened: dict[str, tuple[int, Literal["end", "middle"]]] = {
        "NAME": (half, "middle"),
        "ABOUT": (_MIN_ABOUT, "end"),
    }
    settings = [(name,) for name in reversed(added)]
    visible = min(half, max(map(len, columns["NAME"]))) + _MIN_ABOUT
    return table.format_columns(
        [TableColumn(name, one, *shortened.get(name, ())) for name, one in columns.items()],
        width,
        narrowing=[Narrowing(visible, (*_LEFT_OUT, *settings, *_LAST_LEFT_OUT))],
    )


def _cell(name: str, value: Any) -> str:
    from roost.operations.listing.query import SIZE

    if value is None:
        return ""
    if name == SIZE:
        return format_bytes(value)
    if name == "started":
        return terminal.format_time(value)
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    text = terminal.format_number(value) if isinstance(value, float) else str(value)
    return terminal.truncate(text, _MAX_CELL)


def _print_groups(
    directories: Iterable[Path | None], query: str, key: str, *, limit: int | None, as_json: bool
) -> int:
    from roost.operations.listing.run_groups import group_runs

    found = group_runs(directories, query, key)
    groups = found[:limit]
    if as_json:
        terminal.print_json(groups)
    elif groups:
        sys.stdout.write("\n".join(_group_table(key, groups)) + "\n")
        _report_hidden(len(found) - len(groups))
    else:
        terminal.print_status("no packages" + (f" match {query}" if query else ""))
    return 0


def _seed_groups(directories: Iterable[Path | None], query: str) -> list[RunGroup]:
    """Returns the groups of the second table, with mean and standard deviation over seeds."""
    from roost.operations.listing.run_groups import group_runs

    return [one for one in group_runs(directories, query, SEED) if one.succeeded > 1]


def _group_title(key: str, names: Sequence[str]) -> str:
    """Returns the name of the column with the values of groups: of those over seeds the setting that varies
    besides, if it is one."""
    if key != SEED:
        return key.upper()
    return f"{names[0]} (over seeds)" if len(names) == 1 else "OVER SEEDS"


def _group_table(key: str, groups: Sequence[RunGroup]) -> list[str]:
    sweeps = Counter(one.sweep_name for one in groups)
    named_twice = frozenset(name for name, count in sweeps.items() if count > 1)
    names = _distinguishing_names(groups)
    title = _group_title(key, names)
    sorted_by = list(dict.fromkeys(name for one in groups for name in one.sorted_by))
    cells = [
        [
            _format_group(one, names, named_twice),
            _format_count(one),
            *(_format_mean_std(one.sorted_by.get(name)) for name in sorted_by),
            one.metric or "",
            _format_mean_std(one.last),
            _format_mean_std(one.best),
            Path(one.first_run).name,
        ]
        for one in groups
    ]
    header = (title, "RUNS", *sorted_by, "METRIC", "LAST", "BEST", "FIRST")
    columns = zip(header, zip(*cells, strict=True), strict=True)
    return table.format_columns(
        [
            TableColumn(name, one, *((_MIN_ABOUT, "middle") if name in (title, "FIRST") else ()))
            for name, one in columns
        ],
        table.terminal_width(),
        narrowing=[Narrowing(4 * _MIN_ABOUT, (("FIRST",), ("BEST",), ("METRIC",)))],
    )


def _format_count(group: RunGroup) -> str:
    """Returns the number of runs; if not all succeeded how many did, on a terminal with a bar."""
    if group.succeeded == group.runs:
        return str(group.runs)
    text = f"{group.succeeded} of {group.runs}"
    bar = table.format_bar(group.succeeded / group.runs, _BAR_CHARACTERS)
    return f"{bar} {text}" if sys.stdout.isatty() else text


def _distinguishing_names(groups: Sequence[RunGroup]) -> list[str]:
    """Returns the keys that are shown: not those that have one value wherever there is one, as many settings
    of another project do, unless groups would look the same without them."""
    values: dict[str, set[str]] = {}
    for one in groups:
        for name, value in one.values.items():
            values.setdefault(name, set()).add(repr(value))
    names = [name for name, found in values.items() if len(found) > 1]
    labels = {repr([one.values.get(name) for name in names]) for one in groups}
    is_enough = names and len(labels) == len({repr(one.values) for one in groups})
    return names if is_enough else list(values)


def _format_group(group: RunGroup, names: Sequence[str], named_twice: Collection[str | None]) -> str:
    """Returns the values of a group; of a sweep its name, with the id if another one has that name, too."""
    if list(group.values) != ["sweep"] or group.values["sweep"] is None:
        return _format_values({name: value for name, value in group.values.items() if name in names})
    name, id = group.sweep_name, group.values["sweep"]
    return id if name is None else f"{name} ({id})" if name in named_twice else name


def _format_values(values: Mapping[str, Any]) -> str:
    """Returns the values of a group: alone if there is one, else with their names."""
    if len(values) == 1:
        ((name, value),) = values.items()
        return _cell(name, value) or "(none)"
    return " ".join(f"{name}={_cell(name, value)}" for name, value in values.items()) or "all"


def _format_mean_std(values: MeanStd | None) -> str:
    if values is None:
        return ""
    mean = terminal.format_number(values.mean)
    return mean if values.count == 1 else f"{mean} {terminal.symbol('±', '+-')} {values.std:.2g}"


def _cells(row: PackageSummary) -> list[str]:
    number = terminal.format_number
    return [
        row.name,
        row.state,
        terminal.format_step(row.step, row.total_steps),
        "" if row.epoch is None else str(row.epoch),
        row.metric or "",
        number(row.last),
        number(row.best),
        _format_started(row.started),
        terminal.format_duration(row.seconds),
        str(row.sessions),
        "" if row.parent is None else f"{row.parent}@{row.parent_step}",
        _format_durable(row),
        _format_tags(row),
        _about(row),
    ]


def _format_started(seconds: float | None) -> str:
    """Returns on a terminal how long ago it was, elsewhere the date and time."""
    if seconds is None:
        return ""
    if sys.stdout.isatty():
        return format_age(time.time() - seconds)
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _format_durable(row: PackageSummary) -> str:
    """Returns the step up to which the remote copy of a package has the run; ``not since`` it, if the copy
    does not get further; empty without a copy."""
    if row.durability is None:
        return ""
    step = "" if row.durable_step is None else str(row.durable_step)
    if row.remote_error is not None:
        return f"not since {step}" if step else "no"
    return step or "no step"


def _format_tags(row: PackageSummary) -> str:
    star = [terminal.symbol("★", "*")] if row.starred else []
    return terminal.truncate(" ".join([*star, ", ".join(row.tags)]).strip(), _MAX_CELL)


def _about(row: PackageSummary) -> str:
    text = row.error or "; ".join(filter(None, (row.reason, row.description, row.note)))
    line = text if text.isprintable() else terminal.escape_text(" ".join(text.split()))
    return terminal.truncate(line, _MAX_ABOUT)
