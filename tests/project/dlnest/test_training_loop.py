from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from roost.base.errors import CheckpointError, ContractError, TrainingError
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.project.dlnest.training_loop import TrainingLoop
from tests.project.dlnest.loops import PROJECT, compare, fingerprint, loop, package, run, stopping


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> PackageFolder:
    """The uninterrupted run."""
    made = package(tmp_path_factory.mktemp("whole"))
    assert run(made) == "finished"
    return made


def test_trains_to_the_end(whole: PackageFolder) -> None:
    found = fingerprint(whole)
    assert (found["step"], found["epoch"]) == (43, 4), "one batch was skipped"
    assert found["best"]["best"] > 0.5
    assert found["inexact"] == []
    assert [one.id for one in checkpoint.read_manifests(whole.checkpoints)] == [0, 1, 2, 3]


@pytest.mark.parametrize("step", [1, 10, 11, 12, 30])
def test_a_stop_at_a_step_is_continued_exactly(step: int, whole: PackageFolder, tmp_path: Path) -> None:
    made = package(tmp_path)
    assert run(made, stopping("runOneStep", step)) == "enough"
    assert checkpoint.read_manifests(made.checkpoints)[-1].step == step
    assert run(made) == "finished"
    compare(fingerprint(made), fingerprint(whole))


@pytest.mark.parametrize("batch", [1, 4, 6])
def test_an_interrupted_validation_is_run_again(batch: int, whole: PackageFolder, tmp_path: Path) -> None:
    """The project validates with the batch norm in training mode: its statistics change."""
    made = package(tmp_path)
    assert run(made, stopping("validateABatch", 6 + batch)) == "enough"
    newest = checkpoint.read_manifests(made.checkpoints)[-1]
    assert (newest.step, newest.epoch, newest.reason) == (21, 2, "signal")
    assert run(made) == "finished"
    compare(fingerprint(made), fingerprint(whole))


class Killed(BaseException):
    pass


def kill(_: TrainingLoop) -> None:
    raise Killed


def test_a_killed_run_continues_from_the_last_save(whole: PackageFolder, tmp_path: Path) -> None:
    made = package(tmp_path)
    for method, number in (
        ("runOneStep", 5),
        ("validateABatch", 8),
        ("runOneStep", 1),
        ("validationAnalyze", 2),
    ):
        with pytest.raises(Killed):
            run(made, stopping(method, number, kill), save_every=4)
    assert run(made) == "finished"
    compare(fingerprint(made), fingerprint(whole))


def test_saves_only_within_epochs(tmp_path: Path) -> None:
    expected = package(tmp_path, saves=False)
    assert run(expected) == "finished"
    assert [one.reason for one in checkpoint.read_manifests(expected.checkpoints)] == ["final"]
    made = package(tmp_path, saves=False)
    for number in (9, 9, 9):
        with pytest.raises(Killed):
            run(made, stopping("runOneStep", number, kill), save_every=7)
    assert run(made, save_every=7) == "finished"
    compare(fingerprint(made), fingerprint(expected))


def test_workers_and_a_generator_of_the_project(tmp_path: Path) -> None:
    given = {
        "Dataset/Dataset.py": (PROJECT / "Dataset/Dataset.py")
        .read_text()
        .replace("shuffle=True", "shuffle=True, generator=torch.Generator().manual_seed(4)"),
        "Model/Runner.py": (PROJECT / "Model/Runner.py")
        .read_text()
        .replace(
            "self.smoothed = 0.0",
            "self.smoothed, self.numbers = 0.0, __import__('numpy').random.default_rng(1)",
        )
        .replace(
            "self.optimizer.step()", "self.optimizer.step()\n        log['own'] = self.numbers.random()"
        ),
    }
    expected = package(tmp_path, given, num_workers=2)
    run(expected)
    made = package(tmp_path, given, num_workers=2)
    assert run(made, stopping("runOneStep", 14)) == "enough"
    assert run(made, stopping("validateABatch", 3)) == "enough"
    assert run(made) == "finished"
    compare(fingerprint(made), fingerprint(expected))


def test_a_finished_run_trains_at_least_one_epoch_more(
    whole: PackageFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = package(tmp_path)
    assert run(made) == "finished"
    assert run(made) == "finished", "as after a kill between the last save and the end"
    assert checkpoint.read_manifests(made.checkpoints)[-1].epoch == 4
    assert "one more epoch" not in capsys.readouterr().out
    assert run(made, was_finished=True) == "finished"
    assert "the run had ended: one more epoch is trained" in capsys.readouterr().out
    assert checkpoint.read_manifests(made.checkpoints)[-1].epoch == 5
    longer = package(tmp_path, epochs=5)
    run(longer)
    compare(fingerprint(made), fingerprint(longer))


def test_a_stop_before_the_first_step_saves_nothing(tmp_path: Path) -> None:
    made = package(tmp_path)
    assert run(made, lambda one: one.request_stop("early")) == "early"
    assert checkpoint.ids(made.checkpoints) == []


def test_an_error_is_told_to_the_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = """
    def trainAborting(self, exception):
        print("aborting:", exception)

    def ATrain(self):
        print("ATrain")

    def AAll(self):
        print("AAll")
"""
    given = {"LifeCycle.py": (PROJECT / "LifeCycle.py").read_text() + calls}
    made = package(tmp_path, given)

    def fail(_: TrainingLoop) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run(made, stopping("runOneStep", 13, fail))
    said = capsys.readouterr().out
    assert "aborting: no\n" in said and "AAll" in said and "ATrain" not in said
    assert checkpoint.read_manifests(made.checkpoints)[-1].step == 11, "nothing is saved after an error"
    assert run(made, lambda one: one.request_stop("enough")) == "enough"
    said = capsys.readouterr().out
    assert "AAll" in said and "ATrain" not in said
    assert run(made) == "finished"
    assert "ATrain\n" in capsys.readouterr().out


def test_a_state_that_cannot_be_copied_is_saved_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As torch.save does it: here results of the model in a deque, which deepcopy refuses."""
    runner = (PROJECT / "Model/Runner.py").read_text()
    changed = runner.replace(
        '"pictures": 0}', '"pictures": 0, "last": deque([self.model.layers[0].weight * 2])}'
    )
    made = package(tmp_path, {"Model/Runner.py": f"from collections import deque\n{changed}"}, epochs=1)
    assert run(made) == "finished"
    assert "a validation is not interrupted, as the state cannot be copied" in capsys.readouterr().out
    assert checkpoint.read_manifests(made.checkpoints)[-1].step == 11


def test_a_log_that_contains_itself_is_refused_at_the_save(tmp_path: Path) -> None:
    runner, end = (PROJECT / "Model/Runner.py").read_text(), "        return self.seen\n"
    own = runner.replace(end, f'        self.seen["me"] = self.seen\n{end}')
    made = package(tmp_path, {"Model/Runner.py": own}, epochs=1)
    with pytest.raises(CheckpointError, match=r"contains itself, at 'log_dict\.me\.me"):
        run(made)


def test_a_forked_copy_of_the_process_does_not_save(tmp_path: Path) -> None:
    """A project's own os.fork, whose child returns into the loop."""
    made, parent = package(tmp_path, epochs=1), os.getpid()

    def fork(_: TrainingLoop) -> None:
        if (child := os.fork()) != 0:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

    try:
        assert run(made, stopping("runOneStep", 3, fork)) == "finished"
    except BaseException as error:
        if os.getpid() == parent:
            raise
        is_refused = isinstance(error, TrainingError) and "is a copy of it" in error.message
        os._exit(7 if is_refused else 1)
    if os.getpid() != parent:
        os._exit(1)
    assert checkpoint.ids(made.checkpoints) == [0]


def test_a_validation_without_a_loader(tmp_path: Path) -> None:
    data = (PROJECT / "Dataset/Dataset.py").read_text()
    none = data.replace('return {"inputs": 6}, train, valid', 'return {"inputs": 6}, train, None')
    with pytest.raises(ContractError, match="must return a validation loader"):
        run(package(tmp_path, {"Dataset/Dataset.py": none}, epochs=1))


def test_an_epoch_without_batches_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = (PROJECT / "Dataset/Dataset.py").read_text()
    once = data.replace(
        'return {"inputs": 6}, train, valid', 'return {"inputs": 6}, iter(list(train)), valid'
    )
    life = (PROJECT / "LifeCycle.py").read_text().replace("self.mean.count", "max(self.mean.count, 1)")
    made = package(tmp_path, {"Dataset/Dataset.py": once, "LifeCycle.py": life}, epochs=3, patience=9)
    assert run(made) == "finished"
    assert capsys.readouterr().out.count("epoch 1 has no batches: the training loader gave none\n") == 1


def test_rows(whole: PackageFolder) -> None:
    """Each third step, and the end of each epoch: with its validation, then with what AOneEpoch adds."""
    rows = whole.records().rows
    ends = [11, 21, 32, 43]
    assert [row["step"] for row in rows] == sorted([*(set(range(3, 43, 3)) - {21}), *ends, *ends])
    last, after = (row for row in rows if row["step"] == 11)
    assert last["train/loss"] and last["valid/acc"] and "train/lr" not in last
    assert (after["train/lr"], after["epoch"]) == (0.008, 1)


def test_what_initlog_returns_is_in_no_row(tmp_path: Path) -> None:
    """A best value that only validations change is not shown beside them, for ever, as its first one."""
    runner = (PROJECT / "Model" / "Runner.py").read_text()
    runner = runner.replace('"pictures": 0', '"pictures": 0, "best": {"acc": 0.0}, "start": [7.0]')
    runner += '        log["best"]["acc"] = max(log["acc"])\n'
    made = package(tmp_path, {"Model/Runner.py": runner})
    assert run(made, stopping("runOneStep", 30)) == "enough"
    assert run(made) == "finished"
    rows = made.records().rows
    names = {name for row in rows for name in row if "/" in name}
    assert "valid/best/acc" in names and {"train/best/acc", "train/start"}.isdisjoint(names)


EVERY_CALL = """
from DLNest.Common.LifeCycleBase import LifeCycleBase

NAMES = '''BAll AAll BDatasetInit ADatasetInit BModelInit AModelInit BTrain ATrain BOneEpoch AOneEpoch
BModelOneStep AModelOneStep BVisualize AVisualize BValidation AValidation BValidateABatch AValidateABatch
BValidationAnalyze AValidationAnalyze BSaveModel ASaveModel needVisualize needValidation needSaveModel
holdThisCheckpoint needContinueTrain commandLineOutput'''.split()
calls, answers = [], {"needContinueTrain": [True, False]}


def method(name):
    def call(self, *arguments):
        calls.append(name)
        own = answers.get(name)
        return own.pop(0) if isinstance(own, list) else True if own is None else own
    return call


LifeCycle = type("LifeCycle", (LifeCycleBase,), {name: method(name) for name in NAMES})
"""
FEW_BATCHES = """
from DLNest.Common.DatasetBase import DatasetBase

class Dataset(DatasetBase):
    def init(self, args):
        import torch
        batch = [torch.ones(4, 6), torch.ones(4, dtype=torch.long)]
        return {"inputs": 6}, [batch] * 2, [batch]
"""
STEP = ["BModelOneStep", "AModelOneStep", "needVisualize", "BVisualize", "AVisualize"]
VALIDATION = [
    *("BValidation", "BValidateABatch", "AValidateABatch", "BValidationAnalyze", "AValidationAnalyze"),
    "AValidation",
]
SAVE = ["BSaveModel", "needSaveModel", "holdThisCheckpoint"]
EPOCH = ["BOneEpoch", *STEP, *STEP, "commandLineOutput", "needValidation", *VALIDATION, *SAVE, "ASaveModel"]
BUILD = ["BAll", "BDatasetInit", "ADatasetInit", "BModelInit", "AModelInit"]


def calls_of(made: PackageFolder, change: str = "") -> list[str]:
    """Runs a session of a project whose LifeCycle records its calls, with some of its answers changed."""
    file = made.path / "LifeCycle.py"
    file.write_text(EVERY_CALL + change)
    with loop(made) as found:
        found.run()
        called: list[str] = sys.modules[type(found.project.life_cycle).needVisualize.__module__].calls
        return called


def recording(root: Path) -> PackageFolder:
    return package(root, {"LifeCycle.py": EVERY_CALL, "Dataset/Dataset.py": FEW_BATCHES})


def test_the_order_of_its_readme(tmp_path: Path) -> None:
    end = ["AOneEpoch", "needContinueTrain"]
    assert calls_of(recording(tmp_path)) == [*BUILD, "BTrain", *EPOCH, *end, *EPOCH, *end, "ATrain", "AAll"]


@pytest.mark.parametrize(
    ("skipped", "left_out"),
    [
        ("BModelOneStep", []),
        ("BVisualize", []),
        ("BValidateABatch", []),
        ("BValidationAnalyze", []),
        ("BValidation", VALIDATION[1:-1]),
        ("BSaveModel", SAVE[1:]),
        ("BOneEpoch", EPOCH[1:]),
        ("BTrain", [*EPOCH, "AOneEpoch", "needContinueTrain"]),
    ],
)
def test_skip_leaves_out_what_follows(skipped: str, left_out: list[str], tmp_path: Path) -> None:
    called = calls_of(recording(tmp_path), f'answers[{skipped!r}] = "Skip"\n')
    assert not set(called) & set(left_out)
    every = {*BUILD, "BTrain", *EPOCH, "AOneEpoch", "needContinueTrain", "ATrain", "AAll"}
    assert set(called) == every - set(left_out)


def test_a_validation_of_the_projects_own(tmp_path: Path) -> None:
    runner = (PROJECT / "Model/Runner.py").read_text() + (
        "\n    def validate(self, loader, log):\n        log['acc'].append(len(list(loader)))\n"
    )
    made = package(tmp_path, {"Model/Runner.py": runner}, epochs=1, num_workers=1)
    assert run(made, stopping("validate", 1)) == "enough"
    newest = checkpoint.read_manifests(made.checkpoints)[-1]
    assert (newest.epoch, newest.reason, newest.metrics) == (1, "scheduled", {"valid/acc": 6.0})
    assert run(made) == "finished"


def test_an_older_checkpoint_begins_a_branch(whole: PackageFolder, tmp_path: Path) -> None:
    made = package(tmp_path)
    run(made)
    assert run(made, id=1) == "finished"
    assert [one.id for one in made.store().lineage()] == [0, 1, 4, 5]
    compare(fingerprint(made), fingerprint(whole))


@pytest.mark.filterwarnings("error:.*lr_scheduler.step")
def test_a_scheduler_whose_optimizer_has_stepped_in_an_earlier_session(tmp_path: Path) -> None:
    """torch would warn of a scheduler that steps before its optimizer, which is in a list here."""
    runner = (PROJECT / "Model/Runner.py").read_text()
    runner = runner.replace(
        "self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)",
        "self.held = [torch.optim.Adam(self.model.parameters(), lr=0.01)]",
    )
    runner = runner.replace("self.optimizer", "self.held[0]")
    made = package(tmp_path, {"Model/Runner.py": runner}, epochs=1)
    assert run(made, stopping("validateABatch", 1)) == "enough"
    assert run(made) == "finished"
