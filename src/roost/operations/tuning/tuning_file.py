"""The tuning file: what `roost tune` has found, as a config for ``-f``.

Settings that change no bit of a run are written plainly. Others are comments, unless they were to be applied.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from roost.base import safe_read
from roost.base.text.counts import format_cores
from roost.package.results.tuning_report import CandidateRates, RangeTestFinding, TargetFinding, TuningReport

_MARK = "# Tuning file of `roost tune`"
"""The beginning of every tuning file, by which it is recognised as one that may be replaced."""
_MAX_BYTES = 1 << 20
_EMPTY = "{}  # no setting: remove this line with the first # that you remove"


class TuningContext(NamedTuple):
    """The circumstances of the measurements, for the head of the file."""

    when: str
    host: str
    config: str
    """As the user wrote it."""
    overrides: Sequence[str]
    name: str
    """The tuning file, as the user wrote it."""


class _Entry(NamedTuple):
    """A setting of the file, with the comments above it."""

    key: tuple[str, ...]
    value: Any
    is_applied: bool
    comments: Sequence[str]


def is_own_file(path: Path) -> bool:
    """Whether a file is a tuning file, or empty."""
    try:
        data = bytes(safe_read.read(path, max_bytes=_MAX_BYTES))
    except OSError:  # not a file, or larger than any tuning file
        return False
    return not data or data.startswith(_MARK.encode())


def tuning_text(report: TuningReport, applied: Collection[str], context: TuningContext) -> str:
    """Returns the text of the file.

    Args:
        report: What was measured.
        applied: The targets whose settings are written plainly although they change the results.
        context: The circumstances of the measurements.
    """
    entries = list(_entries(report, applied))
    lines = [f"{_MARK}, {context.when}, on {context.host}.", *_head(report, context)]
    if remaining := list(_remaining(report)):
        lines += ["#", "# As in the config:", *(f"#   {line}" for line in remaining)]
    if any(not one.is_applied for one in entries):
        lines += [
            "#",
            "# A setting behind a # would change the results of the run. To use it, remove the # before it",
            "# and before its section, or measure again with --apply.",
        ]
    body = list(_lines(entries))
    if not any(one.is_applied for one in entries):
        body.insert(0, _EMPTY)  # a config without any setting is refused
    return "\n".join([*lines, "", *body]) + "\n"


def _head(report: TuningReport, context: TuningContext) -> Iterator[str]:
    on = f"{report.device}, {format_cores(report.num_cores)}, threads: {report.num_threads}"
    yield f"# Measured in {report.seconds:.0f} s on {on}."
    if context.overrides:
        yield f"# With {' '.join(context.overrides)}"
    yield f"# Use: roost run {context.config} -f {context.name}"


def _entries(report: TuningReport, applied: Collection[str]) -> Iterator[_Entry]:
    for finding in report.findings:
        is_applied = finding.is_neutral or finding.target in applied
        comments = [f"{_rates(finding)}: {finding.reason}", *finding.consequences]
        for key, value in finding.changes.items():
            yield _Entry(tuple(key.split(".")), value, is_applied, comments)
            comments = []
    found = report.range_test
    for key, value in found.changes.items() if found is not None else ():
        assert found is not None
        comments = [f"range test: {_found_rates(found)}", found.reason]
        yield _Entry(tuple(key.split(".")), value, "lr" in applied, comments)


def _remaining(report: TuningReport) -> Iterator[str]:
    for finding in report.findings:
        if not finding.changes:
            present = "" if finding.present == "" else f" {finding.present}"
            yield f"{finding.setting}{present}: {finding.reason}"
    found = report.range_test
    if found is not None and not found.changes:
        yield f"lr {found.present:.3g}: {found.reason}; {_found_rates(found)}"


def _rates(finding: TargetFinding) -> str:
    shown: list[CandidateRates] = [one for one in finding.candidates if one.rates]
    return ", ".join(f"{one.value}: {one.median:,.4g}" for one in shown) + " samples/s"


def _found_rates(found: RangeTestFinding) -> str:
    parts = [f"now {found.present:.3g}"]
    if found.steepest is not None:
        parts.append(f"falls fastest at {found.steepest:.2g}")
    parts.append("does not diverge" if found.divergence is None else f"diverges at {found.divergence:.2g}")
    return ", ".join(parts)


def _lines(entries: Sequence[_Entry], depth: int = 0) -> Iterator[str]:
    """Yields the entries as nested YAML; a section of which nothing is applied is a comment too."""
    indent = "  " * depth
    sections: dict[str, list[_Entry]] = {}
    for entry in entries:
        sections.setdefault(entry.key[depth], []).append(entry)
    for name, inside in sections.items():
        mark = "" if any(one.is_applied for one in inside) else "# "
        if len(inside[0].key) > depth + 1:
            yield f"{indent}{mark}{name}:"
            yield from _lines(inside, depth + 1)
            continue
        for one in inside:
            yield from (f"{indent}# {' '.join(comment.split())}" for comment in one.comments)
            value = one.value if isinstance(one.value, str) else json.dumps(one.value)
            yield f"{indent}{mark}{name}: {value}"
