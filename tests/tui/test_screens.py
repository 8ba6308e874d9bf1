"""A few screens, character by character: sizes, ASCII, help, comparison."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.tui.driving import SIZES, client_on, drive, press, screen_text
from tests.tui.generated_lab import small_lab

Golden = Callable[[str, str], None]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_the_lab(size: tuple[int, int], golden_screen: Golden) -> None:
    async def body() -> None:
        async with client_on(small_lab(), size) as pilot:
            text = screen_text(pilot)
        lines = text.splitlines()
        assert len(lines) == size[1]
        assert "T_12" in text
        golden_screen(f"lab-{size[0]}x{size[1]}", text)

    drive(body)


def test_in_ascii(golden_screen: Golden) -> None:
    async def body() -> None:
        async with client_on(small_lab(), (120, 40), is_ascii=True) as pilot:
            text = screen_text(pilot)
        assert text.isascii()
        golden_screen("lab-ascii", text)

    drive(body)


def test_the_help(golden_screen: Golden) -> None:
    async def body() -> None:
        async with client_on(small_lab(), (120, 40)) as pilot:
            await press(pilot, "question_mark")
            golden_screen("help", screen_text(pilot))
            await press(pilot, "escape")
            assert len(pilot.app.screen_stack) == 1

    drive(body)


def test_a_comparison_of_marked_runs(golden_screen: Golden) -> None:
    async def body() -> None:
        async with client_on(small_lab(), (120, 40)) as pilot:
            await press(pilot, "space", "space", "c")
            golden_screen("comparison", screen_text(pilot))

    drive(body)


def test_a_terminal_that_is_too_small(golden_screen: Golden) -> None:
    async def body() -> None:
        async with client_on(small_lab(), (50, 12)) as pilot:
            text = screen_text(pilot)
            assert "needs 60x16" in text
            golden_screen("too-small", text)
            await pilot.resize_terminal(80, 24)
            await press(pilot)
            assert "F4 Tasks" in screen_text(pilot)

    drive(body)
