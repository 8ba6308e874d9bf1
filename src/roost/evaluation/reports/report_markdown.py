"""The report of an evaluation as Markdown."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from roost.evaluation.reports.number_text import interval_text, number_text, value_text
from roost.evaluation.reports.report_content import (
    STATISTICS_HEAD,
    CaseList,
    CaseRow,
    CellContent,
    ReportContent,
    best_and_worst_mean,
    count_text,
    metrics_of,
    shown_labels,
)
from roost.package.results.evaluations.evaluation_folder import EvaluationCell

_PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg")
_SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\`*_[]|#!~"})


def render(content: ReportContent) -> str:
    """Returns the report."""
    lines = [f"# Evaluation {_text(content.folder.name)} of {_text(content.package)}", ""]
    total = len(content.cells) + len(content.unfinished)
    lines += [f"{len(content.cells)} of {total} cells are finished.", ""]
    for cell in content.unfinished:
        lines.append(f"- not finished: {_text(cell.label)}")
    for dataset, cells in content.datasets().items():
        lines += ["", f"## {_text(dataset)}", "", *_overview(cells), ""]
    for one in content.cells:
        lines += ["", *_cell(one)]
    return "\n".join([*lines, ""])


def _text(value: object) -> str:
    """Returns a text that Markdown shows as it is, in one line."""
    one_line = " ".join(str(value).split())
    return html.escape(one_line, quote=False).translate(_SPECIAL)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 1) -> Iterator[str]:
    """Yields the lines of a table; the columns after the first ``texts`` are right-aligned."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'|'.join('---' if place < texts else '---:' for place in range(len(head)))}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _overview(cells: Sequence[CellContent]) -> Iterator[str]:
    names = metrics_of(cells)
    ends = {name: best_and_worst_mean(cells, name) for name in names}
    rows = []
    for one in cells:
        row = [_text(one.cell.checkpoint), _text(one.cell.variant), number_text(one.summary["evaluated"])]
        for name in names:
            entry = one.metrics.get(name)
            row.append("–" if entry is None else _marked(_mean(entry), entry["mean"], ends[name]))
        rows.append(row)
    yield from _table(["checkpoint", "variant", "samples", *map(_text, names)], rows, texts=2)


def _mean(entry: dict[str, Any]) -> str:
    interval = interval_text(entry.get("interval"))
    return number_text(entry["mean"]) + (f" ({interval})" if interval else "")


def _marked(text: str, value: object, ends: tuple[Any, Any]) -> str:
    if value is None:
        return text
    if value == ends[0]:
        return f"**{text}** best"
    return f"{text} worst" if value == ends[1] else text


def _cell(one: CellContent) -> Iterator[str]:
    yield f"## {_text(one.cell.label)}"
    yield ""
    yield from _statistics(one)
    if one.summary["num_skipped"]:
        yield ""
        yield f"Skipped: {count_text(one.summary['num_skipped'], 'sample')}"
        yield ""
        for skipped in one.summary["skipped"][:10]:
            yield f"- {_text(skipped['id'])}: {_text(value_text(skipped['error']))}"
    for group, entry in one.summary["groups"].items():
        yield from ["", f"### By {_text(group)}", "", *_group(entry)]
    for title, lists in (("Worst", one.worst), ("Best", one.best)):
        for listed in lists:
            if listed.cases:
                yield from ["", f"### {title} by {_text(listed.metric)}", "", *_cases(one.cell, listed)]


def _statistics(one: CellContent) -> Iterator[str]:
    rows = []
    for name, entry in one.metrics.items():
        quantiles = entry.get("quantiles") or {}
        rows.append(
            [
                _text(name) + ("" if entry["from"] == "samples" else f" (of {entry['from']})"),
                number_text(entry["mean"]),
                interval_text(entry.get("interval")) or "–",
                number_text(entry.get("std")),
                number_text(entry.get("min")),
                number_text(quantiles.get("0.5")),
                number_text(entry.get("max")),
                number_text(entry["count"]),
                number_text(entry["nan"] + entry.get("infinite", 0)),
                number_text(entry.get("missing", 0)),
            ]
        )
    yield from _table(STATISTICS_HEAD, rows)


def _group(entry: dict[str, Any]) -> Iterator[str]:
    shown = shown_labels(entry)
    names = list(shown[0]["metrics"]) if shown else []
    rows = []
    for row in shown:
        cells = [
            _marked(
                number_text(row["metrics"][name]["mean"]),
                row["label"],
                (entry["best"].get(name), entry["worst"].get(name)),
            )
            for name in names
        ]
        rows.append([_text(row["label"]), number_text(row["count"]), *cells])
    yield from _table(["label", "samples", *map(_text, names)], rows)
    if len(shown) < entry["labels"]:
        yield ""
        yield f"{entry['labels'] - len(shown):,} more labels."


def _cases(cell: EvaluationCell, listed: CaseList) -> Iterator[str]:
    names = list(dict.fromkeys(name for case in listed.cases for name in [*case.outputs, *case.files]))
    groups = list(dict.fromkeys(name for case in listed.cases for name in case.groups))
    head = [_text(listed.metric), "id", *map(_text, groups), *map(_text, names)]
    rows = [
        [
            number_text(case.value),
            _text(case.id),
            *(_text(case.groups.get(name, "")) for name in groups),
            *(_value(cell, case, name) for name in names),
        ]
        for case in listed.cases
    ]
    yield from _table(head, rows, texts=len(head))


def _value(cell: EvaluationCell, case: CaseRow, name: str) -> str:
    if name not in case.files:
        return _text(value_text(case.outputs[name])) if name in case.outputs else ""
    file = case.files[name]
    target = quote(f"{cell.folder}/{file}")
    picture = "!" if file.lower().endswith(_PICTURES) else ""
    return f"{picture}[{_text(file.rpartition('/')[2])}]({target})"
