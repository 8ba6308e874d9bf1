"""The report of an evaluation as one HTML page: it loads nothing, runs no script, and follows the reader's
choice of a light or a dark screen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

from roost.base.text.byte_sizes import format_bytes
from roost.evaluation.reports.histogram_svg import histogram_svg
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
from roost.evaluation.reports.report_media import MAX_MEDIA_BYTES, PageMedia
from roost.package.results.evaluations.evaluation_folder import EvaluationCell

SIDES = ("best", "worst")
_MAX_SKIPPED = 50
_OPEN_CELLS = 2
"""Cells that are unfolded at first; all, where these are so many."""

_STYLE = """
:root { color-scheme: light dark; --page: #fcfcfb; --ink: #1d1f23; --soft: #646a73; --rule: #dcdfe3;
  --panel: #f3f4f5; --bar: #5b7fa8; --mark: #b3541e; --good: #1b6e42; --good-soft: #dcefe3; --bad: #9c2f2b;
  --bad-soft: #f8e0de; --link: #1f5fa8; }
@media (prefers-color-scheme: dark) { :root { --page: #16181b; --ink: #e4e6e9; --soft: #9aa1ab;
  --rule: #33383f; --panel: #1f2227; --bar: #7fa3cc; --mark: #e39a66; --good: #86d3a6; --good-soft: #1c3a2a;
  --bad: #f0a19c; --bad-soft: #45201f; --link: #8db8ec; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 2rem 1.25rem 4rem; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.25rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .4rem; }
p { margin: .4rem 0; } .soft, small { color: var(--soft); } a { color: var(--link); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--rule); text-align: right; white-space: nowrap;
  vertical-align: top; }
th { color: var(--soft); font-weight: 600; font-size: .85rem; }
th.text, td.text { text-align: left; }
td small { display: block; font-size: .75rem; }
td.best { background: var(--good-soft); } td.worst { background: var(--bad-soft); }
.tag { font-size: .7rem; font-weight: 600; margin-right: .35rem; }
.best .tag { color: var(--good); } .worst .tag { color: var(--bad); }
details.cell { border: 1px solid var(--rule); border-radius: 8px; margin: .75rem 0; padding: 0 1rem; }
details.cell > summary { cursor: pointer; padding: .7rem 0; font-weight: 600; overflow-wrap: anywhere; }
details.cell[open] { padding-bottom: 1rem; }
details.list { margin: .75rem 0; } details.list > summary { cursor: pointer; font-weight: 600; }
.histograms { display: grid; grid-template-columns: repeat(auto-fill, minmax(19rem, 1fr)); gap: 1rem; }
figure { margin: 0; } figcaption { font-size: .85rem; color: var(--soft); }
svg.histogram { width: 100%; height: auto; display: block; }
.bar { fill: var(--bar); } .axis { stroke: var(--rule); }
.line { stroke: var(--mark); stroke-dasharray: 3 3; }
.line.median { stroke-dasharray: none; stroke-width: 1.5; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
.case { background: var(--panel); border-radius: 6px; padding: .6rem .8rem; margin: .5rem 0; }
.case header { display: flex; flex-wrap: wrap; gap: .2rem 1rem; align-items: baseline; }
.case dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem .9rem; margin: .4rem 0 0; }
.case dt { color: var(--soft); font-size: .85rem; }
.case dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }
.case dd.value { font-family: ui-monospace, monospace; font-size: .85rem; white-space: pre-wrap; }
pre { margin: 0; white-space: pre-wrap; font-size: .85rem; overflow-wrap: anywhere; }
img, video { max-width: min(100%, 22rem); max-height: 16rem; background: #fff; border: 1px solid var(--rule);
  image-rendering: pixelated; min-width: 5rem; }
audio { width: min(100%, 22rem); height: 2.2rem; display: block; }
.lost { color: var(--bad); }
@media (max-width: 40rem) { .case dl { grid-template-columns: 1fr; } }
"""


def render(content: ReportContent) -> Iterator[str]:
    """Yields the page in pieces."""
    media = PageMedia(content.folder.path)
    title = escape(f"{content.folder.name}, evaluation of {content.package}")
    policy = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'"
    yield (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body>\n"
    )
    yield f"<h1>{escape(content.folder.name)}</h1>"
    yield f'<p class="soft">Evaluation of {escape(content.package)}: {_counts(content)}</p>\n'
    if content.unfinished:
        names = "".join(f"<li>{escape(cell.label)}</li>" for cell in content.unfinished)
        count = count_text(len(content.unfinished), "cell")
        yield f"<details><summary>Not finished: {count}</summary><ul>{names}</ul></details>"
    for dataset, cells in content.datasets().items():
        yield f"<h2>{escape(dataset)}</h2>\n{_overview(cells, content)}\n"
    yield "<h2>Cells</h2>\n"
    for place, one in enumerate(content.cells):
        yield from _cell(one, place, media, is_open=len(content.cells) <= _OPEN_CELLS)
    if media.num_linked:
        yield (
            f'<p class="soft">Links in place of the files: {media.num_linked:,}. The page holds at most '
            f"{format_bytes(MAX_MEDIA_BYTES)} of files.</p>"
        )
    yield "</body></html>\n"


def _counts(content: ReportContent) -> str:
    cells = count_text(len(content.cells) + len(content.unfinished), "cell")
    samples = sum(one.summary["evaluated"] for one in content.cells)
    return f"{cells}, {len(content.cells)} finished; {count_text(samples, 'evaluated sample')}"


def _table(head: Sequence[str], rows: Iterable[str], *, texts: int = 1) -> str:
    cells = "".join(
        f'<th class="text">{name}</th>' if place < texts else f"<th>{name}</th>"
        for place, name in enumerate(head)
    )
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>\n{body}\n</tbody></table></div>'
    )


def _td(text: str, side: str = "") -> str:
    if side:
        return f'<td class="{side}"><span class="tag">{side}</span>{text}</td>'
    return f"<td>{text}</td>"


def _text_td(text: object) -> str:
    return f'<td class="text">{escape(str(text))}</td>'


def _overview(cells: Sequence[CellContent], content: ReportContent) -> str:
    names = metrics_of(cells)
    ends = {name: best_and_worst_mean(cells, name) for name in names}
    rows = []
    for one in cells:
        number = content.cells.index(one)
        row = (
            f'<td class="text"><a href="#cell-{number}">{escape(one.cell.checkpoint)}</a></td>'
            f"{_text_td(one.cell.variant)}{_td(number_text(one.summary['evaluated']))}"
        )
        for name in names:
            entry = one.metrics.get(name)
            mean = None if entry is None else entry["mean"]
            sides = [] if mean is None else [SIDES[at] for at in (0, 1) if ends[name][at] == mean]
            row += _td("–" if entry is None else _mean(entry), *sides)
        rows.append(row)
    return _table(["checkpoint", "variant", "samples", *map(escape, names)], rows, texts=2)


def _mean(entry: dict[str, Any]) -> str:
    interval = interval_text(entry.get("interval"))
    lost = entry["nan"] + entry.get("infinite", 0)
    warning = f'<small class="lost">{lost:,} not finite</small>' if lost else ""
    return number_text(entry["mean"]) + (f"<small>{interval}</small>" if interval else "") + warning


def _cell(one: CellContent, place: int, media: PageMedia, *, is_open: bool) -> Iterator[str]:
    state = " open" if is_open else ""
    yield f'<details class="cell"{state}><summary>{escape(one.cell.label)}</summary>\n'
    yield f'<div id="cell-{place}">{_statistics(one)}</div>'  # a link to what is inside unfolds the cell
    if one.summary["num_skipped"]:
        yield _skipped(one.summary)
    figures = [
        f"<figure><figcaption>{escape(name)}</figcaption>{histogram_svg(name, entry)}</figure>"
        for name, entry in one.metrics.items()
        if "histogram" in entry
    ]
    if figures:
        yield (
            '<h3>Histograms</h3><p class="soft">Dashed lines: 10, 25, 75 and 90 %; the solid line is the '
            f'median.</p><div class="histograms">{"".join(figures)}</div>\n'
        )
    for group, entry in one.summary["groups"].items():
        yield f"<h3>By {escape(group)}</h3>{_group(entry)}\n"
    for title, lists in (("Worst", one.worst), ("Best", one.best)):
        for listed in lists:
            if listed.cases:
                yield from _case_list(one.cell, title, listed, media, is_open=title == "Worst")
    yield "</details>\n"


def _statistics(one: CellContent) -> str:
    rows = []
    for name, entry in one.metrics.items():
        quantiles = entry.get("quantiles") or {}
        lost = entry["nan"] + entry.get("infinite", 0)
        shown = f'<span class="lost">{lost:,}</span>' if lost else "0"
        origin = "" if entry["from"] == "samples" else f" <small>of {entry['from']}</small>"
        rows.append(
            f'<td class="text">{escape(name)}{origin}</td>{_td(number_text(entry["mean"]))}'
            f"{_td(interval_text(entry.get('interval')) or '–')}{_td(number_text(entry.get('std')))}"
            f"{_td(number_text(entry.get('min')))}{_td(number_text(quantiles.get('0.5')))}"
            f"{_td(number_text(entry.get('max')))}{_td(number_text(entry['count']))}{_td(shown)}"
            f"{_td(number_text(entry.get('missing', 0)))}"
        )
    return _table(STATISTICS_HEAD, rows)


def _skipped(summary: dict[str, Any]) -> str:
    listed = summary["skipped"][:_MAX_SKIPPED]
    items = "".join(
        f"<li><b>{escape(str(one['id']))}</b> {escape(value_text(one['error']))}</li>" for one in listed
    )
    more = summary["num_skipped"] - len(listed)
    rest = f"<li>{more:,} more</li>" if more else ""
    return (
        '<details class="list"><summary class="lost">Skipped: '
        f"{count_text(summary['num_skipped'], 'sample')}</summary>"
        f"<ul>{items}{rest}</ul></details>"
    )


def _group(entry: dict[str, Any]) -> str:
    shown = shown_labels(entry)
    names = list(shown[0]["metrics"]) if shown else []
    rows = []
    for row in shown:
        cells = _text_td(row["label"]) + _td(number_text(row["count"]))
        for name in names:
            sides = [side for side in SIDES if entry[side].get(name) == row["label"]]
            cells += _td(number_text(row["metrics"][name]["mean"]), *sides)
        rows.append(cells)
    more = entry["labels"] - len(shown)
    rest = f'<p class="soft">{more:,} more labels are in summary.json</p>' if more else ""
    return _table(["label", "samples", *map(escape, names)], rows) + rest


def _case_list(
    cell: EvaluationCell, title: str, listed: CaseList, media: PageMedia, *, is_open: bool
) -> Iterator[str]:
    end = "largest" if listed.end == "max" else "smallest"
    state = " open" if is_open else ""
    yield (
        f'<details class="list"{state}><summary>{title} {len(listed.cases)} by {escape(listed.metric)}'
        f" <small>{end} values</small></summary>\n"
    )
    for place, case in enumerate(listed.cases):
        yield _case(cell, place + 1, listed.metric, case, media)
    yield "</details>\n"


def _case(cell: EvaluationCell, place: int, metric: str, case: CaseRow, media: PageMedia) -> str:
    others = [f"{name} {number_text(value)}" for name, value in case.metrics.items() if name != metric]
    groups = [f"{name} {label}" for name, label in case.groups.items()]
    soft = " · ".join([*others, *groups])
    values = [
        f'<dt>{escape(name)}</dt><dd class="value">{escape(value_text(value))}</dd>'
        for name, value in case.outputs.items()
    ]
    values += [
        f"<dt>{escape(name)}</dt><dd>{media.element(cell.path, file, name)}</dd>"
        for name, file in case.files.items()
    ]
    body = f"<dl>{''.join(values)}</dl>" if values else ""
    return (
        f'<article class="case"><header><span class="soft">{place}</span><b>{escape(str(case.id))}</b>'
        f"<span>{escape(metric)} <b>{number_text(case.value)}</b></span>"
        f'<span class="soft">{escape(soft)}</span></header>{body}</article>\n'
    )
