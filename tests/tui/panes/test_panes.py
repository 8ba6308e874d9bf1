"""The panes of tasks and devices, the first and the last line."""

from __future__ import annotations

import pytest

from roost.operations.live_lab.lab_state import LabState
from roost.tui.panes.devices_pane import DevicesPane
from roost.tui.panes.tasks_pane import TasksPane
from roost.tui.view_state import ViewState
from tests.tui import generated_lab
from tests.tui.driving import app_of, client_on, drive, screen_text


@pytest.mark.parametrize("width", [56, 60, 76, 120])
def test_the_line_of_the_host_fits(width: int) -> None:
    lab = LabState()
    lab.apply_all(generated_lab.small_lab())
    pane = DevicesPane()
    pane.show(lab)
    assert pane.line(pane.count() - 1, width).cell_length <= width


def test_the_keys_of_the_last_line_are_whole() -> None:
    async def body() -> None:
        async with client_on(generated_lab.small_lab(), (90, 24)) as pilot:
            first, *_, last = screen_text(pilot).splitlines()
            assert last.endswith("c compare  l log")
            assert (
                "94%" not in first and "96%" not in first and first.endswith("2 failed")
            )  # more than the cards, which have a view
            app_of(pilot).say("a long message " * 10)
            await pilot.pause()
            assert screen_text(pilot).rstrip().endswith("…")

    drive(body)


def test_nothing_is_said_about_tasks_before_the_lab_is_known() -> None:
    assert TasksPane(ViewState()).empty_text() == ""
