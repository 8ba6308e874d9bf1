"""A flame graph as SVG: where a thread spends its time, by functions. It needs no script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import NamedTuple

from roost.package.results.profiles.profile_record import IDLE
from roost.train.profiling.stack_sampler import Frame, Sample
from roost.train.profiling.step_parts import PART_ORDER, split

WIDTH = 1200
_MARGIN, _ROW, _MAX_ROWS = 12, 19, 36
_CHARACTER, _MIN_WIDTH, _MIN_TEXT = 6.3, 0.6, 26.0
_PART_COLOURS = {
    "data": "#e4572e", "to device": "#f3a712", "forward": "#2e86ab", "backward": "#3f6c9b",
    "optimizer": "#5b5f97", "logging": "#b8336a", "hooks": "#8d6a9f", "validate": "#2a9d8f",
    "save": "#7a9e3f", "other": "#6c757d", IDLE: "#adb5bd",
}  # fmt: skip
_PROJECT, _ROOST, _TORCH, _PYTHON = "#ffc878", "#d7e3f4", "#cfe8d5", "#e9e6e1"
_LEGEND = (("your code", _PROJECT), ("roost", _ROOST), ("torch", _TORCH), ("other modules", _PYTHON))


class ThreadLooks(NamedTuple):
    """The looks at one thread."""

    title: str
    samples: Counter[Sample]
    times: Mapping[str, float]
    """The measured time of each part, in any unit: a thread that works on small things is looked at less
    often, as it then seldom gives way, so the looks divide the time within a part only."""


@dataclass
class _Node:
    """A function, in the functions that called it."""

    total: int = 0
    waiting: int = 0
    children: dict[Frame, _Node] = field(default_factory=dict)

    def add(self, frames: Sequence[Frame], number: int, is_waiting: bool) -> None:
        node = self
        for frame in frames:
            node._count(number, is_waiting)
            node = node.children.setdefault(frame, _Node())
        node._count(number, is_waiting)

    def _count(self, number: int, is_waiting: bool) -> None:
        self.total += number
        self.waiting += number * is_waiting

    @property
    def depth(self) -> int:
        return 1 + max((child.depth for child in self.children.values()), default=0)


def flame_graph(
    threads: Sequence[ThreadLooks], *, title: str, lines: Sequence[str], project: Path | None
) -> str:
    """Returns a picture: for each thread a row of the parts of a step, each as wide as its share of the time,
    and below it the functions that were called in it. A tooltip gives name, share and wait of each.

    Args:
        threads: The threads, from the top down.
        title: The heading.
        lines: Lines of text below it.
        project: The folder of the user's own code.
    """
    own = "" if project is None else f"{project}/"
    body: list[str] = []
    top = _MARGIN + 20
    body.append(_text(_MARGIN, top, title, size=17, weight="bold"))
    for line in lines:
        top += 18
        body.append(_text(_MARGIN, top, _cut(line, WIDTH - 2 * _MARGIN), size=12, colour="#444"))
    top += 12
    x = float(_MARGIN)
    for name, colour in _LEGEND:
        body.append(f'<rect x="{x:.0f}" y="{top}" width="12" height="12" rx="2" fill="{colour}"/>')
        body.append(_text(x + 17, top + 10, name, size=11, colour="#444"))
        x += 30 + 7 * len(name)
    top += 26
    for one in threads:
        root = _tree(one.samples)
        body.append(_text(_MARGIN, top + 12, one.title, size=13, weight="bold"))
        top += 20
        body += _parts(root, one.times, top, own)
        top += min(root.depth - 1, _MAX_ROWS) * _ROW + 18
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}" '
        'font-family="DejaVu Sans, Verdana, sans-serif">\n'
        f'<rect width="{WIDTH}" height="{top}" fill="#fff"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _tree(samples: Counter[Sample]) -> _Node:
    root = _Node()
    for sample, number in samples.items():
        part, frames = split(sample.stack)
        root.add([(part, "", 0), *frames], number, not sample.is_computing)
    return root


def _parts(root: _Node, times: Mapping[str, float], top: int, own: str) -> Iterator[str]:
    """Yields the row of the parts, in the order of a step, and what is below it."""
    whole = sum(times.values())
    x = float(_MARGIN)
    for part in PART_ORDER:
        if not (share := times.get(part, 0.0) / whole):
            continue
        width = (WIDTH - 2 * _MARGIN) * share
        yield from _box(
            x, top, width, f"{part} {share:.0%}", f"{part} {share:.1%}", _PART_COLOURS[part], ink="#fff"
        )
        node = root.children.get((part, "", 0))
        if node is not None:
            scale = _Scale(width / node.total, share / node.total, own)
            yield from _below(node, x, top + _ROW, scale, rows=_MAX_ROWS - 1)
        x += width


class _Scale(NamedTuple):
    """The width and the share of the time for one look in a part."""

    width: float
    share: float
    own: str
    """The folder of the user's code, with a slash."""


def _below(node: _Node, x: float, top: int, scale: _Scale, *, rows: int) -> Iterator[str]:
    if not rows:
        return
    for frame, child in sorted(node.children.items(), key=lambda one: (-one[1].total, one[0])):
        width = child.total * scale.width
        if width >= _MIN_WIDTH:
            name, file, line = frame
            waits = f", waiting in {child.waiting / child.total:.0%} of the looks"
            place = f"{name}  {file}{f':{line}' if line else ''}"
            tip = f"{place}\n{child.total * scale.share:.1%} of the time{waits}"
            yield from _box(x, top, width, short_name(frame), tip, _colour(file, scale.own))
            yield from _below(child, x, top + _ROW, scale, rows=rows - 1)
        x += width


def short_name(frame: Frame) -> str:
    """Returns a frame in a few words: ``__getitem__ Dataset.py:31``."""
    name, file, line = frame
    return f"{name} {Path(file).name}{f':{line}' if line else ''}" if file else name


def _colour(file: str, own: str) -> str:
    if own and file.startswith(own):
        return _PROJECT
    folders = file.split("/")
    return _ROOST if "roost" in folders else _TORCH if "torch" in folders else _PYTHON


def _box(
    x: float, y: int, width: float, label: str, tip: str, colour: str, *, ink: str = "#222"
) -> Iterator[str]:
    yield (
        f'<g><title>{escape(tip)}</title><rect x="{x:.1f}" y="{y}" width="{max(width - 0.5, 0.4):.1f}" '
        f'height="{_ROW - 1}" rx="2" fill="{colour}"/>'
    )
    if width >= _MIN_TEXT:
        yield _text(x + 4, y + 13, _cut(label, width - 7), size=11, colour=ink)
    yield "</g>"


def _cut(text: str, width: float) -> str:
    number = int(width / _CHARACTER)
    return text if len(text) <= number else text[: max(1, number - 1)] + "…"


def _text(x: float, y: float, text: str, *, size: int, colour: str = "#111", weight: str = "normal") -> str:
    style = "" if weight == "normal" else f' font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.0f}" font-size="{size}" fill="{colour}"{style}>{escape(text)}</text>'
