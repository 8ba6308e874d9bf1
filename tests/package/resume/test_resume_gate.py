"""What may differ when a run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError, Refused
from roost.config import layers
from roost.package.package_draft import prepare_training
from roost.package.resume import resume_gate
from roost.package.resume.resume_gate import check
from tests.dlnest_project import dlnest_project
from tests.messages import Messages
from tests.operations.packages import VALUES, add_checkpoint, package, session


def test_nothing_differs(tmp_path: Path) -> None:
    found = check(package(tmp_path / "runs"), [])
    assert found == resume_gate.ResumeGate()
    found.require(force=False)


@pytest.mark.parametrize(
    "override",
    ["max_epochs=9", "+checkpoint.fast=7", "+data.num_workers=2", "+log_every=5", "+test_at_end=none",
     "+data.valid.num_workers=1", "+early_stopping.patience=9", "+description=again",
     "+on_non_finite=rollback", "+on_step_error=skip", "+max_skipped_steps=3",
     "+data.prefetch=4", "+data.loader_timeout=10min", "+devices=2", "+strategy=ddp", "+rank_timeout=1h"],
)  # fmt: skip
def test_these_may_change(tmp_path: Path, override: str) -> None:
    found = check(package(tmp_path / "runs"), [override])
    assert [one.key for one in found.safe] == [override.lstrip("+").partition("=")[0]]
    assert not found.needs_force


@pytest.mark.parametrize(
    "override",
    ["optimizers.main.lr=0.2", "+seed=1", "+data.batch_size=8", "+data.valid.batch_size=8",
     "model.features=9", "~model.features", "+validate_every=5", "+precision=bf16", "+threads=1",
     "+determinism=strict", "+step_mode=compile", "+evaluation_precision=bf16",
     "+max_epochs_of_mine=3", "+data.weighted=true", "+data.sort_by_length=ascending",
     "+data.max_tokens=9", "+data.steps_per_epoch=9", "+data.limit_train_batches=1",
     "+data.limit_valid_batches=1", "+data.mix.mode=weighted", "+data.valid.max_tokens=9",
     "+init_from=w.pt", "+freeze=body.*", "+seed_mode=same", "+sync_batch_norm=true"],
)  # fmt: skip
def test_these_need_force(tmp_path: Path, override: str) -> None:
    found = check(package(tmp_path / "runs"), [override])
    key = override.lstrip("+~").partition("=")[0]
    assert key in [one.key for one in found.refused]
    with pytest.raises(Refused, match=r"--force"):
        found.require(force=False)
    found.require(force=True)
    assert found.reasons()


def test_the_refusal_names_old_and_new(tmp_path: Path, messages: Messages) -> None:
    found = check(package(tmp_path / "runs"), ["optimizers.main.lr=0.2", "+model.name=big"])
    with pytest.raises(Refused, match=r"optimizers\.main\.lr: 0\.1 -> 0\.2") as refused:
        found.require(force=False)
    messages.check(refused.value)
    assert "model.name" in str(refused.value) and " -> big" in str(refused.value)
    assert refused.value.exit_code == 5


def test_an_override_that_changes_nothing_is_no_difference(tmp_path: Path) -> None:
    assert (
        check(package(tmp_path / "runs"), ["max_epochs=3", "optimizers.main.lr=1e-1"])
        == resume_gate.ResumeGate()
    )


def test_a_session_before_counts_as_the_run_so_far(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    made.new_session({"overrides": ["max_epochs=9"]})
    session(made, "stopped")
    assert check(made, ["max_epochs=9"]) == resume_gate.ResumeGate()
    assert [resume_gate.format_difference(one) for one in check(made, ["max_epochs=3"]).safe] == [
        "max_epochs: 9 -> 3"
    ]


def test_a_wrong_override(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="max_epochs"):
        check(package(tmp_path / "runs"), ["max_epoch=9"])


def test_changed_and_lost_code_is_named(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    (made.path / "Model" / "Runner.py").write_text("pass")
    (made.path / "Dataset" / "Dataset.py").unlink()
    found = check(made, [])
    assert sorted(found.changed_files) == ["Dataset/Dataset.py", "Model/Runner.py"]
    with pytest.raises(Refused, match=r"Model/Runner\.py"):
        found.require(force=False)
    assert any("Model/Runner.py" in reason for reason in found.reasons())


def test_a_limit_that_a_schedule_was_laid_out_for_is_inexact(tmp_path: Path) -> None:
    scheduler = {"class": "torch.optim.lr_scheduler.CosineAnnealingLR", "T_max": "${ total_steps }"}
    values = {
        **VALUES,
        "optimizers": {"main": {"class": "torch.optim.SGD", "lr": 0.1, "scheduler": scheduler}},
    }
    found = check(package(tmp_path / "runs", values=values), ["max_epochs=9"])
    assert not found.needs_force
    assert [reason for reason in found.inexact if "max_epochs" in reason and "scheduler.T_max" in reason]
    assert check(package(tmp_path / "runs", "two", values=values), ["+log_every=3"]).inexact == []


ONE_CYCLE = {"class": "torch.optim.lr_scheduler.OneCycleLR", "max_lr": 0.1, "total_steps": "${total_steps}"}
CHAINED = {"class": "torch.optim.lr_scheduler.ChainedScheduler", "schedulers": [ONE_CYCLE]}


@pytest.mark.parametrize("scheduler", [ONE_CYCLE, CHAINED])
def test_a_schedule_that_cannot_be_prolonged_is_refused(
    scheduler: dict[str, Any], tmp_path: Path, messages: Messages
) -> None:
    main = {**VALUES["optimizers"]["main"], "scheduler": scheduler}
    made = package(tmp_path / "runs", values={**VALUES, "optimizers": {"main": main}})
    with pytest.raises(Refused, match="fork") as refused:
        check(made, ["max_epochs=9"])
    messages.check(refused.value)
    assert check(made, ["max_epochs=1"]).safe, "an earlier end is no harm"
    unstarted = package(tmp_path / "other", values=made.args, checkpoints=False)
    assert check(unstarted, ["max_epochs=9"]).safe


def test_before_the_first_checkpoint_anything_may_be_changed(tmp_path: Path) -> None:
    """A run that failed before it saved begins at step 0 again: nothing went before."""
    found = check(package(tmp_path / "runs", checkpoints=False), ["model.features=4"])
    assert [one.key for one in found.safe] == ["model.features"]
    assert not found.refused


def test_the_gate_of_dlnests_contract(tmp_path: Path) -> None:
    """There only the section of roost and the tracks have known consequences; all other keys are the user's,
    whatever they are called."""
    config = dlnest_project(tmp_path / "p", optimizers={"main": {"scheduler": {"class": "a.OneCycleLR"}}})
    made = prepare_training(layers.load(config)).create("one")
    safe = ["roost.max_time=2h", "roost.devices=2", "checkpoint_args.max_ckpt_in_fast_track=3", "save_root=x"]
    refused = ["epochs=9", "max_epochs=9", "devices=2", "roost.seed=1", "optimizers.main.class=b"]
    assert not check(made, [*safe, *refused]).needs_force  # nothing so far that the rest must match
    session(made, "stopped")
    add_checkpoint(made, 0, {"step": 1, "epoch": 1, "valid/loss": 1.0})
    found = check(made, [*safe, *refused])
    assert sorted(one.key for one in found.safe) == sorted(one.partition("=")[0] for one in safe)
    assert sorted(one.key for one in found.refused) == sorted(one.partition("=")[0] for one in refused)
    assert found.inexact == []
