"""Text of what `roost tune` has found."""

from __future__ import annotations

from collections.abc import Iterator

from roost.base.text.byte_sizes import format_memory
from roost.display.table import TableColumn, format_columns, terminal_width
from roost.package.results.tuning_report import CandidateRates, RangeTestFinding, TargetFinding, TuningReport

_MIN_NOTE = 20
_HEADER = ("setting", "value", "samples/s", "ratio", "spread", "memory", "")


def tuning_lines(report: TuningReport) -> list[str]:
    """Returns a table of all candidates, the present value marked by ``now`` and the chosen one by ``*``;
    then a line for each choice."""
    rows = [row for finding in report.findings for row in _rows(finding)]
    lines: list[str] = []
    if rows:
        columns = [
            TableColumn(name, cells) for name, cells in zip(_HEADER, zip(*rows, strict=True), strict=True)
        ]
        columns[-1] = columns[-1]._replace(min_width=_MIN_NOTE)
        lines = [*format_columns(columns, terminal_width()), ""]
    lines += [_choice(finding) for finding in report.findings]
    if report.range_test is not None:
        lines += _range_test_lines(report.range_test)
    return lines


def _rows(finding: TargetFinding) -> Iterator[tuple[str, ...]]:
    now = next((one.median for one in finding.candidates if one.value == finding.present), 0.0)
    for one in finding.candidates:
        marks = [
            *(["now"] if one.value == finding.present else []),
            *(["*"] if one.value == finding.chosen else []),
        ]
        yield (
            finding.setting,
            str(one.value),
            *_rate_cells(one, now),
            "" if one.memory_mb is None else format_memory(one.memory_mb),
            " ".join([*marks, one.note]).strip(),
        )


def _rate_cells(one: CandidateRates, now: float) -> tuple[str, str, str]:
    if not one.rates:
        return "", "", ""
    ratio = f"{one.median / now:.2f}" if now else ""
    rate = f"{one.median:,.0f}" if one.median >= 100 else f"{one.median:.3g}"
    return rate, ratio, f"{one.spread:.0%}" if len(one.rates) > 1 else ""


def _choice(finding: TargetFinding) -> str:
    if not finding.candidates:
        return f"{finding.setting}: not measured: {finding.reason}"
    remains = "" if finding.changes else " remains"
    return f"{finding.setting}: {finding.chosen}{remains}: {finding.reason}"


def _range_test_lines(found: RangeTestFinding) -> Iterator[str]:
    if found.suggestion is None:
        yield f"lr: {found.present:.3g} remains: {found.reason}"
        return
    changed = "" if found.changes else " (the present rate is near enough, or is not set by the config)"
    yield f"lr: {found.suggestion:.2g}, now {found.present:.3g}{changed}: {found.reason}"
