from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from roost.base.session_end.deadline_files import DeadlineFiles
from roost.base.system.worker_protocol import TIME_LIMIT
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.checkpoints.retention import RetentionPolicy
from roost.package.remote.upload_time import UploadTime
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.data.loader import Loader
from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.data.plans.rank_shards import ShardedPlan
from roost.train.deadline import Deadline
from roost.train.distributed.ranks import Ranks
from roost.train.hook import Hook, Phase
from roost.train.hooks import Save, TimeLimit, Validate
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from tests.train.parts import MLP, Points, Still, built, loader, plain
from tests.train.team import team

ENDLESS = 10**9


class Limit(TimeLimit):
    """Of a session that began so many seconds before training and must end so many after that begins."""

    def __init__(self, *, ago: float, left: float) -> None:
        self.ago, self.left = ago, left
        super().__init__(None, 0.0)

    def on_start(self, trainer: Trainer) -> None:
        now = time.time()
        self._given, self._begun = now + self.left, now - self.ago
        super().on_start(trainer)


class Paced(Hook):
    """Waits in each step: a run that trains for seconds leaves the processor to other tests."""

    def before_step(self, trainer: Trainer) -> None:
        time.sleep(0.002)


def trainer_of(folder: Path, *hooks: Hook, until: int = ENDLESS, **options: Any) -> Trainer:
    runner = options.pop("runner", MLP)
    place = Checkpoints(folder, RetentionPolicy(fast=100))
    return plain(
        built(runner), Still(), [Save(1000), Paced(), *hooks], until=until, checkpoints=place, **options
    )


def saves(folder: Path) -> list[tuple[int, str]]:
    return [(info.step, info.reason) for info in checkpoint.read_manifests(folder)]


class StopAfterSave(Hook):
    """Stops once the hook knows what a save takes."""

    def on_step(self, trainer: Trainer) -> None:
        if limit_of(trainer).is_measured:
            trainer.request_stop("seen")


def limit_of(trainer: Trainer) -> Deadline:
    (limit,) = [hook for hook in trainer.calls.hooks if isinstance(hook, TimeLimit)]
    assert limit._deadline is not None
    return limit._deadline


def test_a_run_without_an_end_ends_saved_in_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    threads = threading.active_count()
    trainer = trainer_of(tmp_path, Limit(ago=0, left=2))
    assert trainer.fit() == TIME_LIMIT
    assert trainer.progress.step == saves(tmp_path)[-1][0] > 0
    said = capsys.readouterr().out.splitlines()
    assert re.search(r"\d\d:\d\d \(in [\d.]+s\)", said[0])
    _, ended = (line for line in said if line.startswith("time limit: "))
    assert ended == said[-1]
    assert threading.active_count() == threads


def test_one_that_is_past_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = trainer_of(tmp_path, Limit(ago=60, left=-5))
    assert trainer.fit() == TIME_LIMIT
    assert trainer.progress.step == 0 and saves(tmp_path) == []
    assert re.search(r"\d\d:\d\d \([\d.]+s ago\)", capsys.readouterr().out)


def test_a_limit_in_which_no_step_fits_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A session keeps time for a save of unknown length."""
    trainer = trainer_of(tmp_path, Limit(ago=500, left=100))
    assert trainer.fit() == TIME_LIMIT and trainer.progress.step == 0
    [said] = [text for text in capsys.readouterr().out.splitlines() if "no step" in text]
    assert "8m 20s of 10m 00s" in said and "more than twice" in said


def test_one_that_is_far_changes_nothing(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, Limit(ago=0, left=3600), until=5)
    assert trainer.fit() == "finished"
    assert saves(tmp_path) == [(5, "final")]


def test_after_a_tenth_of_the_time_it_asks_for_a_save(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, StopAfterSave(), Limit(ago=2, left=4))
    assert trainer.fit() == "seen"
    assert saves(tmp_path)[0][1] == "requested"


def test_where_a_save_was_made_before_it_asks_for_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = trainer_of(tmp_path, Limit(ago=0, left=3600), SaveAt50(), StopAfterSave())
    assert trainer.fit() == "seen"
    assert {reason for _, reason in saves(tmp_path)} == {"scheduled", "signal"}
    found = re.findall(r"save .*[\d.]+ ms\b.* 1\d\.\ds\b", capsys.readouterr().out)
    assert len(found) == 1


def test_a_save_that_leaves_no_time_for_another_is_the_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = trainer_of(tmp_path, Limit(ago=0, left=100), SlowDisk(), SaveAt50())
    assert trainer.fit() == TIME_LIMIT
    assert saves(tmp_path) == [(50, "scheduled")]
    assert re.search(r"save .*\b40\.0s.*step ", capsys.readouterr().out)


class SlowDisk(Hook):
    """A save took forty seconds."""

    phase = Phase.REPORT  # called once there is a limit

    def on_start(self, trainer: Trainer) -> None:
        limit_of(trainer).note_save(40.0)


class SaveAt50(Save):
    """Saves at step 50."""

    def __init__(self) -> None:
        super().__init__(50)


class Slow(MLP):
    """Measures a sample in five milliseconds."""

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        time.sleep(0.005)
        return super().evaluate(batch)


def test_a_validation_is_dropped_and_owed(tmp_path: Path) -> None:
    trainer = trainer_of(
        tmp_path,
        Limit(ago=0, left=1),
        Validate("1"),
        runner=Slow,
        loaders={"valid": loader(Points(100_000), 1, shuffle=False)},
    )
    assert trainer.fit() == TIME_LIMIT
    assert trainer.has_unfinished_step
    assert saves(tmp_path) == [(1, "signal")]


class Holds(Hook):
    """Holds one step up, when it is known that others take no time."""

    def before_step(self, trainer: Trainer) -> None:
        time.sleep(0.5 if trainer.progress.step == 3 else 0.02)


def test_the_longest_step_is_noticed(tmp_path: Path) -> None:
    hook = Limit(ago=0, left=20)
    trainer = trainer_of(tmp_path, hook, Holds(), until=5)
    assert trainer.fit() == "finished"
    assert hook._deadline is not None
    assert hook._deadline.step_seconds >= 0.5


def test_of_several_ranks_the_first_asks_and_all_end_together(tmp_path: Path) -> None:
    def work(ranks: Ranks) -> tuple[str, int]:
        runner = built(MLP)
        trainer = Trainer(
            runner,
            {"train": Loader(Still(), plan=ShardedPlan(BatchPlan(26, 4), ranks.rank, ranks.world_size))},
            Stepper(torch.optim.SGD(runner.parameters(), lr=0.1), ranks=ranks),
            hooks=[Save(1000), Paced(), Limit(ago=0, left=1)],
            checkpoints=Checkpoints(tmp_path, ranks=ranks),
            until=ENDLESS,
            ranks=ranks,
        )
        return trainer.fit(), trainer.progress.step

    (first, step), (other, same) = team(2, work)
    assert (first, other) == (TIME_LIMIT, "rank 0 was requested to stop")
    assert step == same == saves(tmp_path)[-1][0] > 0


class Notice(Hook):
    """Writes a time into a file after the third step."""

    def __init__(self, path: Path, seconds: float) -> None:
        self._path, self._seconds = path, seconds

    def on_step(self, trainer: Trainer) -> None:
        if trainer.progress.step == 3:
            self._path.write_text(str(time.time() + self._seconds))


def test_a_time_that_appears_in_a_file_ends_the_run_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "end"
    limit = TimeLimit(None, time.time(), DeadlineFiles([str(path)]))
    trainer = trainer_of(tmp_path / "saves", limit, Notice(path, 2.0))
    assert trainer.fit() == TIME_LIMIT
    assert trainer.progress.step == saves(tmp_path / "saves")[-1][0] > 3
    assert re.search(rf"^ends by \S+ \(in 1?[\d.]+s\), as {path} says", capsys.readouterr().out, re.M)


class Withdraw(Hook):
    """Removes a file once its time counts, and stops once it counts no more."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_step(self, trainer: Trainer) -> None:
        deadline = limit_of(trainer)
        if deadline.is_set:
            self._path.unlink(missing_ok=True)
        elif not self._path.exists():
            trainer.request_stop("withdrawn")


def test_a_time_that_is_withdrawn_counts_no_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "end"
    path.write_text(str(time.time() + 600))
    limit = TimeLimit(None, time.time(), DeadlineFiles([str(path)]))
    assert trainer_of(tmp_path / "saves", limit, Withdraw(path)).fit() == "withdrawn"
    assert "no time limit any more" in capsys.readouterr().out


def test_what_a_file_holds_instead_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "end"
    path.write_text("soon")
    limit = TimeLimit(None, time.time(), DeadlineFiles([str(path)]))
    assert trainer_of(tmp_path / "saves", limit, until=5).fit() == "finished"
    assert capsys.readouterr().out.count("'soon' is not a time") == 1


def test_a_run_that_will_not_finish_says_so_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = trainer_of(tmp_path, Limit(ago=0, left=3))
    assert trainer.fit() == TIME_LIMIT
    [(step, total)] = re.findall(
        r"^will not finish in this session: ends about step ([\d,]+) of ([\d,]+)",
        capsys.readouterr().out,
        re.M,
    )
    assert 0 < int(step.replace(",", "")) < int(total.replace(",", "")) == ENDLESS


class AssumedUpload(UploadTime):
    """Of a store that takes a minute for a checkpoint."""

    def seconds(self, newest: Manifest | None) -> float | None:
        return None if newest is None else 60.0


def test_it_ends_so_much_earlier_that_the_last_save_is_uploaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = Limit(ago=0, left=400)
    limit._upload = AssumedUpload(tmp_path, wait_seconds=10.0)
    trainer = trainer_of(tmp_path, limit, SaveAt50(), StopAfterUpload())
    assert trainer.fit() == "seen"
    assert limit_of(trainer).upload_seconds == 50.0 and limit_of(trainer).reserve() > 60.0
    assert re.search(r"an upload takes 1m 00s: the last save 1m \d\ds before", capsys.readouterr().out)


class StopAfterUpload(Hook):
    """Stops once the hook knows what an upload takes."""

    def on_step(self, trainer: Trainer) -> None:
        if limit_of(trainer).upload_seconds:
            trainer.request_stop("seen")
