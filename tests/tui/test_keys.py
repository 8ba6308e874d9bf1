"""What keys do, asserted on the view-model and on what is visible."""

from __future__ import annotations

from typing import Any

import pytest
from textual.events import Key
from textual.pilot import Pilot

from roost.base.errors import NotFound
from roost.operations.live_lab.lab_change import JournalLines, TaskRemoval, TaskRowChange
from roost.tui.panes.verb_line import CompletionWord
from roost.tui.view_state import ViewState
from tests.tui.driving import app_of, client_on, drive, press, screen_text, settle
from tests.tui.generated_lab import small_lab, task_row


def selected(pilot: Pilot[int]) -> str:
    """The label of the selected task, or the short id of a sweep."""
    return app_of(pilot).view.target_names()[0]


def test_moving() -> None:
    async def body() -> None:
        async with client_on(small_lab()) as pilot:
            assert selected(pilot) == "T_12"
            await press(pilot, "j", "down")
            assert selected(pilot) == "A_14"
            await press(pilot, "k")
            assert selected(pilot) == "T_13"
            await press(pilot, "G")
            assert selected(pilot) == "T_11"
            await press(pilot, "g")
            assert selected(pilot) == "T_12"
            assert "F6 T_12 · resnet50-imagenet" in screen_text(pilot)

    drive(body)


def test_the_selection_stays_on_its_task_while_others_come_and_go() -> None:
    async def body() -> None:
        async with client_on(small_lab()) as pilot:
            await press(pilot, "j", "j", "j")
            assert selected(pilot) == "T_15"
            app, gone = app_of(pilot), task_row(13, "x", "running").id
            changes: Any = [TaskRemoval(gone), TaskRowChange(task_row(1, "early", "running"))]
            assert app.lab is not None
            app.lab.apply_all(changes)
            app.received(changes)
            await settle(pilot)
            assert selected(pilot) == "T_15"
            assert "early" in screen_text(pilot)
            assert "vit-b16" not in screen_text(pilot)

    drive(body)


def test_a_filter_applies_while_it_is_typed_and_escape_ends_it() -> None:
    async def body() -> None:
        async with client_on(small_lab()) as pilot:
            view = app_of(pilot).view
            whole = len(view.entries)
            await press(pilot, "slash", *"resnet")
            assert {entry.task.row.label for entry in view.entries if entry.task} == {"T_12", "A_14", "T_31"}
            await press(pilot, "enter")
            assert app_of(pilot).focused is app_of(pilot).tasks
            await press(pilot, "escape")
            assert len(view.entries) == whole

    drive(body)


def test_a_filter_that_is_wrong_leaves_the_list_and_says_why() -> None:
    async def body() -> None:
        async with client_on(small_lab()) as pilot:
            whole = len(app_of(pilot).view.entries)
            await press(pilot, "slash", *"state:runing", "enter")
            assert len(app_of(pilot).view.entries) == whole
            assert "running" in app_of(pilot).message  # the nearest state
            assert app_of(pilot).message.split(":")[0] in screen_text(pilot)
            assert "not applied: /state:runing" in str(app_of(pilot).tasks.border_title)
            await press(pilot, "escape")
            assert "not applied" not in str(app_of(pilot).tasks.border_title)

    drive(body)


def test_a_sweep_unfolds_and_folds() -> None:
    async def body() -> None:
        async with client_on(small_lab()) as pilot:
            app = app_of(pilot)
            assert app.view.select(next(entry.id for entry in app.view.entries if entry.sweep))
            await press(pilot, "enter")
            assert [entry.is_member for entry in app.view.entries].count(True) == 8
            text = screen_text(pilot)
            assert "8×" in text  # also where states are one sign
            assert all(
                f"  lr-{rate} " in text for rate in ("1e-1", "3e-2", "1e-4")
            )  # without the sweep's name
            assert "A_14" in text and "zers/3" not in text  # without the folder of its session
            await press(pilot, "j", "enter")
            assert app.focused is app.run_pane  # a member is a run
            app.tasks.focus()
            app.view.toggle_fold()
            assert app.lab is not None
            app.view.refresh(app.lab)
            assert not any(entry.is_member for entry in app.view.entries)

    drive(body)


def test_marks_are_compared_side_by_side() -> None:
    async def body() -> None:
        async with client_on(small_lab(), (200, 60)) as pilot:
            await press(pilot, "c")
            assert "mark two" in app_of(pilot).message
            await press(pilot, "space", "space", "c")
            view = app_of(pilot).view
            assert view.tab == "compare"
            assert len(view.marks) == 2
            text = screen_text(pilot)
            assert "settings that differ" in text
            assert "optimizers.main.lr" in text
            assert "data.batch_size" not in text  # equal
            await press(pilot, "escape", "escape")
            assert view.marks == []
            assert view.tab == "curves"

    drive(body)


def test_orders() -> None:
    async def body() -> None:
        async with client_on(small_lab()) as pilot:
            await press(pilot, "o")
            names = [entry.task.row.name for entry in app_of(pilot).view.entries if entry.task]
            assert names == sorted(names)
            assert "by name" in screen_text(pilot)

    drive(body)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_the_five_views_are_on_their_keys(size: tuple[int, int]) -> None:
    async def body() -> None:
        async with client_on(small_lab(), size) as pilot:
            app = app_of(pilot)
            for key, pane in [
                ("f2", app.server),
                ("f3", app.analyzer),
                ("f4", app.tasks),
                ("f5", app.devices),
            ]:
                await press(pilot, key)
                assert app.focused is pane
                assert pane.region.height > 3
                assert key.upper() in screen_text(pilot)
            await press(pilot, "f1")
            assert app.focused is app.command.input
            await press(pilot, "escape")
            assert app.focused is app.devices

    drive(body)


def test_the_key_of_the_view_in_front_shows_it_alone() -> None:
    async def body() -> None:
        async with client_on(small_lab()) as pilot:
            await press(pilot, "f2", "f2")
            assert app_of(pilot).server.region.width == 120
            await press(pilot, "escape")
            assert app_of(pilot).server.region.width == 60

    drive(body)


def test_tabs_of_a_run() -> None:
    async def body() -> None:
        async with client_on(small_lab()) as pilot:
            await press(pilot, "right_square_bracket")
            assert app_of(pilot).view.tab == "log"
            await press(pilot, "left_square_bracket", "left_square_bracket")
            assert app_of(pilot).view.tab == "why"
            app_of(pilot).view.tab = "settings"
            await press(pilot, "m", "ctrl+u", *"train/*", "enter")
            assert app_of(pilot).view.metrics == ["train/loss"]
            run = "\n".join(strip.text for strip in app_of(pilot).run_pane._shown)
            assert "train/loss" in run
            assert "valid/accuracy" not in run

    drive(body)


def test_a_client_that_only_reads_has_no_keys_that_change() -> None:
    async def body() -> None:
        async with client_on(small_lab(), is_read_only=True) as pilot:
            await press(pilot, "x", "K", "h", "p")
            assert app_of(pilot).command.purpose == "verb"
            text = screen_text(pilot)
            assert "read only" in text
            assert "x stop" not in text

    drive(body)


def test_ending_a_task_asks_first_and_anything_but_y_is_no() -> None:
    lines: list[str] = []

    async def body() -> None:
        async with client_on(small_lab()) as pilot:
            app = app_of(pilot)
            app.run_verb = lines.append  # type: ignore[method-assign]
            await press(pilot, "x")
            assert "save and stop T_12 resnet50-imagenet? y or n" in screen_text(pilot)
            await press(pilot, "n")
            await press(pilot, "x", "escape")
            assert lines == []
            await press(pilot, "K", "y")
            await press(pilot, "p", *"5", "enter")
            await press(pilot, "n", *'a "b"', "enter")
            await press(pilot, "t", *"one two", "enter")
            await press(pilot, "h")

    drive(body)
    assert lines == ["kill T_12", "priority T_12 5", 'note T_12 "a \\"b\\""', "tag T_12 one two", "hold T_12"]


def test_a_verb_that_fails_shows_in_the_output_of_the_server() -> None:
    def connect() -> Any:
        raise NotFound("no server answers", fix="`roost server --detach` starts one")

    async def body() -> None:
        async with client_on(small_lab(), connect=connect) as pilot:
            app = app_of(pilot)
            await press(pilot, "f1", *"runExp getAcc", "enter")
            while "no server answers" not in app.server.text():
                await pilot.pause(0.01)
            await press(pilot)
            assert "❯ runExp getAcc" in screen_text(pilot)
            assert "error: no server answers" in screen_text(pilot)

    drive(body)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
def test_a_verb_writes_lines_as_wide_as_the_view_that_shows_them(size: tuple[int, int]) -> None:
    """Also where this view is hidden behind others, and has no size yet."""
    widths: list[int] = []

    async def body() -> None:
        async with client_on(small_lab(), size) as pilot:
            app = app_of(pilot)
            app.verbs.run = lambda line, width: widths.append(width)  # type: ignore[method-assign]
            app.run_verb("showTask")
            await press(pilot, "f2")
            app.run_verb("showTask")

    drive(body)
    assert widths[0] == widths[1] and 40 < widths[0] <= size[0] - 2


def test_dark_and_light() -> None:
    async def body() -> None:
        async with client_on(small_lab()) as pilot:
            app = app_of(pilot)
            before = app.screen.styles.background
            await press(pilot, "ctrl+t")
            assert app.colours.name == "light" and app.screen.styles.background != before
            await press(pilot, "ctrl+t")
            assert app.colours.name == "dark" and app.screen.styles.background == before

    drive(body)


def test_the_logs_of_ranks() -> None:
    async def body() -> None:
        async with client_on(small_lab()) as pilot:
            view = app_of(pilot).view
            await press(pilot, "greater_than_sign", "greater_than_sign")
            assert (view.tab, view.rank) == ("log", 2)
            await press(pilot, *["less_than_sign"] * 3)
            assert view.rank == 0

    drive(body)


def test_a_logarithmic_axis() -> None:
    async def body() -> None:
        async with client_on(small_lab()) as pilot:
            await press(pilot, "y")
            assert app_of(pilot).view.is_logarithmic
            await press(pilot, "y")
            assert not app_of(pilot).view.is_logarithmic

    drive(body)


def test_what_follows_a_key_in_one_burst_gets_where_it_was_meant_to() -> None:
    lines: list[str] = []

    async def body() -> None:
        async with client_on(small_lab()) as pilot:
            app = app_of(pilot)
            app.run_verb = lines.append  # type: ignore[method-assign]
            for key, character in (("slash", "/"), ("x", "x"), ("y", "y")):
                app.post_message(Key(key, character))
            await settle(pilot)
            assert app.command.input.value == "xy"

    drive(body)
    assert lines == []


def test_keys_that_come_at_once_are_handled_one_after_the_other() -> None:
    """As on a slow connection: each may be about what the one before has chosen."""
    lines: list[str] = []

    async def body() -> None:
        async with client_on(small_lab()) as pilot:
            app = app_of(pilot)
            app.run_verb = lines.append  # type: ignore[method-assign]

            async def send(*keys: str) -> None:
                for key in keys:
                    app.post_message(Key(key, key if len(key) == 1 else None))
                await settle(pilot)

            await send("j", "h")
            await send("slash", *"vit", "enter", "x", "y", "r")
            await send("f1", "escape", "f1", *"help", "enter", "escape", "escape", "g", "x", "escape", "h")
            assert app.focused is app.tasks
            assert app.command.input.value == ""

    drive(body)
    assert lines == ["hold T_13", "del T_13", "release T_13", "help", "hold T_12"]


def test_the_history_of_the_command_line() -> None:
    async def body() -> None:
        async with client_on(small_lab()) as pilot:
            app = app_of(pilot)
            app.run_verb = lambda line: None  # type: ignore[method-assign]
            await press(pilot, "f1", *"hold T_1", "enter", *"why T_2", "enter")
            await press(pilot, *"new", "up", "up")
            assert app.command.input.value == "hold T_1"
            await press(pilot, "down", "down")
            assert app.command.input.value == "new"

    drive(body)


def test_completion_extends_then_goes_through_the_words() -> None:
    async def body() -> None:
        async with client_on(small_lab()) as pilot:
            line = app_of(pilot).command
            words = ["showTask", "showDevices", "showDL"]
            line.request_words = lambda text: line.offer(
                text, [CompletionWord(0, one, one) for one in words if one.startswith(text)]
            )
            await press(pilot, "f1", "s", "tab")
            assert line.input.value == "show"
            assert "showDevices" in app_of(pilot).message
            await press(pilot, "tab")
            assert line.input.value == "showTask"
            await press(pilot, "tab", "tab")
            assert line.input.value == "showDL"
            await press(pilot, "ctrl+u", *"showT", "tab")
            assert line.input.value == "showTask "

    drive(body)


def test_new_lines_of_the_journal_are_added_and_clearing_empties_it() -> None:
    async def body() -> None:
        async with client_on(small_lab()) as pilot:
            app = app_of(pilot)
            assert app.lab is not None
            for change in (JournalLines(lines=["one more"]), JournalLines(lines=["anew"], cleared=True)):
                app.lab.apply_all([change])
                app.received([change])
                await settle(pilot)
                assert change.lines[0] in app.server.text()
            assert app.server.text().count("\n") == 0

    drive(body)


def test_the_mouse_selects_marks_and_opens() -> None:
    async def body() -> None:
        async with client_on(small_lab()) as pilot:
            app = app_of(pilot)
            await pilot.click("#tasks", offset=(20, 4))
            await settle(pilot)
            assert selected(pilot) == "A_14"
            await pilot.click("#tasks", offset=(2, 2))
            await settle(pilot)
            assert len(app.view.marks) == 1
            await pilot.click("#run", offset=(12, 1))
            await settle(pilot)
            assert app.view.tab == "log"

    drive(body)


def test_what_is_chosen_without_a_terminal() -> None:
    view = ViewState()
    assert view.task is None
    assert view.target_names() == []
    assert not view.toggle_fold()
    view.move(3)
    assert view.selected is None
