from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from roost.base.errors import ConfigError, ContractError
from roost.config import objects
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.retention import BestRule, RetentionPolicy
from roost.project import native_project, trainer_assembly
from roost.train.distributed.ranks import Ranks
from roost.train.end_condition import EndCondition
from roost.train.hooks import Averaging
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.project.projects import DATASET, RUNNER, project

MORE_SETS = DATASET.replace("valid=data", 'valid={"clean": data, "noisy": data}, test=data')
TRAIN_ALONE = DATASET.replace("valid=data, ", "")
BAD = (
    DATASET
    + """
class Bad:
    def __len__(self): return 9
    def __getitem__(self, index): return 1 / 0
"""
)


def make(folder: Path, **options: Any) -> Trainer:
    package = project(folder, **options)
    return trainer_assembly.assemble(
        native_project.load(package, project="", device="cpu"), package, session=1
    )


def test_a_sample_that_cannot_be_read_says_of_which_set(tmp_path: Path, messages: Messages) -> None:
    trainer = make(tmp_path, dataset=BAD.replace("valid=data", 'valid={"clean": data, "noisy": Bad()}'))
    with pytest.raises(ZeroDivisionError) as found:
        trainer.evaluate()
    (note,) = found.value.__notes__
    assert "sample 0" in note and "noisy (Bad)" in note
    messages.check(note)


def hooks(trainer: Trainer) -> list[str]:
    return [hook.name for hook in trainer.calls.hooks]


def test_the_least(tmp_path: Path) -> None:
    trainer = make(tmp_path)
    assert hooks(trainer) == ["Visualize", "Validate", "Records", "Save", "Console", "Unsaved"]
    assert {name: len(loader) for name, loader in trainer.loaders.items()} == {"train": 4, "valid": 4}
    assert trainer.until == EndCondition(steps=6)
    assert trainer.fit() == "finished"
    package = trainer.checkpoints.store.folder.parent  # type: ignore[union-attr]
    assert checkpoint.read_manifests(package / "Checkpoints")[-1].step == 6
    assert checkpoint.read_manifests(package / "Checkpoints")[-1].session == 1
    assert (package / "records" / "1.jsonl").is_file()
    assert (package / "progress").is_file()


def test_of_several_ranks_one_talks_to_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = project(tmp_path, profile={}, mirrors={"csv": {}}, visualize_every="1ep")
    experiment = native_project.load(package, project="", device="cpu")
    capsys.readouterr()
    found = []
    for rank in range(2):
        of_rank = replace(experiment, ranks=Ranks(rank, 2, rank))
        found.append(hooks(trainer_assembly.assemble(of_rank, package, session=1)))
    first, second = found
    assert [name for name in first if name not in second] == [
        "Profile",
        "SpeedProfile",
        "Console",
        "Unsaved",
        "Mirrors",
    ]
    assert [name for name in first if name in second] == second
    assert capsys.readouterr().out.count("visualize()") == 1


def test_everything(tmp_path: Path, messages: Messages) -> None:
    trainer = make(
        tmp_path,
        dataset=MORE_SETS,
        seed=7,
        max_epochs=2,
        max_time="1h",
        test_at_end="last",
        validate_every="3",
        log_every="2",
        visualize_every="5",
        gradient_accumulation_steps=3,
        data={"batch_size": 10, "num_workers": 1, "valid": {"batch_size": 20}, "test": {"num_workers": 0}},
        optimizers={
            "main": {
                "class": "torch.optim.AdamW",
                "lr": 0.1,
                "scheduler": {
                    "class": "torch.optim.lr_scheduler.CosineAnnealingLR",
                    "T_max": "${total_steps}",
                },
            }
        },
        checkpoint={
            "every": ["1ep", "4"],
            "fast": 3,
            "best": [{"monitor": "valid/clean/loss", "mode": "min", "top_k": 2}],
        },
        early_stopping={"monitor": "valid/clean/loss", "patience": 9},
    )
    assert hooks(trainer) == [
        "Schedule",
        "Visualize",
        "Test",
        "Validate",
        "Best",
        "EarlyStop",
        "Records",
        "Save",
        "Console",
        "Unsaved",
    ]
    assert trainer.until == EndCondition(6, 2, 3600.0)
    assert (trainer.steps_per_epoch, trainer.total_steps, trainer.seed) == (2, 4, 7)
    assert trainer.stepper.optimizers["main"].scheduler.T_max == 4
    sets = {name: (len(loader), loader.num_workers) for name, loader in trainer.loaders.items()}
    assert sets == {"train": (4, 1), "valid/clean": (2, 1), "valid/noisy": (2, 1), "test": (4, 0)}
    named = [loader.name for loader in trainer.loaders.values()]
    assert [name.split()[-1] for name in named[1:3]] == ["clean", "noisy"] and len(set(named)) == 4
    messages.check("\n".join(named))
    assert trainer.loaders["train"].plan.shuffle and not trainer.loaders["test"].plan.shuffle
    assert trainer.checkpoints is not None
    assert trainer.checkpoints.policy == RetentionPolicy(
        fast=3, best=(BestRule(monitor="valid/clean/loss", top_k=2),)
    )
    plan = {line.split()[1]: line.split()[-1] for line in trainer.plan().splitlines()[1:]}
    assert (plan["Validate"], plan["Records"], plan["Visualize"]) == ("3", "2", "5")


def test_own_hooks_come_after_roost_s_in_their_phase(tmp_path: Path) -> None:
    code = "import roost\nclass A(roost.Hook): phase = roost.Phase.EVAL\n"
    code += "class B(roost.Hook): phase = roost.Phase.MODEL\n"
    trainer = make(tmp_path, hooks_code=code, hooks=["Hooks.py:A", "Hooks.py:B"])
    assert hooks(trainer)[:4] == ["B", "Visualize", "Validate", "A"]


def test_averages_come_after_the_hooks_that_may_change_the_weights(tmp_path: Path) -> None:
    code = "import roost\nclass B(roost.Hook): phase = roost.Phase.MODEL\n"
    late = {"method": "swa", "every": "1ep", "start": 5, "validate": False}
    averages = {"ema": {"decay": 0.5}, "late": late}
    trainer = make(tmp_path, hooks_code=code, hooks=["Hooks.py:B"], averages=averages)
    assert hooks(trainer)[:3] == ["B", "average/ema", "average/late"]
    assert trainer.fit() == "finished"
    ema, swa = (hook.state_dict() for hook in trainer.calls.hooks if isinstance(hook, Averaging))
    assert (ema["method"], ema["count"], swa["method"], swa["count"]) == ("ema", 6, "swa", 0)
    assert "valid/ema/loss" in trainer.evaluate() and "valid/late/loss" not in trainer.evaluate()


@pytest.mark.parametrize("mode", ["dry", "no_optim"])
def test_what_trains_nothing_averages_nothing(mode: str, tmp_path: Path) -> None:
    trainer = make(tmp_path, step_mode=mode, averages={"ema": {}})
    trainer.fit()
    assert not trainer.averages and not any(name.startswith("average") for name in hooks(trainer))


@pytest.mark.parametrize(
    ("sets", "settings", "expected"),
    [
        (DATASET, {}, False),
        (MORE_SETS, {}, True),
        (MORE_SETS, {"test_at_end": "none"}, False),
        (TRAIN_ALONE, {}, False),
    ],
)
def test_the_test_set_is_measured_if_there_is_one(
    sets: str, settings: dict[str, Any], expected: bool, tmp_path: Path
) -> None:
    assert ("Test" in hooks(make(tmp_path, dataset=sets, **settings))) == expected


@pytest.mark.parametrize(
    "settings",
    [
        {"early_stopping": {"monitor": "valid/loss"}},
        {"checkpoint": {"best": [{"monitor": "valid/loss", "mode": "min"}]}},
    ],
)
def test_what_decides_by_a_validation_needs_one(
    settings: dict[str, Any], tmp_path: Path, messages: Messages
) -> None:
    with pytest.raises(ContractError, match="valid=") as refused:
        make(tmp_path, dataset=TRAIN_ALONE, **settings)
    messages.check(refused.value)
    (key,) = settings
    assert (refused.value.setting or "").startswith(key)


def test_without_a_validation_set_nothing_validates(tmp_path: Path) -> None:
    trainer = make(tmp_path, dataset=TRAIN_ALONE)
    assert "Validate" not in hooks(trainer)
    assert trainer.fit() == "finished"


def test_what_never_happens(tmp_path: Path) -> None:
    never = dict.fromkeys(("validate_every", "log_every", "visualize_every"), "never")
    trainer = make(tmp_path, checkpoint={"every": "never"}, **never)
    assert "Validate" not in hooks(trainer)
    assert trainer.fit() == "finished"
    assert not any(name.startswith("valid/") for name in trainer.results)
    (file,) = tmp_path.rglob("records/1.jsonl")
    steps = [row["step"] for row in map(json.loads, file.read_text().splitlines()) if "step" in row]
    assert steps == [trainer.progress.step], "the last row alone"


OWN = (
    RUNNER
    + """
    def optimizers(self):
        return {given}
"""
)


def test_the_runner_s_own_optimizers(tmp_path: Path) -> None:
    code = "import torch\n" + OWN.format(given='{"main": torch.optim.SGD(self.parameters(), lr=0.5)}')
    trainer = make(tmp_path, runner=code, optimizers=None, gradient_accumulation_steps=2)
    assert trainer.stepper.optimizers["main"].optimizer.param_groups[0]["lr"] == 0.5
    assert trainer.stepper.batches_per_step == 2


@pytest.mark.parametrize("given", ["None", "{}", "[1]", '{"main": 3}', "iter([])"])
def test_own_optimizers_that_are_none(given: str, tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(ContractError, match=r"Runner\.optimizers\(\)") as refused:
        make(tmp_path, runner=OWN.format(given=given))
    messages.check(refused.value)


@pytest.mark.parametrize(
    ("settings", "setting", "facts"),
    [
        ({"optimizers": None}, "optimizers", "optimizers"),
        (
            {"optimizers": {"main": {"class": "torch.optim.SGD", "lr": 1, "params": "nett*"}}},
            "optimizers.main.params",
            r"nett\*",
        ),
        ({"data": {"batch_size": 100, "drop_last": True}}, "data.batch_size", "40.*100"),
        ({"data": {"weighted": True}}, "data.weighted", r"\(TensorDataset\)"),
        ({"step_mode": "fast"}, "step_mode", "'fast'"),
        ({"validate_every": "seldom"}, "validate_every", "'seldom'"),
    ],
)
def test_settings_that_do_not_fit(
    settings: dict[str, Any], setting: str, facts: str, tmp_path: Path, messages: Messages
) -> None:
    with pytest.raises((ConfigError, ContractError), match=facts) as refused:
        make(tmp_path, **settings)
    assert refused.value.setting == setting
    messages.check(refused.value)


def test_time_alone_gives_no_total_steps(tmp_path: Path, messages: Messages) -> None:
    scheduler = {"class": "torch.optim.lr_scheduler.CosineAnnealingLR", "T_max": "${total_steps}"}
    main = {"class": "torch.optim.SGD", "lr": 0.1, "scheduler": scheduler}
    key = "optimizers.main.scheduler.T_max"
    asked = {"max_steps": None, "max_time": "1h", "optimizers": {"main": main}}
    with pytest.raises(ConfigError, match=r"total_steps.*max_time") as refused:
        make(tmp_path / "time", **asked, provenance={key: "config.yaml:9"})
    assert refused.value.setting == key
    messages.check(refused.value)
    assert refused.value.where == "config.yaml:9"
    objects.unload_project(tmp_path)
    objects.unload_project(tmp_path)
    scheduler["T_max"] = "${steps_per_epoch}"
    assert make(tmp_path / "epochs", **asked).stepper.optimizers["main"].scheduler.T_max == 4


def test_a_batch_larger_than_the_set_is_one_batch(tmp_path: Path) -> None:
    trainer = make(tmp_path, data={"batch_size": 100}, max_steps=2)
    assert trainer.steps_per_epoch == 1
    assert trainer.fit() == "finished"


def test_fewer_batches_than_log_every(tmp_path: Path) -> None:
    trainer = make(tmp_path, log_every="1000", max_steps=2)
    assert trainer.fit() == "finished"
    assert trainer.row.keys() >= {"train/loss", "valid/loss"}


def test_two_runs_of_one_config_are_the_same(tmp_path: Path) -> None:
    found = []
    for name in "ab":
        trainer = make(tmp_path / name)
        trainer.fit()
        found.append(torch.cat([p.detach().flatten() for p in trainer.runner.parameters()]))
        objects.unload_project(tmp_path)
    assert torch.equal(*found)


def test_statistics_and_a_profile(tmp_path: Path) -> None:
    code = "import roost\nclass B(roost.Hook): phase = roost.Phase.MODEL\n"
    trainer = make(
        tmp_path,
        hooks_code=code,
        hooks=["Hooks.py:B"],
        statistics={"every": 2, "updates": True, "weights": False, "histograms": True},
        profile={"start_step": 1, "steps": 2},
        log_every=2,
    )
    assert hooks(trainer)[:2] == ["B", "Statistics"], "a hook of the project may change the weights"
    assert trainer.fit() == "finished"
    package = trainer.checkpoints.store.folder.parent  # type: ignore[union-attr]
    assert {name.split("/")[1] for name in trainer.row if name.startswith("stats/")} == {
        "grad_norm",
        "update_norm",
    }
    assert list((package / "media" / "2").glob("gradients.*.json"))
    assert (package / "profile" / "1" / "trace.json").is_file()


def test_globs_of_statistics_that_match_nothing(tmp_path: Path, messages: Messages) -> None:
    trainer = make(tmp_path, statistics={"params": ["*", "head.*"]})
    with pytest.raises(ConfigError, match=r"'head\.\*'") as refused:
        trainer.fit()
    assert refused.value.setting == "statistics.params"
    messages.check(refused.value)


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"visualize_every": 2}, ["visualize_every", "2", "visualize()"]),
        ({"visualize_samples": 2}, ["visualize_every", "visualize()"]),
        ({}, []),
    ],
)
def test_a_visualize_that_is_never_called_is_told(
    settings: dict[str, Any],
    facts: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    messages: Messages,
) -> None:
    make(tmp_path, **settings)
    out = capsys.readouterr().out
    assert all(fact in out for fact in facts) and ("visualize" in out) == bool(facts)
    if facts:
        messages.check(out)


@pytest.mark.parametrize("mode", ["dry", "no_optim"])
def test_what_trains_nothing_is_profiled_and_its_statistics_are_ignored_aloud(
    mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = make(tmp_path, step_mode=mode, statistics={}, profile={"start_step": 1, "steps": 2})
    assert hooks(trainer) == ["Profile", "SpeedProfile", "Records", "Console"]
    trainer.fit()
    out = capsys.readouterr().out
    assert any("statistics" in line and f"step_mode {mode}" in line for line in out.splitlines())
    assert re.search("profile.* 2 .*3", out)
