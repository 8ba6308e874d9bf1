"""F5: the cards: memory by who holds it, two minutes of utilization, temperature, power; and the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from rich.segment import Segment
from textual import events
from textual.message import Message
from textual.strip import Strip

from roost.base.text.byte_sizes import format_memory
from roost.tui.drawing import palette, styled_text
from roost.tui.drawing.spark_line import bar, spark
from roost.tui.drawing.styled_text import cell
from roost.tui.panes.line_view import LineView

if TYPE_CHECKING:
    from roost.operations.live_lab.lab_state import CardShare, LabCard, LabState

_NAME, _SPARK = 16, 20
_HOT = 83
"""Degrees Celsius from which cards of data centres slow down."""


class DevicesPane(LineView):
    """The cards, two lines each, and the host."""

    class CardClicked(Message):
        """A card was clicked, whose tasks are to be listed."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self) -> None:
        super().__init__("devices", "F5 Devices")
        self._lab: LabState | None = None
        self._lines: list[Callable[[int], Strip]] = []
        self._cards: list[int | None] = []

    def show(self, lab: LabState) -> None:
        """Shows the cards of a lab."""
        self._lab = lab
        self._lines, self._cards = [], []
        for one in lab.cards():
            self._add(one.status.number, partial(self._card_line, one))
            self._add(one.status.number, partial(self._memory_line, one))
            if note := _note(one):
                self._add(one.status.number, partial(self._note_line, note))
        if lab.cards_trouble:
            self._add(None, partial(self._note_line, styled_text.escape(lab.cards_trouble)))
        if lab.host is not None:
            self._add(None, self._host_line)
        self.lines_changed()

    def _add(self, number: int | None, line: Callable[[int], Strip]) -> None:
        self._lines.append(line)
        self._cards.append(number)

    def count(self) -> int:
        """Returns the number of lines."""
        return len(self._lines)

    def line(self, index: int, width: int) -> Strip:
        """Returns a line."""
        return self._lines[index](width)

    def empty_text(self) -> str:
        """Returns what is said without data."""
        return "no cards" if self._lab is not None else ""

    def _card_line(self, card: LabCard, width: int) -> Strip:
        colours, status = self.palette, card.status
        text, faint = palette.style(colours.text), palette.style(colours.faint)
        bold = palette.style(colours.text, attributes="b")
        usage = "  –" if status.utilization is None else f"{status.utilization:3}%"
        values = [f"{status.temperature}°C" if status.temperature is not None else ""]
        values += [f"{status.power:.0f} W" if status.power is not None else ""]
        right = "  ".join(filter(None, values))
        hot = status.temperature is not None and status.temperature >= _HOT
        name_width = _NAME + 6 if width >= 60 else _NAME
        size = max(6, min(2 * _SPARK, width - 7 - name_width - 6 - len(right) - 1))
        line = spark(card.utilization.values, size, 0.0, 100.0)
        heat = colours.good if (status.utilization or 0) >= 50 else colours.busy
        name = styled_text.escape(status.name.removeprefix("NVIDIA "))
        return Strip([
            cell(f"GPU {status.number}", 6, bold), Segment(" ", text),
            cell(name, name_width, faint),
            Segment(line, palette.style(heat)),
            Segment(f" {usage} ", text),
            Segment(f" {right}", palette.style(colours.bad) if hot else faint),
        ])  # fmt: skip

    def _memory_line(self, card: LabCard, width: int) -> Strip:
        colours, status = self.palette, card.status
        faint, text = palette.style(colours.faint), palette.style(colours.text)
        total = status.total_mb
        used = total - status.free_mb
        amount = f" {_gigabytes(used)}/{_gigabytes(total)} GB" if total else " memory not known"
        owners = [(self._owner(share), self._colour(share)) for share in card.shares()]
        size = max(
            8, min(40, (width - 7 - len(amount)) * (1 if width < 44 else 2) // (1 if width < 44 else 3))
        )
        parts = []
        rest = float(used)
        for share in card.shares():
            mb = total if share.mb is None and share.kind != "process" else (share.mb or 0)
            parts.append((mb / total if total else 0.0, palette.style(self._colour(share))))
            rest -= mb
        if rest > 0.01 * total > 0:
            parts.append((rest / total, palette.style(colours.faint)))
        found = [
            cell("", 7, text),
            *bar(parts, size, palette.style(colours.line or "")),
            Segment(amount, text),
        ]
        left = width - 7 - size - len(amount)
        for owner, colour in owners:
            word = f"  {owner}"
            length = Segment(word).cell_length
            if length > left:
                found.append(Segment("…"[: max(0, left)], faint))
                break
            found.append(Segment(word, palette.style(colour)))
            left -= length
        return Strip(found)

    def _owner(self, share: CardShare) -> str:
        if share.kind == "task" and self._lab is not None and (task := self._lab.task(share.key)) is not None:
            from roost.tui.view_state import label

            return label(task)
        return styled_text.escape(f"pid {share.key}" if share.kind == "process" else share.key)

    def _colour(self, share: CardShare) -> str:
        colours = self.palette
        if share.kind == "process":
            return colours.waiting
        if share.kind == "lease":
            return colours.marked
        task = self._lab.task(share.key) if self._lab is not None else None
        number = int(task.row.label.rpartition("_")[2]) if task is not None else sum(share.key.encode())
        return colours.curves[number % len(colours.curves)]

    def _note_line(self, note: str, width: int) -> Strip:
        return Strip([cell("", 7), cell(note, max(0, width - 7), palette.style(self.palette.waiting))])

    def _host_line(self, width: int) -> Strip:
        lab = self._lab
        assert lab is not None
        assert lab.host is not None
        host, colours = lab.host, self.palette
        text, faint = palette.style(colours.text), palette.style(colours.faint)
        cpu = lab.host_cpu.values[-1] if lab.host_cpu.values else None
        size = max(6, min(_SPARK, width - 54))
        found = [
            cell("host", 7, palette.style(colours.text, attributes="b")),
            cell(f"{host.cores} cores", 10, faint),
            Segment(spark(lab.host_cpu.values, size, 0.0, 100.0), palette.style(colours.busy)),
            Segment("   –  " if cpu is None else f" {cpu:3.0f}%  ", text),
        ]
        if host.total_memory_mb and host.memory_used_mb is not None:
            newest = lab.host_memory_mb.values[-1] if lab.host_memory_mb.values else None
            used = newest if newest is not None else host.memory_used_mb
            share = used / host.total_memory_mb
            style = palette.style(colours.bad if share > 0.9 else colours.curves[0])
            found += bar([(share, style)], 10 if width >= 62 else 6, palette.style(colours.line or ""))
            words = f" {format_memory(round(used))} of {format_memory(host.total_memory_mb)}"
            left = width - sum(one.cell_length for one in found)
            found.append(Segment(words if len(words) <= left else words.partition(" of ")[0], faint))
        return Strip(found)

    def on_click(self, event: events.Click) -> None:
        """Lists the tasks of a card."""
        offset = event.get_content_offset(self)
        if offset is None or not 0 <= self.top + offset.y < len(self._cards):
            return
        number = self._cards[self.top + offset.y]
        if number is not None and event.chain == 2:
            self.post_message(self.CardClicked(number))


def _note(card: LabCard) -> str:
    """Returns why the lab does not use a card, or uses it otherwise than usual."""
    status = card.status
    words = [
        styled_text.escape(status.trouble),
        "drained" * status.drained,
        "not used by the lab" * (not status.allowed),
        "one process at a time" * status.exclusive,
    ]
    return ", ".join(filter(None, words))


def _gigabytes(mb: float) -> str:
    value = mb / 1024
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"
