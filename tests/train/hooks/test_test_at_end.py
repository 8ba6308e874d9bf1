from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from roost.base.errors import CheckpointError
from roost.package import records
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.retention import BestRule as Rule
from roost.package.checkpoints.retention import RetentionPolicy
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.distributed.ranks import Ranks
from roost.train.hook import Hook, Phase
from roost.train.hooks import Best, Records, Save, Validate
from roost.train.hooks import Test as Tests
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.parts import MLP, Still, StopAt, bits, built, loader, plain
from tests.train.team import team

RULE = Rule(monitor="valid/loss")


class Worsens(MLP):
    """Validates best at step 3."""

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        values = super().evaluate(batch)
        return {**values, "loss": values["loss"] * 0 + abs(self.progress.step - 3)}


def make(
    folder: Path,
    *hooks: Hook,
    best: Rule | None = RULE,
    kind: type[MLP] = Worsens,
    until: int = 6,
    fast: int = 2,
) -> Trainer:
    rows = Records(folder / "records", "100")
    sets = {name: loader(Still(9), 4, shuffle=False) for name in ("valid", "test/a", "test/b")}
    return plain(
        built(kind),
        Still(),
        [rows, Save("1"), Validate("1"), Best([RULE]), Tests(rows, best), *hooks],
        until=until,
        loaders=sets,
        checkpoints=Checkpoints(folder / "checkpoints", RetentionPolicy(fast=fast, best=(RULE,))),
    )


def last_row(folder: Path) -> dict[str, Any]:
    return records.fold(folder / "records").rows[-1]


@pytest.mark.parametrize(("best", "step"), [(RULE, 3), (None, 6)])
def test_the_best_weights_or_the_last(
    best: Rule | None, step: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = make(tmp_path, best=best)
    assert trainer.fit() == "finished"
    row = last_row(tmp_path)
    metrics = {name for name in row if name.startswith("test/")}
    assert metrics == {f"test/{s}/{m}" for s in "ab" for m in ("loss", "accuracy")}
    assert row["step"] == 6, "the row belongs to the run's end"
    (info,) = [info for info in checkpoint.read_manifests(tmp_path / "checkpoints") if info.step == step]
    _, states = checkpoint.read(checkpoint.checkpoint_folder(tmp_path / "checkpoints", info.id))
    assert bits(dict(trainer.runner.state_dict())) == bits(states["model"]["state"])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "  test/a: loss" in line]
    assert (f"checkpoint {info.id} of step 3 " in line) == ("checkpoint" in line) == (best is not None)


@pytest.mark.parametrize("damaged", [[3], [2, 3], range(1, 7)])
def test_damaged_checkpoints_are_passed_over_best_first(
    damaged: Sequence[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A finished run does not fail because of one; where none is good the last weights are tested."""

    class Damages(Hook):
        phase = Phase.MODEL

        def on_stop(self, trainer: Trainer, reason: str) -> None:
            for info in checkpoint.read_manifests(tmp_path / "checkpoints"):
                if info.step in damaged:
                    file = (
                        checkpoint.checkpoint_folder(tmp_path / "checkpoints", info.id) / "model.safetensors"
                    )
                    file.write_bytes(b"?" + file.read_bytes()[1:])

    trainer = make(tmp_path, Damages(), fast=9)
    assert trainer.fit() == "finished"
    out = capsys.readouterr().out
    found = {info.step: info.id for info in checkpoint.read_manifests(tmp_path / "checkpoints")}
    for step in damaged:
        assert f"checkpoint {found[step]} of step {step}: state_{found[step]}.ckpt: " in out
    good = [step for step in (3, 2, 4, 1, 5, 6) if step not in damaged]
    (line,) = [line for line in out.splitlines() if "  test/a: loss" in line]
    if good:
        assert f"checkpoint {found[good[0]]} of step {good[0]} " in line
    else:
        assert "of step" not in line
    assert "test/a/loss" in last_row(tmp_path)
    assert not list((tmp_path / "checkpoints").glob("*.corrupt")), "only training sets checkpoints aside"


def test_only_a_finished_run_is_tested(tmp_path: Path) -> None:
    assert make(tmp_path, StopAt(4)).fit() == "test"
    assert not any("test/a/loss" in row for row in records.fold(tmp_path / "records").rows)
    assert make(tmp_path).fit() == "finished"
    assert "test/a/loss" in last_row(tmp_path)


def test_the_test_changes_no_checkpoint_and_comes_out_the_same_again(tmp_path: Path) -> None:
    make(tmp_path).fit()
    found = checkpoint.read_manifests(tmp_path / "checkpoints")
    first = last_row(tmp_path)
    make(tmp_path).fit()
    assert checkpoint.read_manifests(tmp_path / "checkpoints") == found
    again = last_row(tmp_path)
    assert {n: v for n, v in again.items() if n != "time"} == {n: v for n, v in first.items() if n != "time"}


def test_a_stop_in_the_test_leaves_the_run_to_be_continued(tmp_path: Path) -> None:
    class Stops(Worsens):
        def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
            if self._trainer is not None and self._trainer.finished and len(batch[0]) == 1 and stop:
                self._trainer.request_stop("now")
            return super().evaluate(batch)

    stop = [True]
    trainer = make(tmp_path, kind=Stops)
    # The last validation is over when it stops: it is the test set "a" that asks.
    trainer.loaders["valid"] = loader(Still(8), 4, shuffle=False)
    assert trainer.fit() == "now"
    assert not any("test/a/loss" in row for row in records.fold(tmp_path / "records").rows)
    stop.clear()
    again = make(tmp_path, kind=Stops)
    assert again.fit() == "finished"
    assert "test/b/loss" in last_row(tmp_path)


def test_ranks_test_the_same_weights_or_fail(tmp_path: Path, messages: Messages) -> None:
    """The best checkpoint is damaged for all, the next one where one rank alone looks."""
    make(tmp_path / "0", fast=9).fit()
    found = {info.step: info.id for info in checkpoint.read_manifests(tmp_path / "0" / "checkpoints")}
    for step, rank in ((3, 0), (2, 1)):
        file = checkpoint.checkpoint_folder(tmp_path / "0" / "checkpoints", found[step]) / "model.safetensors"
        if rank:
            shutil.copytree(tmp_path / "0", tmp_path / "1")
            file = tmp_path / "1" / file.relative_to(tmp_path / "0")
        file.write_bytes(b"?" + file.read_bytes()[1:])

    def measure(ranks: Ranks) -> list[str]:
        said = []
        for folder in ("0", str(ranks.rank)):
            trainer = make(tmp_path / folder)
            trainer.ranks = ranks
            reported: list[str] = []
            hook = Tests(Records(tmp_path / "rows"), RULE)
            hook.report = reported.append
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                try:
                    hook.on_stop(trainer, "finished")
                except CheckpointError as error:
                    reported.append(str(error))
            assert bool(printed.getvalue()) == ranks.is_main
            said.append("".join(reported))
        return said

    first, second = team(2, measure)
    assert f"checkpoint {found[2]} of step 2" in first[0] and second[0] == ""
    assert first[1] == second[1]
    assert all(fact in first[1] for fact in ("rank 0", "rank 1", f"checkpoint {found[2]} of step 2"))
    messages.check(first[1])
