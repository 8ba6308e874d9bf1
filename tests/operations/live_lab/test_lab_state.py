"""The view-model of the lab: changes in, tasks and cards out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from roost.base.errors import UsageError
from roost.operations.devices.device_list import (
    CardStatus,
    DeviceList,
    ForeignProcess,
    HostStatus,
    TaskOnCard,
)
from roost.operations.live_lab import lab_change
from roost.operations.live_lab.lab_state import LabState, LabSweep, LabTask
from roost.operations.live_lab.value_history import MAX_POINTS, MAX_SAMPLES, MetricHistory
from roost.operations.task_results import TaskRow

CARD = "GPU-0"


def row(id: str, **changes: Any) -> TaskRow:
    given: dict[str, Any] = {
        "id": id, "short": id[:8], "name": f"run-{id}", "package": f"/runs/{id}", "user": "ada",
        "state": "running", "reason": "", "priority": 0, "held": False, "after": (), "after_any": (),
        "sweep": None, "sweep_name": None, "num_cards": 1, "cores": None, "host_memory_mb": None,
        "memory_mb": 1000, "whole": False, "time_limit": None, "opportunistic": False, "cards": (CARD,),
        "attempt": 1, "session": 1, "stop_asked": "", "submitted": 1.0, "begin": None, "started": 2.0,
        "ended": None, "exit_code": None, "label": f"T_{ord(id[0])}", "kind": "train", "session_folder": "",
    }  # fmt: skip
    return TaskRow(**{**given, **changes})


def pending(id: str, **changes: Any) -> TaskRow:
    return row(id, **{"state": "pending", "cards": (), "attempt": 0, "started": None, **changes})


def progress(id: str, step: int, total: int = 100) -> lab_change.TaskProgress:
    return lab_change.TaskProgress(
        id=id, step=step, total_steps=total, epoch=1, fraction=step / total, left=9.0,
        samples_per_second=50.0, phase="training",
    )  # fmt: skip


def points(id: str, name: str, *found: tuple[int, float], **changes: Any) -> lab_change.TaskMetrics:
    return lab_change.TaskMetrics(id=id, points={name: list(found)}, **changes)


def devices(**changes: Any) -> lab_change.CardsChange:
    card: dict[str, Any] = {
        "number": 0, "id": CARD, "name": "H100", "total_mb": 80_000, "free_mb": 80_000, "utilization": 0,
        "temperature": 30, "power": 100.0, "trouble": "", "part_of": "", "exclusive": False, "allowed": True,
        "drained": False, "windows": [], "tasks": [], "leases": [], "processes": [],
    }  # fmt: skip
    host = HostStatus(
        cores=2, cores_given=0, busy_cores=0.1, memory_mb=100, memory_given_mb=0, memory_used_mb=50,
        total_memory_mb=100,
    )  # fmt: skip
    return lab_change.CardsChange(DeviceList([CardStatus(**{**card, **changes})], None, "fit", 512, 2, host))


def sample(at: float, utilization: float | None, memory_mb: float | None = None) -> lab_change.CardSamples:
    card = lab_change.CardReading(
        id=CARD, utilization=utilization, memory_mb=memory_mb, power=None, temperature=None
    )
    host = lab_change.HostReading(cpu=10.0, memory_mb=50.0, load=1.0)
    return lab_change.CardSamples(at=at, cards=[card], host=host)


def state_with(*changes: lab_change.LabChange) -> LabState:
    state = LabState()
    state.apply_all([lab_change.LabReset(), *changes])
    return state


def ids(state: LabState, filter: str = "", **more: Any) -> list[str]:
    return [one.id for one in state.tasks(filter=filter, **more)]


def test_progress_is_in_the_row_until_the_next_attempt() -> None:
    state = state_with(lab_change.TaskRowChange(row("a")), progress("a", 10))
    task = state.task("a")
    assert task is not None
    assert (task.row.step, task.row.total_steps, task.row.left) == (10, 100, 9.0)
    state.apply(lab_change.TaskRowChange(row("a", priority=3)))
    assert (task.row.priority, task.row.step) == (3, 10)
    state.apply(lab_change.TaskRowChange(pending("a")))
    assert (task.progress, task.row.step) == (None, None)
    assert state.task("a") is task


def test_changes_about_unknown_tasks_are_ignored() -> None:
    state = state_with(progress("x", 1), points("x", "loss", (1, 2.0)), lab_change.TaskRemoval("x"))
    assert state.tasks() == []


def test_points_after_the_step_to_which_a_run_went_back_are_void() -> None:
    state = state_with(lab_change.TaskRowChange(row("a")), points("a", "loss", (1, 3.0), (2, 2.0), (3, 1.0)))
    state.apply(points("a", "loss", (2, 2.5), void_after=1))
    task = state.task("a")
    assert task is not None
    assert (task.histories["loss"].steps, task.histories["loss"].values) == ([1, 2], [3.0, 2.5])
    assert task.metrics() == {"loss": 2.5}


def test_a_history_is_bounded_and_keeps_the_whole_run_and_the_newest_value() -> None:
    history = MetricHistory()
    for step in range(10_001):
        history.add([(step, float(step))])
        assert history.newest == float(step)
    assert MAX_POINTS // 2 <= len(history.steps) <= MAX_POINTS
    assert history.steps == sorted(set(history.steps))
    assert history.steps[0] < 300
    assert history.values == [float(step) for step in history.steps]
    gaps = [after - before for before, after in zip(history.steps, history.steps[1:-1], strict=False)]
    assert max(gaps) <= 2 * min(gaps)


def test_the_main_metric_is_the_monitored_one() -> None:
    state = state_with(lab_change.TaskRowChange(row("a")), points("a", "train/loss", (1, 3.0)))
    task = state.task("a")
    assert task is not None
    assert task.main_metric() == "train/loss"
    state.apply(points("a", "valid/loss", (1, 3.0)))
    assert task.main_metric() == "valid/loss"
    settings: dict[str, list[lab_change.SettingValue]] = {"checkpoint.best.monitor": ["valid/accuracy"]}
    state.apply(lab_change.TaskFields(id="a", settings=settings, metrics={"valid/accuracy": 0.5}))
    assert task.main_metric() == "valid/accuracy"
    assert task.metric("valid/accuracy") == 0.5
    state.apply(points("a", "valid/accuracy", (9, 0.75)))
    assert task.metric("valid/accuracy") == 0.75


def test_positions_count_the_tasks_that_are_still_pending() -> None:
    rows = [pending("a"), pending("b"), pending("c", held=True), pending("d")]
    state = state_with(*map(lab_change.TaskRowChange, rows), lab_change.PendingOrder(ids=("b", "a", "d")))
    assert {task.id: task.position for task in state.all_tasks()} == {"a": 1, "b": 0, "c": None, "d": 2}
    state.apply(lab_change.TaskRowChange(row("b")))
    assert {task.id: task.position for task in state.all_tasks()} == {"a": 0, "b": None, "c": None, "d": 1}
    state.apply(lab_change.ExpectedStarts(times={"a": 5.0}))
    assert [task.expected_start for task in state.all_tasks()] == [5.0, None, None, None]


def test_a_filter_uses_the_query_language_on_fields_settings_and_metrics() -> None:
    state = state_with(
        lab_change.TaskRowChange(row("a", priority=2)),
        lab_change.TaskRowChange(pending("b", submitted=3.0)),
        lab_change.TaskRowChange(row("c", user="bob", submitted=2.0)),
        lab_change.TaskFields(id="a", settings={"optimizers.main.lr": [1e-3]}, metrics={"valid/loss": 1.0}),
        lab_change.TaskFields(id="b", settings={"optimizers.main.lr": [1e-4]}, metrics={}),
        points("c", "valid/accuracy", (1, 0.95)),
    )
    assert ids(state) == ["a", "c", "b"]
    assert ids(state, "state:running") == ["a", "c"]
    assert ids(state, "state:pending") == ["b"]
    assert ids(state, "user:bob") == ["c"]
    assert ids(state, "lr<1e-3") == ["b"]
    assert ids(state, "valid/accuracy>=0.9") == ["c"]
    assert ids(state, "valid/loss<2 state:running") == ["a"]
    assert ids(state, "RUN-A") == ["a"]
    assert ids(state, "t_98") == ids(state, "label=T_98") == ["b"]
    assert ids(state, "kind:analyze") == []
    assert [task.id for task in state.find("T_98")] == [task.id for task in state.find("run-b")] == ["b"]
    assert ids(state, "priority>1") == ["a"]
    assert ids(state, "sort:lr") == ["b", "a", "c"]
    assert ids(state, "sort:lr", sort="-submitted") == ["b", "c", "a"]
    assert ids(state, "seconds>1h") == ["a", "c", "b"]


def test_a_key_that_no_task_has_selects_none_and_is_named() -> None:
    state = state_with(lab_change.TaskRowChange(row("a")))
    assert ids(state, "valid/acc>0.5") == []
    (note,) = state.filter_notes("valid/acc>0.5 stat:x priority>0")[:1]
    assert note.startswith("no task has a field, a setting or a metric valid/acc")
    with pytest.raises(UsageError, match="no such state"):
        state.tasks(filter="state:runing")
    with pytest.raises(UsageError, match="quote"):
        state.tasks(filter='"')


def test_the_tasks_of_a_sweep_are_one_entry_with_its_progress() -> None:
    rows = [
        row("a", sweep="s", state="succeeded", ended=3.0, name="digits_lr-1"),
        row("b", sweep="s", name="digits_lr-2"),
        pending("c", sweep="s", name="digits_lr-3"),
        row("z", submitted=0.5),
    ]
    changes: list[lab_change.LabChange] = [*map(lab_change.TaskRowChange, rows)]
    changes += [lab_change.SweepChange("s", "s1", 5), progress("b", 50)]
    state = state_with(*changes)
    single, sweep = state.tasks()
    assert isinstance(single, LabTask)
    assert isinstance(sweep, LabSweep)
    assert (sweep.sweep.name, sweep.sweep.short, sweep.sweep.total) == ("digits_lr", "s1", 5)
    assert sweep.sweep.counts == {"running": 1, "pending": 1, "succeeded": 1}
    assert sweep.fraction() == pytest.approx(0.5)
    assert ids(state, expanded=["s"]) == ["z", "s", "a", "b", "c"]
    assert ids(state, expanded=None) == ["z", "a", "b", "c"]
    assert ids(state, "state:pending") == ["c"]


def test_cards_have_samples_shares_and_tasks() -> None:
    holders: dict[str, Any] = {
        "tasks": [TaskOnCard("a", "run-a", "running", 4000, "a")],
        "processes": [ForeignProcess(7, "eve", 300)],
    }
    state = state_with(lab_change.TaskRowChange(row("a")), devices(**holders))
    for second in range(MAX_SAMPLES + 10):
        state.apply(sample(float(second), 50.0, 4300.0))
    (card,) = state.cards()
    assert (card.status.utilization, card.status.free_mb, card.status.power) == (50, 75_700, 100.0)
    assert len(card.utilization.values) == MAX_SAMPLES
    assert [(one.kind, one.mb) for one in card.shares()] == [("task", 4000), ("process", 300)]
    assert [task.id for task in state.tasks_on_card(CARD)] == ["a"]
    state.apply(devices())
    (same,) = state.cards()
    assert same is card
    assert same.shares() == []
    assert len(same.utilization.values) == MAX_SAMPLES


def test_a_reset_voids_everything() -> None:
    state = state_with(
        lab_change.TaskRowChange(row("a")), devices(), lab_change.JournalLines(lines=["one", "two"])
    )
    state.apply(lab_change.JournalLines(lines=["three"]))
    assert list(state.journal) == ["one", "two", "three"]
    before = state.revision, state.tasks_revision, state.cards_revision, state.journal_revision
    state.apply_all([lab_change.LabReset(), lab_change.LabSummary(daemon=5, counts={"pending": 1})])
    assert (state.tasks(), state.cards(), list(state.journal)) == ([], [], [])
    assert state.summary.daemon == 5
    after = state.revision, state.tasks_revision, state.cards_revision, state.journal_revision
    assert all(one > other for one, other in zip(after, before, strict=True))


def test_changes_survive_their_encoding() -> None:
    changes: list[lab_change.LabChange] = [
        lab_change.LabReset(), lab_change.LabSummary(daemon=None, counts={}),
        lab_change.TaskRowChange(row("a")),
        lab_change.SweepChange("s", "s", 2), lab_change.PendingOrder(ids=("a",)),
        lab_change.ExpectedStarts(times={"a": 1.0}), progress("a", 1), points("a", "loss", (1, 2.0)),
        lab_change.TaskFields(id="a", settings={"lr": [1e-3, True, None, "x"]}, metrics={}), devices(),
        sample(1.0, None), lab_change.JournalLines(lines=["x"]), lab_change.TaskRemoval("a"),
    ]  # fmt: skip
    assert msgspec.json.decode(msgspec.json.encode(changes), type=list[lab_change.LabChange]) == changes
