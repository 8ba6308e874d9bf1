"""Formats a comparison of evaluations for `roost compare --evaluation`: as text, or as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from roost.base.text.word_list import join_names
from roost.cli.comparing import comparison_sections
from roost.cli.comparing.comparison_sections import Section, to_markdown
from roost.display import terminal
from roost.operations.comparing.evaluation_comparison import (
    EvaluationComparison,
    PairedCell,
    PairedMetric,
    SetDifference,
)

_MAX_IDS = 5
_MAX_TEXT = 60
_MIN_CELL = 12
_DROPPED = [(name,) for name in ("equal", "A better", "A worse", "samples")]


def format_text(
    compared: EvaluationComparison, *, width: int | None = None, is_all: bool = False
) -> Iterator[str]:
    """Yields the lines of a comparison.

    Args:
        compared: The comparison.
        width: Characters of a line; None: lines of any length.
        is_all: Whether to list the samples and groups of all metrics, and the texts of the samples.
    """
    yield from comparison_sections.format_text(_sections(compared, is_all=is_all), width)


def format_markdown(compared: EvaluationComparison, *, is_all: bool = False) -> Iterator[str]:
    """Yields the lines of a comparison in Markdown."""
    escaped = (
        replace(one, rows=[list(map(to_markdown, row)) for row in one.rows])
        for one in _sections(compared, is_all=is_all)
    )
    yield from comparison_sections.format_markdown(escaped)


def _sections(compared: EvaluationComparison, *, is_all: bool) -> Iterator[Section]:
    lines = [f"A  {compared.path_a}", f"B  {compared.path_b}"]
    for side, names in (("A", compared.only_a), ("B", compared.only_b)):
        if names:
            lines.append(f"cells only of {side}: {join_names(names, _MAX_IDS)}")
    yield Section("", lines)
    for cell in compared.cells:
        yield _metrics(cell)
        yield from _details(cell, is_all=is_all)


def _metrics(cell: PairedCell) -> Section:
    title = cell.a if cell.a == cell.b else f"A {cell.a}, B {cell.b}"
    lines = [f"{cell.paired:,} samples of both"]
    for side, count, ids in (("A", cell.only_a, cell.ids_only_a), ("B", cell.only_b, cell.ids_only_b)):
        if count:
            named = ", ".join(map(str, ids[:_MAX_IDS]))
            lines.append(f"{count:,} only of {side}: {named}{', …' if count > _MAX_IDS else ''}")
    for side, names in (("A", cell.metrics_only_a), ("B", cell.metrics_only_b)):
        if names:
            lines.append(f"metrics only of {side}: {join_names(names, _MAX_IDS)}")
    lines += [
        f"{one.name}: without a finite value on both sides, and left out: {one.not_compared:,}"
        for one in cell.metrics
        if one.not_compared
    ]
    if cell.set_metrics and (cell.only_a or cell.only_b):
        named = join_names([one.name for one in cell.set_metrics], _MAX_IDS)
        lines.append(f"of all samples of each side: {named}")
    header = ["metric", "A", "B", "A - B", "95 % interval", "A better", "A worse", "equal", "result"]
    rows = [*map(_metric_row, cell.metrics), *map(_set_row, cell.set_metrics)]
    return Section(title, lines, header, rows, _DROPPED, _MIN_CELL)


def _metric_row(one: PairedMetric) -> list[str]:
    wins = f"{one.smaller:,} smaller" if one.wins is None else f"{one.wins:,}"
    losses = f"{one.larger:,} larger" if one.losses is None else f"{one.losses:,}"
    numbers = [terminal.format_number(value) for value in (one.mean_a, one.mean_b)]
    return [
        one.name, *numbers, _difference(one.difference), _interval(one.interval), wins, losses,
        f"{one.equal:,}", one.verdict,
    ]  # fmt: skip


def _set_row(one: SetDifference) -> list[str]:
    numbers = [terminal.format_number(value) for value in (one.value_a, one.value_b)]
    return [one.name, *numbers, _difference(one.difference), "", "", "", "", "no interval"]


def _details(cell: PairedCell, *, is_all: bool) -> Iterator[Section]:
    """Yields the samples and groups of metrics: of all, or of the first one whose samples differ, if possible
    one of which it is known which values are better."""
    known = [one for one in cell.metrics if one.better is not None] or cell.metrics
    for one in known if is_all else [one for one in known if one.smaller or one.larger][:1]:
        if one.worse:
            yield _samples(one, is_all=is_all)
        for group, found in one.groups.items():
            rows = [
                [
                    row.label, f"{row.count:,}", terminal.format_number(row.mean_a),
                    terminal.format_number(row.mean_b), _difference(row.difference), _interval(row.interval),
                ]
                for row in found.rows
            ]  # fmt: skip
            more = found.labels - len(rows)
            lines = [f"labels with fewer samples, left out: {more:,}"] if more else []
            yield Section(
                f"{one.name} by {group}",
                lines,
                ["label", "samples", "A", "B", "A - B", "95 % interval"],
                rows,
                _DROPPED,
                _MIN_CELL,
            )


def _samples(one: PairedMetric, *, is_all: bool) -> Section:
    names = list(dict.fromkeys(name for row in one.worse for name in [*row.texts_a, *row.texts_b]))
    header, rows = ["id", "A", "B", "A - B"], []
    same = {
        name for name in names if all(row.texts_a.get(name) == row.texts_b.get(name) for row in one.worse)
    }
    sides = [(name, side) for name in names for side in ("A", "B") if side == "A" or name not in same]
    if is_all:
        header += [name if name in same else f"{name} of {side}" for name, side in sides]
    for row in one.worse:
        both = {"A": row.texts_a, "B": row.texts_b}
        texts = [both[side].get(name, "") for name, side in sides] if is_all else []
        numbers = [terminal.format_number(row.a), terminal.format_number(row.b), _difference(row.difference)]
        rows.append([str(row.id), *numbers, *(terminal.truncate(text, _MAX_TEXT) for text in texts)])
    what = "where A and B differ most" if one.better is None else "where A is worse"
    return Section(f"{one.name}: {what}", [], header, rows, _DROPPED, _MIN_CELL)


def _difference(value: float | None) -> str:
    if value is None:
        return ""
    return f"{'+' if value > 0 else ''}{terminal.format_number(value)}"


def _interval(found: Any) -> str:
    return "" if found is None else f"{_difference(found[0])} to {_difference(found[1])}"
