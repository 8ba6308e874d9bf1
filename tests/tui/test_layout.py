"""The layout by the shape of the terminal, and the first picture."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from roost.tui import first_frame, layout
from tests.tui.driving import app_of, client_on, drive, screen_text
from tests.tui.generated_lab import small_lab


@pytest.mark.parametrize(
    ("size", "shape"),
    [((59, 24), "small"), ((80, 15), "small"), ((60, 16), "compact"), ((80, 24), "compact"),
     ((100, 50), "tall"), ((119, 60), "tall"), ((120, 40), "wide"), ((200, 60), "wide"), ((110, 30), "wide")],
)  # fmt: skip
def test_the_shape_of_the_terminal_decides(size: tuple[int, int], shape: str) -> None:
    found = layout.arrange(*size, front="tasks", is_zoomed=False, device_lines=9)
    assert found.shape == shape
    if shape in ("wide", "tall"):
        assert found.visible == set(layout.PANES)
        used = found.devices_rows + found.output_rows
        assert size[1] - 3 - used >= 8  # for curves


def test_the_first_frame_fills_the_terminal_and_no_more() -> None:
    for columns, rows in ((80, 24), (20, 5), (3, 2)):
        text = first_frame.paint("roost ada@box", (columns, rows), unicode=True, colours=False)
        lines = text.partition("\x1b[2J")[2].split("\r\n")
        assert len(lines) <= rows
        assert all(cell_len(line) <= columns for line in lines)


def test_after_any_sizes_the_views_fill_the_terminal_to_its_edges() -> None:
    """Without a bar at the edge while the views of the size before are still there."""

    async def body() -> None:
        async with client_on(small_lab()) as pilot:
            app = app_of(pilot)
            bars: list[bool] = []
            app.watch(app.screen, "show_vertical_scrollbar", lambda bar: bars.append(bar))
            for size in [(1, 1), (100, 30), (300, 3), (200, 60), (59, 100), (80, 24), (2, 50), (120, 40)]:
                await pilot.resize_terminal(*size)
                await pilot.pause()
                strips = app.screen._compositor.render_strips()
                assert [strip.cell_length for strip in strips] == [size[0]] * size[1]
                if size[0] >= 60 and size[1] >= 16:
                    first, *_, last = screen_text(pilot).splitlines()
                    assert first.startswith(" roost") and last.startswith(" F1 command")
            assert not any(bars)

    drive(body)
