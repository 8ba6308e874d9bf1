from __future__ import annotations

import threading
from pathlib import Path

import pytest

from roost.project import native_project
from roost.train.data.batches import Batches
from roost.train.step.stepper import Stepper
from roost.worker.tuning import step_tuning
from roost.worker.tuning.budget import Budget
from roost.worker.tuning.candidate_rounds import MeasuredBlock
from roost.worker.tuning.measured_run import MeasuredRun
from roost.worker.tuning.step_tuning import LargerBatch, TimeIsUp, consequences, larger_batch, time_limit
from tests.messages import Messages
from tests.worker.tuning.toys import finding, toy, tuned


@pytest.mark.parametrize(
    ("size", "accumulation", "kept", "factor"),
    [(64, 1, 1, 2.0), (64, 2, 1, 1.0), (128, 8, 2, 1.0), (64, 3, 2, 4 / 3), (256, 2, 1, 4.0)],
)
def test_the_accumulation_keeps_the_samples_of_a_step(
    size: int, accumulation: int, kept: int, factor: float
) -> None:
    assert larger_batch(size, present=32, accumulation=accumulation) == LargerBatch(size, kept, factor)


def test_the_consequences(messages: Messages) -> None:
    kept = consequences(LargerBatch(64, 1, 1.0), present=32, accumulation=2)
    larger = consequences(LargerBatch(128, 1, 4.0), present=32, accumulation=1)
    assert len(kept) == 1 and "64 samples" in kept[0]
    assert any(
        "learning rate" in line and "by 4 for SGD" in line and "by 2 for Adam" in line for line in larger
    )
    for line in (*kept, *larger):
        messages.check(line)


def test_a_larger_batch_that_the_host_has_no_memory_for_is_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_tuning.host_memory, "available_bytes", lambda: 1)
    peak = iter(range(1000, 10000, 100))
    monkeypatch.setattr(step_tuning.timing, "resident_mb", lambda: 900.0)  # before the first size
    monkeypatch.setattr(step_tuning.timing, "peak_mb", lambda: next(peak))
    package = toy(tmp_path, data={"batch_size": 4, "num_workers": 0}, samples=400, step_seconds=0.01)
    found = finding(tuned(package, monkeypatch, "batch_size"), "batch_size")
    assert found.chosen == 4 and [one.value for one in found.candidates] == [4, 8]
    assert "host's memory" in found.candidates[1].note


def test_what_cannot_be_compiled_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = MeasuredRun.block

    def block(run: MeasuredRun, loader: Batches, seconds: float, stepper: Stepper) -> MeasuredBlock:
        if stepper.mode == "compile":
            raise RuntimeError("no compiler\nis installed")
        return plain(run, loader, seconds, stepper)

    monkeypatch.setattr(MeasuredRun, "block", block)
    package = toy(tmp_path, data={"batch_size": 4, "num_workers": 0})
    found = finding(tuned(package, monkeypatch, "step_mode"), "step_mode")
    assert found.chosen == "eager" and found.changes == {}
    assert found.reason == found.candidates[0].note == "compile fails: no compiler"


@pytest.mark.soak
def test_real_compilations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = toy(tmp_path, data={"batch_size": 4, "num_workers": 0}, samples=400)
    found = finding(tuned(package, monkeypatch, "step_mode"), "step_mode")
    assert [one.value for one in found.candidates] == ["compile", "eager"]
    assert all(one.rates for one in found.candidates)


def test_a_short_time_tries_no_compilation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = toy(tmp_path, data={"batch_size": 4, "num_workers": 0})
    monkeypatch.chdir(package.path)
    values, settings = native_project.resolve_settings(package, "/nowhere")
    run = MeasuredRun(package, settings, values, project="/nowhere", device="cpu")
    found = step_tuning.tune_step_mode(run, Budget(1.0), print)
    assert found.candidates == [] and found.is_late


def test_the_time_limit_ends_what_runs() -> None:
    waits = threading.Event()
    with pytest.raises(TimeIsUp), time_limit(0.01):
        waits.wait(100)
    with time_limit(60):
        pass
