from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from roost.config.sections.mirrors import CsvSettings, MlflowSettings, TensorBoardSettings, WandbSettings
from roost.train.hook import Hook, Phase
from roost.train.hooks import Mirrors
from roost.train.mirrors.sink import RunIdentity
from roost.train.trainer import Trainer
from tests.train.mirrors.recorded import (
    by_step,
    folded,
    logged_values,
    narrow,
    of_wandb,
    scalars,
    table,
)
from tests.train.mirrors.servers import silent_server
from tests.train.parts import Crash, CrashAt, Recipe, assert_equal, outcome
from tests.waiting import wait_for

FILES: Mapping[str, Any] = {"csv": CsvSettings(), "tensorboard": TensorBoardSettings()}
ALL: Mapping[str, Any] = {**FILES, "wandb": WandbSettings()}


class KillMirror(Hook):
    """Kills a mirror's process after a step, once it has brought something."""

    phase = Phase.REPORT

    def __init__(self, mirrors: Mirrors, package: Path, step: int) -> None:
        self._mirrors, self._file, self._step = mirrors, package / "metrics.csv", step

    def on_step(self, trainer: Trainer) -> None:
        if trainer.progress.step == self._step:
            process = self._mirrors._running["csv"]
            wait_for(self._file.exists)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()


def exact(rows: dict[int, dict[str, float]]) -> dict[int, dict[str, float]]:
    """Without the times, which no two runs share."""
    return {
        step: {name: value for name, value in values.items() if not name.startswith("perf/")}
        for step, values in rows.items()
    }


@pytest.mark.timeout(300)
def test_a_run_that_was_killed_twice_is_mirrored_as_the_undisturbed_one(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    recipe = Recipe()
    undisturbed = recipe.make(whole, Mirrors(whole, ALL))
    undisturbed.fit()
    for step in (9, 11):
        with pytest.raises(Crash):
            recipe.make(cut, CrashAt(step), Mirrors(cut, ALL)).fit()
    trainer = recipe.make(cut, Mirrors(cut, ALL))
    trainer.fit()
    assert_equal(outcome(trainer, cut), outcome(undisturbed, whole))
    assert by_step(table(cut / "metrics.csv")) == by_step(folded(cut))
    assert scalars(cut / "tensorboard") == narrow(folded(cut))
    assert exact(scalars(cut / "tensorboard")) == exact(scalars(whole / "tensorboard"))
    assert exact(by_step(table(cut / "metrics.csv"))) == exact(by_step(table(whole / "metrics.csv")))
    found = logged_values(of_wandb(cut / "mirrors"))
    # What W&B has it keeps: of a step that was done twice, the times of the first.
    assert exact(found) == exact(by_step(folded(cut)))
    assert len({path.stem for path in (cut / "mirrors" / "wandb").glob("*/run-*.wandb")}) == 1


def test_training_does_nothing_for_them(tmp_path: Path) -> None:
    trainer = Recipe().make(tmp_path, Mirrors(tmp_path, FILES))
    (row,) = [line.split() for line in trainer.plan().splitlines() if "Mirrors" in line]
    assert row == ["REPORT", "Mirrors", "on_start", "on_epoch", "on_stop"]


class Touch(Hook):
    """Makes a file after the first step."""

    phase = Phase.REPORT

    def __init__(self, file: Path) -> None:
        self._file = file

    def on_step(self, trainer: Trainer) -> None:
        self._file.touch()


@pytest.mark.parametrize("has_memfd", [True, False])
@pytest.mark.timeout(60)
def test_training_does_not_wait_for_a_mirror_to_read_large_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_memfd: bool
) -> None:
    """A pipe would take 64 KiB of them."""
    go, late = tmp_path / "go", tmp_path / "python"
    late.write_text(f'#!/bin/sh\nwhile [ ! -e {go} ]; do sleep 0.01; done\nexec {sys.executable} "$@"\n')
    late.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(late))
    if not has_memfd:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    identity = RunIdentity(name="x", settings={"key": "value" * 20_000})
    Recipe().make(tmp_path, Mirrors(tmp_path, {"csv": CsvSettings()}, identity), Touch(go)).fit()
    assert by_step(table(tmp_path / "metrics.csv")) == by_step(folded(tmp_path))


def test_a_run_that_fails_in_its_last_step_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no further step is taken either way. The last save may fail there, too."""

    class Fails(Hook):
        every = 1

        def on_step(self, trainer: Trainer) -> None:
            if trainer.finished:
                raise RuntimeError("no")

    received, program = tmp_path / "end", tmp_path / "python"
    program.write_text(f"#!/bin/sh\nread -r end; echo $end > {received}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(RuntimeError, match="no"):
        Recipe().make(tmp_path, Mirrors(tmp_path, {"csv": CsvSettings()}), Fails()).fit()
    assert received.read_text() == "failed\n"


def test_a_mirror_whose_process_is_killed_is_started_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mirrors = Mirrors(tmp_path, {"csv": CsvSettings()})
    Recipe().make(tmp_path, mirrors, KillMirror(mirrors, tmp_path, 5)).fit()
    assert by_step(table(tmp_path / "metrics.csv")) == by_step(folded(tmp_path))
    assert re.search(r"^mirror csv: .* -9\b", capfd.readouterr().out, re.M)


@pytest.mark.soak
def test_a_server_that_never_answers_holds_neither_the_steps_nor_the_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with silent_server() as port:
        blocked = MlflowSettings(tracking_uri=f"http://127.0.0.1:{port}")
        mirrors = Mirrors(tmp_path, {"mlflow": blocked, **FILES}, max_wait_seconds=20.0)
        trainer = Recipe().make(tmp_path, mirrors)
        assert trainer.fit() == "finished"
    said = capfd.readouterr().out
    assert re.search(r"20 s .*: mlflow\n|^mirror mlflow: ", said, re.M)
    assert by_step(table(tmp_path / "metrics.csv")) == by_step(folded(tmp_path))
    assert mirrors._running == {}
