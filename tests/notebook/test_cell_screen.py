"""The view of a run in a cell: what it shows, and that it does not grow."""

from __future__ import annotations

import time
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path

import pytest

from roost.notebook import cell_screen
from roost.notebook.cell_screen import CellScreen
from roost.operations.sessions.running_session import running_session
from roost.package.live_progress import PHASES, ProgressFile
from roost.package.package import PackageFolder
from roost.package.records import RecordsWriter
from tests.operations.packages import package, session


class Cell:
    """The output of a cell, with the bytes that all updates together took."""

    def __init__(self) -> None:
        self.shown: Mapping[str, str] = {}
        self.updates = self.sent = 0

    def __call__(self, data: Mapping[str, str]) -> None:
        self.shown = data
        self.updates += 1
        self.sent += sum(len(text.encode()) for text in data.values())

    @property
    def text(self) -> str:
        found: list[str] = []
        parser = HTMLParser()
        parser.handle_data = found.append  # type: ignore[method-assign]
        parser.feed(self.shown["text/html"])
        return "".join(found).replace("\N{NO-BREAK SPACE}", " ")


class Clock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def made(tmp_path: Path) -> PackageFolder:
    """A package whose session has begun, without rows."""
    found = package(tmp_path / "runs", state="new")
    session(found, "running", started=time.time())
    return found


def publish(board: ProgressFile, step: int, total: int, phase: str = "training") -> None:
    board.publish(step, 0, step, PHASES.index(phase), total, total, step, 1.0, 250.0, step / total)


def test_what_is_shown_of_a_run(made: PackageFolder) -> None:
    cell, clock = Cell(), Clock()
    view = CellScreen(running_session(made, 1), cell, clock=clock)
    view.tick()
    assert "one, session 1" in cell.text and "starting  0 s" in cell.text
    board = ProgressFile(made.progress)
    rows = RecordsWriter(made.path / "records" / "1.jsonl", session=1, start_step=0)
    for step in (100, 200):
        clock.now += 4
        publish(board, step, 400)
        rows.row(step, 0, {"train/loss": 1 / step, "perf/host_mb": 400.0})
        view.write(b"\x1b[31mstep\x1b[0m %d\nbar 1\rbar 2" % step)
    view.tick()
    shown = cell.text
    assert "step 200/400" in shown and f"{'█' * 15}{'░' * 15} 50%" in shown and "250 samples/s" in shown
    assert "ETA 8.0s" in shown and "train/loss 0.005" in shown and "perf/" not in shown
    assert shown.endswith("step 100\nbar 2step 200\nbar 2")
    assert 'alt="curves: loss"' in cell.shown["text/html"]
    assert "train/loss\N{NO-BREAK SPACE}0.005" in cell.shown["text/html"], "one word for the page"
    assert "one, session 1: epoch 1/1" in cell.shown["text/plain"]
    view.print_status("saving")
    assert "saving" in cell.text, "at once"
    publish(board, 400, 400, "ended")
    view.close()
    assert "100%" in cell.text and "ETA" not in cell.text and "samples/s" not in cell.text
    assert "saving" not in cell.text, "the run has ended"
    before = cell.updates
    view.close()
    assert cell.updates == before


def test_twelve_hours_stay_small(made: PackageFolder) -> None:
    """A notebook keeps the last update."""
    cell, clock = Cell(), Clock()
    view = CellScreen(running_session(made, 1), cell, clock=clock)
    board, total = ProgressFile(made.progress), 12 * 60 * 60
    rows = RecordsWriter(made.path / "records" / "1.jsonl", session=1, start_step=0)
    names = [f"{split}/{name}" for name in ("loss", "a", "b", "c", "d") for split in ("train", "valid")]
    sizes = []
    for second in range(0, total + 1, 1200):
        publish(board, second, total)
        for step in range(max(0, second - 1000), second + 1, 20):
            rows.row(step, 0, dict.fromkeys(names, 1 / (step + 1) + step % 7 / 100))
            view.write(b"epoch 1  step %d  " % step + b"x" * 300 + b"\n")
        view.tick()
        sizes.append(len(cell.shown["text/html"]))
        clock.now += 1200
    view.close()
    assert max(sizes) < 64_000
    assert max(sizes) < 1.5 * sizes[len(sizes) // 4], "the view has stopped growing"


def test_updates_become_rarer(made: PackageFolder) -> None:
    cell, clock = Cell(), Clock()
    view = CellScreen(running_session(made, 1), cell, clock=clock)
    counts = []
    for _ in range(3):
        before = cell.updates
        for _ in range(1500 * 4):
            clock.now += 0.25
            view.tick()
        counts.append(cell.updates - before)
    assert 1200 < counts[0] <= 1501 and counts[0] > 1.5 * counts[1] > 2 * counts[2] and counts[2] > 150


def test_endless_output_is_read_at_its_end(made: PackageFolder) -> None:
    cell, clock = Cell(), Clock()
    view = CellScreen(running_session(made, 1), cell, clock=clock)
    for _ in range(20):
        view.write(b"no line end " * 100_000)
        clock.now += 1
    view.write(b"\nlast")
    clock.now += 1
    view.tick()
    assert cell.text.endswith("\nlast") and len(cell.shown["text/html"]) < 2000


def test_hostile_output_and_names_are_text(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", name="<b>x", state="new")
    session(made, "running", started=time.time())
    cell, clock = Cell(), Clock()
    view = CellScreen(running_session(made, 1), cell, clock=clock)
    rows = RecordsWriter(made.path / "records" / "1.jsonl", session=1, start_step=0)
    rows.row(1, 0, {"<script>": 1.0, "\x1b[2J": 2.0})
    publish(ProgressFile(made.progress), 1, 2)
    view.write(b"<img src=x onerror=alert(1)>\x1b]0;title\x07")
    clock.now += 20
    view.tick()
    shown = cell.shown["text/html"]
    assert "<script" not in shown and "<b>" not in shown and "\x1b" not in shown and "\x07" not in shown
    assert shown.count("<img") == 1, "the curves"
    assert "<script> 1" in cell.text and "onerror=alert(1)>" in cell.text


def test_curves_that_cannot_be_drawn_leave_the_rest(
    made: PackageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = RecordsWriter(made.path / "records" / "1.jsonl", session=1, start_step=0)
    rows.row(1, 0, {f"m{number}": 1.0 for number in range(500)})
    publish(ProgressFile(made.progress), 1, 2)
    cell = Cell()
    CellScreen(running_session(made, 1), cell).tick()
    assert "step 1/2" in cell.text and "… 476 more" in cell.text and "<img" not in cell.shown["text/html"]
    assert cell_screen._MAX_METRICS == 24
