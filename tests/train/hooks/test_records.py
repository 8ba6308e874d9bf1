from __future__ import annotations

import errno
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import default_collate

from roost.base import durable
from roost.base.errors import TrainingError
from roost.config.step_modes import StepMode
from roost.package import records
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.hook import Hook, Phase
from roost.train.hooks import Records, Save, Schedule, Validate
from roost.train.optim.optimizer import LR_SCALE, Optim
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.hooks.test_checkpoint_save import Asks
from tests.train.parts import MLP, Gan, Steps, Still, StopAt, built, loader, plain


@pytest.fixture(autouse=True)
def no_fault() -> Iterator[None]:
    yield
    durable.fault = None


def lines(folder: Path, session: int = 1) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{session}.jsonl").read_text().splitlines()]


def make(
    folder: Path, log: Any, *hooks: Hook, until: int = 8, validate: str = "4", **options: Any
) -> Trainer:
    loaders = {"valid": loader(Still(), 8, shuffle=False)}
    all_hooks = [Records(folder, log), Validate(validate), *hooks]
    return plain(built(MLP), Still(), all_hooks, until=until, loaders=loaders, **options)


@pytest.mark.parametrize(
    ("log", "validate", "steps"),
    [("2", "4", [2, 4, 6, 8]), ("3", "4", [3, 4, 6, 8]), ("100", "100", [8]), ("1ep", "100", [7, 8])],
)
def test_one_row_per_step_at_most_and_one_at_the_end(
    log: str, validate: str, steps: list[int], tmp_path: Path
) -> None:
    make(tmp_path, log, validate=validate).fit()
    rows = lines(tmp_path)[1:]
    assert [row["step"] for row in rows] == steps


def test_empty_batches_are_counted(tmp_path: Path) -> None:
    """The second of three steps has nothing to train on: it counts as a step, and in no mean."""
    numbers = itertools.count()

    def collate(samples: list[Any]) -> Any:
        return None if next(numbers) in (2, 3) else default_collate(samples)

    loaders = {"train": loader(Still(), collate=collate)}
    stepper = Stepper(torch.optim.SGD((made := built(MLP)).parameters(), lr=0.1), accumulation=2)
    before: list[Any] = []
    hooks = [Records(tmp_path, "1"), Weights(before)]
    trainer = plain(made, Still(), hooks, until=3, loaders=loaders, stepper=stepper)
    trainer.fit()
    rows = lines(tmp_path)[1:]
    assert [row.get("train/empty_batches") for row in rows] == [None, 2, 2]
    assert [row.get("train/skipped") for row in rows] == [None, 1, None] and "train/loss" not in rows[1]
    assert torch.equal(before[1], before[2]) and not torch.equal(before[0], before[1])
    assert (trainer.progress.batch, trainer.progress.samples) == (6, 16)


class Weights(Hook):
    """Keeps the weights that each step begins with."""

    def __init__(self, kept: list[Any]) -> None:
        self.kept = kept

    def before_step(self, trainer: Trainer) -> None:
        self.kept.append(torch.nn.utils.parameters_to_vector(trainer.runner.parameters()).detach().clone())


def test_train_and_valid_share_a_row(tmp_path: Path) -> None:
    make(tmp_path, "2", until=4).fit()
    first, second = lines(tmp_path)[1:]
    times = {name for name in first if name.startswith(records.PERF)}
    assert first.keys() - times == {"step", "epoch", "time", "train/loss", "train/accuracy", "lr"}
    assert second.keys() == {*first.keys(), "valid/loss", "valid/accuracy", "perf/validate_s"}


def test_each_row_has_the_times_of_its_steps(tmp_path: Path) -> None:
    trainer = make(tmp_path / "records", "4", Save("4"), until=8, checkpoints=Checkpoints(tmp_path / "c"))
    trainer.fit()
    first, second = lines(tmp_path / "records")[1:]
    of_a_step = {
        f"perf/{name}_ms" for name in ("data", "to_device", "forward", "backward", "optimizer", "other")
    }
    assert of_a_step <= first.keys()
    assert first["perf/forward_ms"] > 0 and first["perf/backward_ms"] > 0 and first["perf/optimizer_ms"] > 0
    assert first["perf/samples_per_second"] > 0 and first["perf/host_mb"] > 0
    assert "perf/save_s" not in first and second["perf/save_s"] > 0, "the save came after the first row"
    assert not [name for name in trainer.row if name.startswith(records.PERF)], "no part of a checkpoint"


def test_the_first_row_after_an_epoch_has_its_seconds(tmp_path: Path) -> None:
    """Also where no row is due in its last step (7, 14); not of an epoch that another session began."""
    checkpoints = Checkpoints(tmp_path / "c")
    make(tmp_path / "records", "3", StopAt(10), until=21, validate="100", checkpoints=checkpoints).fit()
    make(tmp_path / "records", "7", until=21, validate="100", checkpoints=Checkpoints(tmp_path / "c")).fit()
    found = {
        row["step"]: row.get("perf/epoch_s", 0) > 0
        for n in (1, 2)
        for row in lines(tmp_path / "records", n)[1:]
    }
    assert found == {3: False, 6: False, 9: True, 14: False, 21: True}


def test_a_row_is_the_mean_of_the_samples_since_the_one_before(tmp_path: Path) -> None:
    seen: list[tuple[float, int]] = []

    class Sees(MLP):
        def update(self, stepper: Stepper, batches: Any) -> Any:
            values = super().update(stepper, batches)
            seen.append((float(values["loss"]), len(batches[0][0])))
            return values

    plain(built(Sees), Still(), [Records(tmp_path, "100")], until=7).fit()
    (row,) = lines(tmp_path)[1:]
    assert [size for _, size in seen] == [4] * 6 + [2]
    assert row["train/loss"] == pytest.approx(sum(loss * size for loss, size in seen) / 26, rel=1e-12)


def test_several_optimizers_have_a_rate_each(tmp_path: Path) -> None:
    runner = built(Gan)
    optimizers = {
        "d": torch.optim.SGD(runner.d.parameters(), lr=0.1),
        "g": torch.optim.SGD(runner.g.parameters(), lr=0.2),
    }
    plain(runner, Still(), [Records(tmp_path, "1")], until=1, stepper=Stepper(optimizers)).fit()
    row = lines(tmp_path)[1]
    assert (row["lr/d"], row["lr/g"]) == (0.1, 0.2)
    assert {"train/d_loss", "train/g_loss"} <= row.keys()


@pytest.mark.parametrize("mode", ["dry", "no_optim"])
def test_where_nothing_moves_there_is_no_learning_rate(mode: StepMode, tmp_path: Path) -> None:
    runner = built(MLP)
    stepper = Stepper(torch.optim.SGD(runner.parameters(), lr=0.1), mode=mode)
    plain(runner, Still(), [Records(tmp_path, "1")], until=2, stepper=stepper).fit()
    recorded = set(records.fold(tmp_path).series)
    assert recorded == (set() if mode == "dry" else {"train/loss", "train/accuracy"})


def test_runner_log_joins_the_row(tmp_path: Path) -> None:
    class Logs(MLP):
        def loss(self, batch: Any) -> Any:
            self.log(size=float(len(batch[0])), tensor=torch.tensor(2.0))
            return super().loss(batch)

        def evaluate(self, batch: Any) -> Any:
            self.log(evaluated=1.0)
            return super().evaluate(batch)

    loaders = {"valid": loader(Still(), 8, shuffle=False)}
    plain(built(Logs), Still(), [Records(tmp_path, "7"), Validate("7")], until=7, loaders=loaders).fit()
    row = lines(tmp_path)[1]
    assert row["train/size"] == pytest.approx(26 / 7)
    assert row["train/tensor"] == 2.0
    assert "train/evaluated" not in row


def test_more_rows_than_steps_asked_for(tmp_path: Path) -> None:
    """`log_every: 10/ep` with 7 batches: each step, no more."""
    make(tmp_path, "10/ep", validate="100", until=7).fit()
    assert [row["step"] for row in lines(tmp_path)[1:]] == list(range(1, 8))


def test_sessions_have_files_of_their_own_and_fold(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    folder = tmp_path / "records"
    make(folder, "2", Save("100"), StopAt(5), checkpoints=Checkpoints(checkpoints)).fit()
    make(folder, "2", Save("100"), checkpoints=Checkpoints(checkpoints)).fit()
    assert [lines(folder, n)[0]["start_step"] for n in (1, 2)] == [0, 5]
    assert [lines(folder, n)[0].get("data_order") for n in (1, 2)] == [records.data_order(folder), None]
    assert records.data_order(folder) is not None
    assert [row["step"] for row in records.fold(folder).rows] == [2, 4, 6, 8]
    given = Records(folder, "2", session=9)
    plain(built(MLP), Still(), [given], until=2).fit()
    assert lines(folder, 9)[0]["session"] == 9


def test_a_package_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    given = Records(tmp_path / "gone" / "records", "2", session=1)
    with pytest.raises(FileNotFoundError):
        plain(built(MLP), Still(), [given], until=2).fit()
    assert list(tmp_path.iterdir()) == []
    plain(built(MLP), Still(), [Records(tmp_path / "new" / "records", "2")], until=2).fit()
    assert (tmp_path / "new" / "records" / "1.jsonl").is_file()


def test_rows_are_durable_before_the_checkpoint_that_holds_them(tmp_path: Path) -> None:
    events: list[str] = []

    def watch(operation: str, path: str) -> None:
        if operation == "fsync" and path.startswith("fd:"):
            events.append("rows")
        if operation == "rename" and path.endswith(".ckpt"):
            events.append("checkpoint")

    trainer = make(tmp_path / "records", "1", Save("2"), until=4, checkpoints=Checkpoints(tmp_path / "c"))
    durable.fault = watch
    trainer.fit()
    assert events[:4] == ["rows", "checkpoint", "rows", "checkpoint"]


def test_a_full_disk_is_said_once_and_no_row_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Fills(Hook):
        phase = Phase.MODEL

        def on_step(self, trainer: Trainer) -> None:
            durable.fault = fail if 2 <= trainer.progress.step <= 5 else None

    def fail(operation: str, path: str) -> None:
        if operation == "write" and path.startswith("fd:"):
            raise OSError(errno.ENOSPC, "No space left on device")

    assert make(tmp_path, "1", Fills(), validate="100").fit() == "finished"
    assert [row["step"] for row in records.fold(tmp_path).rows] == list(range(1, 9))
    assert capsys.readouterr().out.count("No space left on device") == 1


def test_a_rollback_on_a_full_disk_is_written_when_there_is_space(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hook = Records(tmp_path, "1")
    trainer = plain(built(MLP), Still(), [hook])
    hook.on_start(trainer)

    def at(step: int) -> None:
        trainer.progress.step = step

    def fail(operation: str, path: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for step in (1, 2, 3):
        at(step)
        hook.write(trainer, {"train/loss": float(step)})
    at(1)
    durable.fault = fail
    hook.on_rollback(trainer)
    durable.fault = None
    at(2)
    hook.write(trainer, {"train/loss": 20.0})
    hook.on_stop(trainer, "test")
    assert [row["train/loss"] for row in records.fold(tmp_path).rows] == [1.0, 20.0]
    assert capsys.readouterr().out.count("No space left on device") == 1


@pytest.mark.parametrize("name", ["side_loss", "grad_norm"])
def test_what_must_be_finite_ends_the_run_after_its_row(
    tmp_path: Path, name: str, messages: Messages
) -> None:
    class Infinite(MLP):
        def loss(self, batch: Any) -> Any:
            return {**super().loss(batch), name: torch.tensor(float("inf")), "ratio": float("nan")}

    with pytest.raises(TrainingError) as refused:
        plain(built(Infinite), Still(), [Records(tmp_path, "2")], until=4).fit()
    assert all(fact in str(refused.value) for fact in (f"train/{name}", "inf", "step 2", "step 1"))
    messages.check(refused.value)
    assert lines(tmp_path)[1]["nonfinite"] == {f"train/{name}": "inf", "train/ratio": "nan"}


def test_a_validation_on_request_has_its_row(tmp_path: Path) -> None:
    steps = Steps()
    make(tmp_path, "100", Asks(3, "validate"), steps, validate="100").fit()
    assert [row["step"] for row in lines(tmp_path)[1:]] == steps.evals == [3, 8]


def test_the_row_of_a_test_after_the_end(tmp_path: Path) -> None:
    hook = Records(tmp_path, "100")
    trainer = plain(built(MLP), Still(), [hook], until=2)
    trainer.fit()
    hook.write(trainer, {"late": 1.0})
    assert len(lines(tmp_path)) == 2, "closed: reported, but not written"
    assert trainer.row == {"late": 1.0}


def test_groups_have_a_rate_each_where_they_differ(tmp_path: Path) -> None:
    """As the step used them, whatever the scheduler has made of them since."""
    runner = built(MLP)
    groups = [{"params": runner.net[0].parameters(), LR_SCALE: 0.5}, {"params": runner.net[3].parameters()}]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    optim = Optim(optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.1))
    plain(runner, Still(), [Records(tmp_path, "1"), Schedule()], until=3, stepper=Stepper(optim)).fit()
    rates = [[row[name] for name in ("lr", "lr/main/0", "lr/main/1")] for row in lines(tmp_path)[1:]]
    assert rates == [pytest.approx([0.05, 0.05, 0.1])] * 2 + [pytest.approx([0.005, 0.005, 0.01])]


def test_groups_with_one_rate_have_no_more_than_that(tmp_path: Path) -> None:
    runner = built(MLP)
    groups = [
        {"params": runner.net[0].parameters(), "weight_decay": 0.1},
        {"params": runner.net[3].parameters()},
    ]
    plain(
        runner, Still(), [Records(tmp_path, "1")], until=1, stepper=Stepper(torch.optim.SGD(groups, lr=0.1))
    ).fit()
    assert [name for name in lines(tmp_path)[1] if name.startswith("lr")] == ["lr"]
