"""Formats a comparison of runs for `roost compare`: as text for a width, or as Markdown.

A few runs are columns A, B, …; many are lines of one table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import click
import msgspec

from roost.base.text.word_list import join_names
from roost.cli.comparing import comparison_sections
from roost.cli.comparing.comparison_sections import Section, to_markdown
from roost.display import table, terminal
from roost.operations.comparing.comparison import (
    CodeComparison,
    EnvironmentDifference,
    FileChange,
    MetricComparison,
    PackageComparison,
)

_MAX_COLUMNS = 5
"""More runs than this are lines of one table."""
_MAX_METRICS = 30
_MAX_CELL = 200
_MAX_ABOUT = 40
_MIN_CELL = 12
_MAX_VALUES = 6
"""Names in a line, and values of one fact of the environment."""
_MAX_LINES = 20
"""Of lines about one run each."""
_MANY_CELL = 24
_MANY_METRICS = 8
_DIGITS = (6, 9, 12, 17)
_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def format_text(
    compared: PackageComparison, *, width: int | None = None, is_all: bool = False
) -> Iterator[str]:
    """Yields the lines of a comparison; `click.echo` removes the colours where none are allowed.

    Args:
        compared: The comparison.
        width: Characters of a line; None: lines of any length.
        is_all: Whether to list all metrics.
    """
    view = _View(compared, width=width, is_all=is_all, mark=lambda text: f"{text}*")
    yield from comparison_sections.format_text(view.sections(), width)
    yield from _text_diffs(view)


def format_markdown(compared: PackageComparison, *, is_all: bool = False) -> Iterator[str]:
    """Yields the lines of a comparison in Markdown, as GitHub reads it; the best values are bold."""
    view = _View(compared, width=None, is_all=is_all, mark=lambda text: f"**{text}**", escape=to_markdown)
    titled = (replace(one, title=one.title.capitalize()) for one in view.sections())
    yield from comparison_sections.format_markdown(titled)
    for one in view.diffs:
        lines = [terminal.escape_text(line) for line in view.diff_lines(one)]
        longest = max((len(found) for line in lines for found in re.findall("`+", line)), default=0)
        fence = "`" * max(3, longest + 1)
        yield from ("", f"{fence}diff", *lines, fence)


def _text_diffs(view: _View) -> Iterator[str]:
    for one in view.diffs:
        yield ""
        for at, line in enumerate(view.diff_lines(one)):
            text = terminal.escape_text(line)
            colour = _DIFF_COLOURS.get(line[:1]) if at > 1 else None
            yield click.style(text, bold=True) if at < 2 else click.style(text, fg=colour) if colour else text


class _View:
    """The texts of a comparison.

    Args:
        compared: The comparison.
        width: Characters of a line; None: any number.
        is_all: Whether to list all metrics.
        mark: Marks the best value.
        escape: Escapes a cell.
    """

    def __init__(
        self,
        compared: PackageComparison,
        *,
        width: int | None,
        is_all: bool,
        mark: Callable[[str], str],
        escape: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._compared, self._width, self._is_all, self._mark = compared, width, is_all, mark
        self._escape = escape
        self._count = len(compared.runs)
        fits = self._count <= 2 or width is None or width >= 30 + 16 * self._count
        self._has_columns = self._count <= _MAX_COLUMNS and fits
        shown = [terminal.format_path(Path(one.path)) for one in compared.runs]
        names = [Path(one.path).name for one in compared.runs]
        self._paths = shown
        self._names = list(ascii_uppercase[: self._count]) if self._has_columns else (
            names if len(set(names)) == self._count else shown
        )  # fmt: skip

    def sections(self) -> Iterator[Section]:
        """Yields the parts in their order; those that have nothing to say are left out."""
        found = [self._runs() if self._has_columns else self._table(), self._relation()]
        if self._has_columns:
            found += [self._settings(), self._metrics()]
        found += [self._curves(), self._code(), self._environment(), self._exactness()]
        yield from (one for one in found if one.lines or one.rows)

    # --- the runs

    def _runs(self) -> Section:
        header = ["", "RUN", "STATE", "STEP", "TIME", "STARTED", "SESSIONS", "ABOUT"]
        rows = []
        for at, one in enumerate(self._compared.runs):
            row = one.summary
            step = terminal.format_step(row.step, row.total_steps)
            started, time = terminal.format_time(row.started)[:16], terminal.format_duration(row.seconds)
            about = " ".join((row.error or row.description or "").split())
            path = self._paths[at]
            if self._width is not None and len(path) > self._width // 2:
                path = table.shorten_middle(terminal.escape_name(row.name), self._width // 2)
            cells = [self._names[at], path, row.state, step, time, started]
            rows.append([*cells, str(row.sessions or ""), _shorten(about, _MAX_ABOUT)])
        dropped = (["ABOUT"], ["SESSIONS"], ["STARTED"], ["TIME"])
        return Section("", header=header, rows=self._cells(rows), dropped=dropped)

    def _table(self) -> Section:
        """Returns one line for each run, with what varies, and the newest values of the main metrics."""
        compared, width = self._compared, self._width
        metrics = compared.metrics if self._is_all or width is None else compared.metrics[:_MANY_METRICS]
        columns: dict[str, list[str]] = {}
        ranks: dict[str, int] = {}

        def add(name: str, cells: list[str], rank: int) -> None:
            """Adds a column; those with the highest rank are dropped first, the last one of a rank first."""
            name = _shorten(name, 2 * _MANY_CELL)
            while name in columns:  # a metric with the name of a setting, for example
                name = f"'{name}'"
            columns[name], ranks[name] = cells, rank

        most = _MAX_CELL if width is None else width // 2
        cells = [table.shorten_middle(terminal.escape_name(name), most) for name in self._names]
        add("NAME", list(map(self._escape, cells)), 0)
        names = _short_names([one.name for one in compared.settings])
        for one in compared.settings:
            cells = [self._escape(_shorten(_format_value(value), _MANY_CELL)) for value in one.values]
            add(names[one.name], ["" if at in one.absent else cell for at, cell in enumerate(cells)], 3)
        first = next((one for one in metrics if one.mode is not None), None)
        for metric in metrics:
            add(metric.name, self._marked(metric.last, metric.mode), 0 if metric is first else 4)
            if metric is first:
                add(f"BEST {metric.name}", self._marked(metric.best, metric.mode), 1)
        states = [one.summary.state for one in compared.runs]
        if len(set(states)) > 1:
            add("STATE", states, 2)
        add("STEP", ["" if one.summary.step is None else str(one.summary.step) for one in compared.runs], 5)
        order = sorted(((rank, at, name) for at, (name, rank) in enumerate(ranks.items())), reverse=True)
        dropped = [[name] for rank, _, name in order if rank]
        rows = [list(row) for row in zip(*columns.values(), strict=True)]
        hidden = len(compared.metrics) - len(metrics) + compared.num_metrics_left_out
        title = f"{self._count} runs" + (f", all {states[0]}" if len(set(states)) == 1 else "")
        lines = [f"not shown: {hidden} metrics, see --all and --json"] if hidden else []
        return Section(title, lines, list(columns), rows, dropped)

    def _relation(self) -> Section:
        found = self._compared.relation
        lines = []
        for one in found.forks:
            changed = f", with {', '.join(map(str, one.changed))}" if one.changed else ""
            lines.append(
                f"{self._names[one.fork]} is a fork of {self._names[one.parent]} at step {one.step}{changed}"
            )
        if found.common_parent is not None and not found.forks:
            lines.append(f"all are forks of {found.common_parent.package}, with the same past up to step "
                         f"{found.common_parent.step}")  # fmt: skip
        if found.sweep is not None:
            lines.append(f"all are of the sweep {found.sweep_name or found.sweep}")
        if found.only_seed:
            lines.append("they differ only in their seed")
        elif found.same_settings and self._compared.code.is_same:
            lines.append("they have the same settings and the same code")
        unread = [
            f"{self._names[at]}: not compared: {what}"
            for at, run in enumerate(self._compared.runs)
            for what in run.unreadable
        ]
        return Section("", lines + _first_lines(unread))

    # --- settings and metrics, a column for each run

    def _settings(self) -> Section:
        compared = self._compared
        if not compared.settings:
            equal = (
                f"all {compared.num_equal_settings} settings are equal" if compared.num_equal_settings else ""
            )
            return Section("settings", [equal] if equal else [])
        origins = [f"SET IN {name}" for name in self._names]
        most = self._cell_width(max(len(one.name) for one in compared.settings))
        rows = []
        for one in compared.settings:
            cells = [self._not_set(at) if at in one.absent else _shorten(_format_value(value), most)
                     for at, value in enumerate(one.values)]  # fmt: skip
            # Where all have set it in the same place, that explains no difference.
            places = [
                "" if at in one.absent else origin or "default" for at, origin in enumerate(one.origins)
            ] if len(set(one.origins)) > 1 else []  # fmt: skip
            rows.append([one.name, *cells, *(places or [""] * self._count)])
        return Section("settings", header=["SETTING", *self._names, *origins], rows=self._cells(rows),
                        dropped=[origins])  # fmt: skip

    def _not_set(self, at: int) -> str:
        """Returns the cell of a run without a setting: of an imported one it is not known."""
        return "(not set)" if self._compared.runs[at].summary.system is None else ""

    def _metrics(self) -> Section:
        compared = self._compared
        metrics = compared.metrics if self._is_all else compared.metrics[:_MAX_METRICS]
        shows_at = any(
            step not in (None, compared.step) for one in compared.metrics for step in one.last_steps
        )
        last = [f"LAST {name}" for name in self._names]
        best = [f"BEST {name}" for name in self._names]
        at = [f"AT {compared.step} {name}" for name in self._names] if shows_at else []
        change = ["B - A", "%"] if self._count == 2 else []
        rows = []
        for one in metrics:
            cells = [self._escape(one.name), *self._marked(one.last, one.mode)]
            cells += [self._escape(text) for text in _change(one)] if change else []
            cells += self._with_steps(self._marked(one.best, one.mode), one.best_steps, None)
            if shows_at:
                cells += self._with_steps(self._marked(one.at, one.mode), one.at_steps, compared.step)
            rows.append(cells)
        hidden = len(compared.metrics) - len(metrics) + compared.num_metrics_left_out
        lines = [f"not shown: {hidden} metrics; see --all, -m NAME and --json"] if hidden else []
        dropped = (["%"], best, ["B - A"], at)
        return Section("metrics", lines, ["METRIC", *last, *change, *best, *at], rows, dropped)

    def _marked(self, values: Sequence[float | None], mode: str | None) -> list[str]:
        """Returns the numbers as texts, the best one marked if there is another one."""
        texts = format_numbers(values)
        numbers = [one for one in values if one is not None and one == one]
        if mode is None or len(set(numbers)) < 2:
            return texts
        best = (min if mode == "min" else max)(numbers)
        return [
            self._mark(text) if value == best else text for value, text in zip(values, texts, strict=True)
        ]

    @staticmethod
    def _with_steps(cells: Sequence[str], steps: Sequence[int | None], expected: int | None) -> list[str]:
        """Returns cells with their steps, where these are not the expected one."""
        return [
            cell if step in (None, expected) else f"{cell} @{step}"
            for cell, step in zip(cells, steps, strict=True)
        ]

    # --- where the curves part, code, environment

    def _curves(self) -> Section:
        found = self._compared.curves
        if found is None or not self._compared.metrics:
            return Section("curves")
        if not found.compared:
            return Section("curves", ["nothing to compare: no value of both runs is of the same steps"])
        if found.step is None:
            values = f"all {found.compared:,} values that both have"
            return Section("curves", [f"equal bit for bit: {values}, up to step {found.equal_until}"])
        if found.equal_until is None:
            lines = [f"different from the first values on that both have, at step {found.step}:"]
        else:
            lines = [
                f"equal bit for bit up to step {found.equal_until}; different from step {found.step} on:"
            ]
        for one in found.metrics[:_MAX_VALUES]:
            lines.append(f"  {one.name}: {' and '.join(format_numbers(one.values))}")
        if (more := found.num_metrics - _MAX_VALUES) > 0:
            lines.append(f"  and {more} more metrics")
        for start in found.starts:
            host, given = f" on {start.host}" if start.host else "", " ".join(start.overrides)
            overrides = f", with {given}" if given else ""
            name = self._names[start.run]
            lines.append(f"session {start.session} of {name} began at step {start.step}{host}{overrides}")
        return Section("curves", lines)

    def _code(self) -> Section:
        found = self._compared.code
        unknown = [f"unknown: {self._join(found.unknown)}"] if found.unknown else []
        if len(found.versions) < 2:
            same = [f"the same: {one.files} files" for one in found.versions if len(one.runs) > 1]
            return Section("code", same + (unknown if same else []))
        if len(found.versions) == 2 and self._has_columns:
            rows = [
                [one.path, self._file_kind(one), _line_counts(one), one.note or ""] for one in found.files
            ]
            sides = [self._join(one.runs) for one in found.versions]
            versions = [f"{sides[0]} have one version, {sides[1]} the other"] if self._count > 2 else []
            return Section(
                "code", versions + unknown, ["FILE", "CHANGE", "LINES", "NOTE"], self._cells(rows), [["NOTE"]]
            )
        lines = []
        for number, one in enumerate(found.versions):
            differs = f"; differs from the first in {join_names(one.changed, _MAX_VALUES)}" if number else ""
            lines.append(f"{one.digest}: {self._join(one.runs)}{differs}")
        return Section("code", lines + unknown)

    def _file_kind(self, one: FileChange) -> str:
        if one.kind == "changed":
            return "changed"
        version = self._compared.code.versions[0 if one.kind == "only in first" else 1]
        return f"only in {', '.join(self._names[at] for at in version.runs)}"

    def _join(self, positions: Sequence[int]) -> str:
        """Returns ``12 runs: a, b and 10 more``; names alone if they are columns."""
        names = join_names([self._names[at] for at in positions], _MAX_VALUES)
        runs = "1 run" if len(positions) == 1 else f"{len(positions)} runs"
        return names if self._has_columns else f"{runs}: {names}"

    def _environment(self) -> Section:
        found = self._compared.environment
        if not self._has_columns:
            return Section(
                "environment", [self._grouped(one.name, _environment_values(one)) for one in found]
            )
        most = self._cell_width(max((len(one.name) for one in found), default=0))
        rows = [
            [one.name, *(_shorten(value or "", most) for value in _environment_values(one))] for one in found
        ]
        return Section("environment", header=["NAME", *self._names], rows=self._cells(rows))

    def _grouped(self, name: str, values: Sequence[str | None]) -> str:
        """Returns ``torch: 2.13.0 (38 runs), 2.12.1 (a, b)``."""
        groups: dict[str | None, list[int]] = {}
        for at, value in enumerate(values):
            groups.setdefault(value, []).append(at)
        order = sorted(groups.items(), key=lambda one: -len(one[1]))
        texts = [
            f"{_shorten(value or 'unknown', _MANY_CELL)} "
            f"({f'{len(runs)} runs' if len(runs) > 3 else ', '.join(self._names[at] for at in runs)})"
            for value, runs in order
        ]
        return f"{name}: {join_names(texts, _MAX_VALUES)}"

    def _exactness(self) -> Section:
        runs = self._compared.runs
        lines = self._data_order() + [
            f"{self._names[at]} is inexact: {join_names(one.inexact, _MAX_VALUES)}"
            for at, one in enumerate(runs)
            if one.inexact
        ]
        return Section("exactness", _first_lines(lines))

    def _data_order(self) -> list[str]:
        """Returns a line about the order of the training samples; none if it is known for less than two
        runs."""
        orders = [one.data_order for one in self._compared.runs]
        known = {one for one in orders if one is not None}
        if len(orders) - orders.count(None) < 2:
            return []
        if len(known) > 1:
            groups = {one: [at for at, other in enumerate(orders) if other == one] for one in known}
            texts = [
                f"{one} ({self._join(runs)})" for one, runs in sorted(groups.items(), key=lambda g: g[1])
            ]
            return [f"order of the training samples: {join_names(texts, _MAX_VALUES)}"]
        unknown = [at for at, one in enumerate(orders) if one is None]
        more = f"; unknown: {self._join(unknown)}" if unknown else ""
        return [f"order of the training samples: the same ({known.pop()}){more}"]

    # --- differences of files

    @property
    def diffs(self) -> list[FileChange]:
        """The files whose difference was requested and has lines."""
        return [one for one in self._compared.code.files if one.diff]

    def diff_lines(self, one: FileChange) -> Iterator[str]:
        """Yields the difference of a file as by ``diff -u``."""
        code: CodeComparison = self._compared.code
        first, second = (self._names[version.runs[0]] for version in code.versions)
        path = terminal.escape_name(one.path)
        yield "--- /dev/null" if one.kind == "only in second" else f"--- {first}/{path}"
        yield "+++ /dev/null" if one.kind == "only in first" else f"+++ {second}/{path}"
        yield from one.diff or ()

    # --- cells

    def _cell_width(self, name_width: int) -> int:
        if self._width is None:
            return _MAX_CELL
        free = self._width - 2 - min(name_width, self._width // 2) - 2 * self._count
        return max(_MIN_CELL, free // self._count)

    def _cells(self, rows: Sequence[Sequence[str]]) -> list[list[str]]:
        return [[self._escape(cell) for cell in row] for row in rows]


def format_numbers(values: Sequence[float | None]) -> list[str]:
    """Returns numbers with six significant digits, or with as many more as tell different ones apart; empty
    for None."""
    numbers = {one for one in values if one is not None and one == one}
    for digits in _DIGITS:
        if len({f"{one:.{digits}g}" for one in numbers}) == len(numbers):
            break
    return ["" if one is None else f"{one:.{digits}g}" for one in values]


def _first_lines(lines: Sequence[str]) -> list[str]:
    """Returns the lines, of many the first ones and the number of the others."""
    more = len(lines) - _MAX_LINES
    return list(lines) if more <= 1 else [*lines[:_MAX_LINES], f"and {more} more lines; see --json"]


def _change(metric: MetricComparison) -> tuple[str, str]:
    """Returns the difference of the newest values of two runs, and its percentage of the first."""
    first, second = metric.last
    if first is None or second is None or first == second:
        return "", ""
    change = second - first
    return f"{change:+.4g}", f"{100 * change / abs(first):+.2f}%" if first and change == change else ""


def _environment_values(one: EnvironmentDifference) -> list[str | None]:
    return ["not installed" if at in one.not_installed else value for at, value in enumerate(one.values)]


def _line_counts(one: FileChange) -> str:
    return "" if one.added is None else f"+{one.added} -{one.removed}"


def _format_value(value: Any) -> str:
    return (
        value if isinstance(value, str) else "null" if value is None else msgspec.json.encode(value).decode()
    )


def _shorten(text: str, most: int) -> str:
    return terminal.truncate(terminal.escape_name(text), most)


def _short_names(names: Sequence[str]) -> Mapping[str, str]:
    from roost.operations.listing.run_listing import short_names

    return short_names(names, names)
