"""A histogram with lines at its quantiles, as SVG inside a page."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from roost.evaluation.reports.number_text import number_text

_WIDTH, _HEIGHT = 420, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 8, 8, 22, 20
_LABELS = {"0.1": "10 %", "0.25": "25 %", "0.5": "median", "0.75": "75 %", "0.9": "90 %"}


def histogram_svg(name: str, statistics: Mapping[str, Any]) -> str:
    """Returns the histogram of a metric; its colours are those of the classes ``bar``, ``line`` and ``axis``.

    Args:
        name: The metric.
        statistics: Its entry of a summary, with ``histogram`` and ``quantiles``.
    """
    edges, counts = statistics["histogram"]["edges"], statistics["histogram"]["counts"]
    low, high = float(edges[0]), float(edges[-1])
    span, most = (high - low) or 1.0, max(counts, default=0) or 1
    inner, floor = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _BOTTOM

    def x(value: float) -> float:
        return _LEFT + inner * (value - low) / span

    parts = []
    for left, right, count in zip(edges[:-1], edges[1:], counts, strict=True):
        if count:
            height = max(1.0, (floor - _TOP) * count / most)
            tip = f"{number_text(left)} … {number_text(right)}: {count:,}"
            width = max(0.5, x(right) - x(left) - 0.5)
            parts.append(
                f'<rect class="bar" x="{x(left):.2f}" y="{floor - height:.2f}" width="{width:.2f}" '
                f'height="{height:.2f}"><title>{escape(tip)}</title></rect>'
            )
    for share, value in statistics["quantiles"].items():
        kind = "line median" if share == "0.5" else "line"
        tip = f"{_LABELS[share]}: {number_text(value)}"
        parts.append(
            f'<line class="{kind}" x1="{x(value):.2f}" x2="{x(value):.2f}" y1="{_TOP - 4}" y2="{floor}">'
            f"<title>{escape(tip)}</title></line>"
        )
    middle = x(statistics["quantiles"]["0.5"])
    anchor = "start" if middle < _WIDTH / 4 else "end" if middle > 3 * _WIDTH / 4 else "middle"
    parts.append(
        f'<text x="{middle:.2f}" y="{_TOP - 8}" text-anchor="{anchor}">median '
        f"{number_text(statistics['quantiles']['0.5'])}</text>"
    )
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{floor}" y2="{floor}"/>')
    ends = ((_LEFT, "start", statistics["min"]), (_WIDTH - _RIGHT, "end", statistics["max"]))
    parts += [
        f'<text x="{place}" y="{_HEIGHT - 5}" text-anchor="{side}">{number_text(value)}</text>'
        for place, side, value in ends
    ]
    return (
        f'<svg class="histogram" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(f"histogram of {name}")}">{"".join(parts)}</svg>'
    )
