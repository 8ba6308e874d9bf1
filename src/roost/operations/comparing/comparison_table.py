"""A comparison as a short table, for Python and notebooks: a line for each run, and what else differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from roost.base.text.word_list import join_names
from roost.operations.python_api import tables

if TYPE_CHECKING:
    from roost.operations.comparing.comparison import MetricComparison, PackageComparison

_MAX_RUNS = 20
_MAX_SETTINGS = 6
_MAX_METRICS = 4
_MAX_NAMES = 6


def to_text(compared: PackageComparison) -> str:
    """Returns the table as text."""
    table = tables.align(*_table(compared))
    return "\n".join([f"{_title(compared)}:", *table, *_remarks(compared)])


def to_html(compared: PackageComparison) -> str:
    """Returns the table for a notebook."""
    return tables.to_html(_title(compared), *_table(compared), _remarks(compared))


def _title(compared: PackageComparison) -> str:
    only = ", which differ only in their seed" if compared.relation.only_seed else ""
    return f"comparison of {len(compared.runs)} runs{only}"


def _metrics(compared: PackageComparison) -> list[MetricComparison]:
    """Returns the metrics to show: those first by which a run selects or stops."""
    return sorted(compared.metrics, key=lambda one: not one.monitored)[:_MAX_METRICS]


def _table(compared: PackageComparison) -> tuple[list[str], list[list[str]]]:
    """Returns the header and the cells of the first runs: settings that differ, and the best value of some
    metrics, or the newest one where it is not known which is better."""
    settings, metrics = compared.settings[:_MAX_SETTINGS], _metrics(compared)
    header = ["name", "state", "step", *(tables.format_cell(one.name) for one in settings)]
    header += [tables.format_cell(f"{'best' if one.mode else 'last'} {one.name}") for one in metrics]
    lines = []
    for at, run in enumerate(compared.runs[:_MAX_RUNS]):
        cells: list[Any] = [run.summary.name, run.summary.state, run.summary.step]
        cells += [one.values[at] for one in settings]
        cells += [(one.best if one.mode else one.last)[at] for one in metrics]
        lines.append([tables.format_cell(value) for value in cells])
    return header, lines


def _remarks(compared: PackageComparison) -> list[str]:
    lines = _more(len(compared.runs) - _MAX_RUNS, "runs", ".runs")
    lines += _more(len(compared.settings) - _MAX_SETTINGS, "settings differ", ".settings")
    lines += _more(len(compared.metrics) - _MAX_METRICS, "metrics", ".metrics")
    curves = compared.curves
    if curves is not None and curves.step is not None:
        since = "" if curves.equal_until is None else f", equal until step {curves.equal_until}"
        lines.append(f"the curves part at step {curves.step}{since}: .curves")
    elif curves is not None and curves.compared:
        lines.append("all values recorded for the same steps are equal: .curves")
    code = {True: "the code is the same", False: f"{len(compared.code.versions)} versions of the code: .code"}
    is_same = compared.code.is_same
    lines.append("the code is not known of all: .code" if is_same is None else code[is_same])
    if compared.environment:
        lines.append(
            f"the environment differs in {_join([one.name for one in compared.environment])}: .environment"
        )
    unreadable = [run.summary.name for run in compared.runs if run.unreadable]
    if unreadable:
        lines.append(f"not all could be read of {_join(unreadable)}: .runs[…].unreadable")
    return lines


def _join(names: Sequence[str]) -> str:
    return join_names([tables.format_cell(name) for name in names], _MAX_NAMES)


def _more(count: int, what: str, place: str) -> list[str]:
    return [f"and {count} more {what}: {place} has them"] if count > 0 else []
