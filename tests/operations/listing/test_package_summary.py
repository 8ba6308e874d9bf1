"""One package in one row."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from msgspec.structs import replace

from roost.base.errors import NotFound
from roost.base.interval import NEVER
from roost.lab.queue import task_file
from roost.operations.listing.list_packages import list_packages
from roost.operations.listing.package_summary import summarize
from roost.package import live_progress
from roost.package.live_progress import ProgressFile
from roost.train.progress import Progress
from roost.train.reporting.progress_publisher import ProgressPublisher
from tests.lab.labs import Lab
from tests.messages import Messages
from tests.operations.packages import ROWS, VALUES, package, record_rows, session

LAST_TICKS = 1  # the clock tick at which no process of ours started


def test_a_run_that_ended(tmp_path: Path) -> None:
    row = summarize(package(tmp_path / "runs").path)
    assert (row.name, row.state, row.sessions) == ("one", "succeeded", 1)
    assert (row.step, row.total_steps, row.epoch) == (30, 30, 3)
    assert (row.metric, row.last, row.best) == ("valid/loss", 0.75, 0.5)
    assert (row.started, row.seconds, row.description) == (1_800_000_000.0, 60.0, "a test")
    assert row.error is None


def test_a_session_that_only_tests_keeps_the_metric(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    session(made, "succeeded")
    record_rows(made, 2, 30, [{"step": 30, "epoch": 3, "test/loss": 9.0}])
    row = summarize(made.path)
    assert (row.metric, row.last, row.best) == ("valid/loss", 0.75, 0.5)
    session(made, "succeeded")  # from the checkpoint of step 20, beyond which the first session went
    record_rows(made, 3, 20, [{"step": 20, "epoch": 2, "test/loss": 9.0}])
    row = summarize(made.path)
    assert (row.metric, row.last, row.best) == ("valid/loss", 0.5, 0.5)


def test_last_and_best_are_of_one_metric(tmp_path: Path) -> None:
    values = {**VALUES, "checkpoint": {"best": [{"monitor": "valid/accuracy", "mode": "max"}]}}
    row = summarize(package(tmp_path / "runs", values=values).path)
    assert (row.metric, row.last, row.best) == ("valid/loss", 0.75, None)


@pytest.mark.parametrize("state", ["running", "failed"])
def test_a_session_that_has_not_loaded_yet_is_at_its_checkpoint(tmp_path: Path, state: str) -> None:
    made = package(tmp_path / "runs", state="stopped")
    session(made, state)
    live_progress.reset(made.progress)
    row = summarize(made.path)
    assert (row.step, row.epoch) == (30, 3)


def test_one_that_never_started(tmp_path: Path) -> None:
    row = summarize(package(tmp_path / "runs", state="new").path)
    assert (row.state, row.sessions, row.step, row.seconds) == ("new", 0, None, None)


def test_one_whose_task_was_stopped_before_it_began(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    task = lab.queue("true")
    task_file.write(task, lab.state)
    assert summarize(Path(task.package)).state == "new"
    lab.ask(task.id, "stop")
    with lab.here():
        (listed,) = list_packages(Path(task.package).parent)
    assert (listed.state, listed.sessions) == ("stopped", 0)
    again = lab.task("true")
    made = Path(again.package)
    task_file.write(replace(task, package=str(made), state="stopped", ended=task.submitted), lab.state)
    assert summarize(made).state == "new", "another one waits"


def test_one_that_runs(tmp_path: Path) -> None:
    row = summarize(package(tmp_path / "runs", state="running", started=0.0).path)
    assert row.state == "running" and row.seconds is not None and row.seconds > 1e9


def test_one_whose_supervisor_is_gone(tmp_path: Path, messages: Messages) -> None:
    row = summarize(package(tmp_path / "runs", state="running", start_ticks=LAST_TICKS).path)
    assert row.state == "crashed" and row.error is not None
    messages.check(row.error)
    assert row.seconds is not None and row.seconds >= 0


def test_one_that_failed_tells_why(tmp_path: Path) -> None:
    assert (
        summarize(package(tmp_path / "runs", state="failed", error="ValueError: no").path).error
        == "ValueError: no"
    )


@pytest.mark.parametrize(
    ("state", "reason", "shown"),
    [
        ("succeeded", "early stop", "early stop"),
        ("stopped", "time limit", "time limit"),
        ("succeeded", "finished", None),
        ("stopped", "signal", None),
    ],
)
def test_why_it_ended_before_its_end(tmp_path: Path, state: str, reason: str, shown: str | None) -> None:
    row = summarize(package(tmp_path / "runs", state=state, reason=reason).path)
    assert row.reason == shown


def test_the_time_of_all_sessions(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    session(made, "succeeded", seconds=5.0)
    row = summarize(made.path)
    assert (row.seconds, row.sessions, row.started) == (65.0, 2, 1_800_000_000.0)


@pytest.mark.parametrize(
    ("rows", "metric", "last"),
    [
        ([{"step": 1, "epoch": 0, "train/loss": 3.0}], "train/loss", 3.0),
        ([{"step": 1, "epoch": 0, "train/loss": 3.0, "valid/bleu": 0.5}], "valid/bleu", 0.5),
        ([{"step": 1, "epoch": 0, "lr": 0.5}], "lr", 0.5),
        ([{"step": 1, "epoch": 0, "perf/host_mb": 9.0, "lr": 0.5}], "lr", 0.5),
        (
            [{"step": 1, "epoch": 0, "valid/loss": 2.0}, {"step": 2, "epoch": 0, "train/loss": 1.0}],
            "valid/loss",
            2.0,
        ),
    ],
)
def test_the_metric_without_a_rule(
    tmp_path: Path, rows: list[dict[str, float]], metric: str, last: float
) -> None:
    values = {**VALUES, "checkpoint": {}}
    row = summarize(package(tmp_path / "runs", rows=rows, values=values, checkpoints=False).path)
    assert (row.metric, row.last, row.best) == (metric, last, None)


def test_a_value_that_is_not_finite(tmp_path: Path) -> None:
    rows = [{"step": 1, "epoch": 0, "valid/loss": math.inf}]
    assert summarize(package(tmp_path / "runs", rows=rows, checkpoints=False).path).last == math.inf


def test_long_records_are_read_from_their_end(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", rows=ROWS, checkpoints=False)
    many = [{"step": 31 + i, "epoch": 3, "train/loss": 0.1, "valid/loss": float(i)} for i in range(3000)]
    session(made, "succeeded")
    record_rows(made, 2, 30, many)
    assert summarize(made.path).last == 2999.0


def test_a_run_limited_by_time_alone_has_no_total(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="running")
    board = ProgressFile(made.progress)
    ProgressPublisher(board, steps_per_epoch=10).publish(Progress(step=31, total_steps=NEVER), "training")
    row = summarize(made.path)
    assert (row.step, row.total_steps) == (31, None)


@pytest.mark.parametrize(
    ("file", "content", "cause"),
    [
        (
            "_package.json",
            '{"ckpt_best": 3}',
            "_package.json: Expected `array`, got `int` - at `$.ckpt_best`",
        ),
        ("sessions/1.json", "[]", "sessions/1.json: Object missing required field `state`"),
        ("sessions/1.request.json", "null", "sessions/1.request.json: Object missing required field `host`"),
        ("request.json", "{", "request.json: "),
        ("args.json", "3", "args.json: Expected `object`, got `int`"),
    ],
)
def test_a_damaged_package_says_so(tmp_path: Path, file: str, content: str, cause: str) -> None:
    made = package(tmp_path / "runs")
    (made.path / file).write_text(content)
    row = summarize(made.path)
    assert row.state == "damaged" and row.error is not None and row.error.startswith(cause)


def test_a_value_that_is_no_number_is_passed_over(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    with (made.path / "records" / "1.jsonl").open("a") as file:
        file.write('{"step": 31, "epoch": 3, "valid/loss": "low"}\n{"step": 32, "nonfinite": 3}\n')
    assert summarize(made.path).last == 0.75


def test_no_package(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        summarize(tmp_path)
