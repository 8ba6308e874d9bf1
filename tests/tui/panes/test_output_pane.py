"""Outputs: they are searched, wrapped, bounded, and can do nothing to the terminal."""

from __future__ import annotations

from typing import Any

import pytest

from roost.operations.live_lab.lab_change import TaskRowChange
from roost.tui.panes.output_pane import MAX_LINES
from tests.tui.driving import app_of, client_on, drive, press, screen_text
from tests.tui.generated_lab import small_lab, task_row


def test_a_search_in_an_output() -> None:
    async def body() -> None:
        async with client_on(small_lab()) as pilot:
            app = app_of(pilot)
            app.server.write_lines(
                [f"line {number}{' NEEDLE' * (number in (3, 700))}" for number in range(1000)]
            )
            await press(pilot, "f2", "slash", *"needle", "enter")
            assert "line 700 NEEDLE" in screen_text(pilot)
            await press(pilot, "n")
            assert "line 3 NEEDLE" in screen_text(pilot)
            await press(pilot, "N")
            assert "line 700 NEEDLE" in screen_text(pilot)
            await press(pilot, "slash", "ctrl+u", *"nowhere", "enter")
            assert "no line has" in app.message

    drive(body)


def test_a_hostile_name_and_hostile_output_are_text() -> None:
    name = "\x1b]0;title\x07[red]x[/red]\x1b[2J\u202eabc"

    async def body() -> None:
        changes: Any = [TaskRowChange(task_row(1, name, "failed", reason="\x1b[2J\nboom"))]
        async with client_on(changes) as pilot:
            app_of(pilot).server.write("\x1b[31mred\x1b[0m \x1b[2J\x1b]52;c;AAAA\x07 [bold]no[/bold]\n")
            await press(pilot)
            text = screen_text(pilot)
            assert not any(ord(one) < 32 and one != "\n" for one in text)
            assert "\u202e" not in text
            assert "[bold]no[/bold]" in text
            assert r"red \x1b[2J\x1b]52;c;AAAA\x07" in text
            assert r"\x1b]0" in text

    drive(body)


def test_of_much_output_the_end_is_kept_and_shown() -> None:
    async def body() -> None:
        async with client_on(small_lab()) as pilot:
            server = app_of(pilot).server
            server.clear()
            server.write("".join(f"line {number}\n" for number in range(3 * MAX_LINES)) + "open")
            await press(pilot)
            assert server.count() == MAX_LINES + 1
            assert f"line {3 * MAX_LINES - 1}\n" in server.text()
            assert "│ open" in screen_text(pilot)
            await press(pilot, "f2", "k")
            server.write(" end\nlater\n")
            await press(pilot)
            assert "later" not in screen_text(pilot)  # it was scrolled up
            await press(pilot, "G")
            assert "later" in screen_text(pilot)

    drive(body)


def test_of_an_endless_line_the_beginning_is_shown_and_of_a_progress_bar_its_last_state() -> None:
    async def body() -> None:
        async with client_on(small_lab()) as pilot:
            server = app_of(pilot).server
            server.write_lines([f"begin {'x' * 100_000}"])
            await press(pilot, "f2")
            assert "xx…" in screen_text(pilot)
            await press(pilot, "g")
            assert "begin xxx" in screen_text(pilot)
            server.clear()
            for begin in range(0, 100_000, 5000):
                server.write("".join(f"\r{number} of 100,000" for number in range(begin, begin + 5000)))
            await press(pilot)
            assert "99999 of 100,000" in screen_text(pilot)
            server.write("\n")
            for _ in range(20):
                server.write("y" * 10_000)
            server.write("\nlast\n")
            await press(pilot)
            assert server.count() == 3 and "last" in screen_text(pilot)
            assert len(server.text()) < 100_000

    drive(body)


def test_wide_and_combining_characters_and_characters_from_right_to_left_leave_the_frame_whole() -> None:
    family = "👩\u200d👩\u200d👧"
    names = [
        "日本語の名前" * 20,
        "e\u0301" * 200,
        "שלום עולם " * 20,
        family * 30,
        "\u0300" * 50,
        "x" * 100_000,
    ]

    async def body() -> None:
        rows: Any = [TaskRowChange(task_row(number, name, "running")) for number, name in enumerate(names, 1)]
        async with client_on(rows) as pilot:
            app = app_of(pilot)
            for name in names:
                app.server.write_lines([name])
            for number, size in enumerate([(120, 40), (61, 17)]):
                app.view.move(3 * number)
                await pilot.resize_terminal(*size)
                await press(pilot, "j")
                strips = app.screen._compositor.render_strips()
                assert [strip.cell_length for strip in strips] == [size[0]] * size[1]

    drive(body)


@pytest.mark.parametrize("back", [("k", "j"), ("pageup", "pagedown"), ("g", "G")])
def test_long_lines_are_read_to_their_ends_and_scrolled(back: tuple[str, str]) -> None:
    up, down = back

    async def body() -> None:
        async with client_on(small_lab(), (80, 24)) as pilot:
            server = app_of(pilot).server
            server.write_lines([f"begin-{number} {'x' * 250} end-{number}" for number in range(12)])
            await press(pilot, "f2")
            assert "end-11" in screen_text(pilot) and server.is_following
            await press(pilot, up)
            await press(pilot, up)
            assert not server.is_following and "end-11" not in screen_text(pilot)
            first = server.top
            assert f"begin-{first} " in screen_text(pilot) and f"end-{first}" in screen_text(pilot)
            server.write_lines(["one more"])
            await pilot.pause()
            assert server.top == first
            for _ in range(5):
                await press(pilot, down)
            assert server.is_following and "one more" in screen_text(pilot)

    drive(body)


def test_a_search_shows_a_hit_among_long_lines() -> None:
    async def body() -> None:
        async with client_on(small_lab(), (80, 24)) as pilot:
            server = app_of(pilot).server
            server.write_lines(
                [f"{number} {'x' * 400} {'NEEDLE' * (number % 8 == 0)}!{number}" for number in range(40)]
            )
            await press(pilot, "f2", "slash", *"needle", "enter")
            for number in (32, 24, 16, 8, 0):
                assert f"NEEDLE!{number}" in screen_text(pilot).replace(" │\n│ ", "")
                await press(pilot, "n")

    drive(body)
