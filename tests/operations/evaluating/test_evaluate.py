"""Asking for evaluations: by the queue, and together with a training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from roost.base.errors import ConfigError, NotFound, Refused, UsageError
from roost.devices.resource_request import TaskOptions
from roost.operations.evaluating.evaluate import evaluate, submit_evaluate
from roost.operations.evaluating.evaluation_request import (
    EvaluateRequest,
    check_request,
    find_folder,
    make_folder,
)
from roost.operations.lifecycle.run import RunRequest, run
from roost.operations.sessions.rank_layout import RankRequest
from roost.package import session_folder
from roost.package.kinds import TaskKind
from roost.package.package import PackageFolder
from roost.package.results.evaluations import evaluation_folder
from tests.evaluation.made_evaluation import write_cells
from tests.messages import Messages
from tests.operations.packages import project
from tests.project.trained import trained


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> PackageFolder:
    return trained(tmp_path_factory.mktemp("evaluated"))


def test_a_queued_evaluation_is_a_task_with_a_folder_of_its_name(
    package: PackageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.operations.lab.ensure_daemon", lambda: None)
    monkeypatch.setattr("roost.operations.lab.notify_daemon", list)
    request = EvaluateRequest(package=package.path, name="queued", checkpoints="last")
    queued = submit_evaluate(request, TaskOptions(gpus=0))
    (task,) = queued.tasks
    assert task.kind == "evaluate" and task.label.startswith("E_")
    assert task.folder == package.path / evaluation_folder.NAME / "queued"
    kinds = {folder.path: kind for kind, folder in session_folder.find_all(package.path)}
    assert kinds[task.folder] is TaskKind.EVALUATE
    found = session_folder.find_at(task.folder)
    assert found is not None and found.package_path == package.path


def test_a_finished_evaluation_is_not_run_again(package: PackageFolder, messages: Messages) -> None:
    request = EvaluateRequest(package=package.path, name="done", checkpoints="last")
    folder = make_folder(check_request(request), "done").path
    write_cells(folder, [{"folder": "v", "state": "finished"}])
    (folder / "v").mkdir()
    (folder / "seal.json").touch()
    started = evaluate(request)
    assert started.running is None and started.folder == folder
    with pytest.raises(Refused) as caught:
        submit_evaluate(request, TaskOptions(gpus=0))
    messages.check(caught.value)


def test_one_that_cannot_begin_leaves_nothing(
    package: PackageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take_leases(*_: object) -> None:
        raise Refused("the card is taken")

    monkeypatch.setattr("roost.operations.sessions.foreground_lease.take_leases", take_leases)
    with pytest.raises(Refused, match="taken"):
        evaluate(EvaluateRequest(package=package.path, name="taken", checkpoints="last"))
    assert not (package.path / evaluation_folder.NAME / "taken").exists()


def test_a_relative_request_finds_its_folder_again(package: PackageFolder) -> None:
    request = EvaluateRequest(package=package.path, checkpoints="last", datasets=["valid"])
    made = make_folder(check_request(request), None)
    assert made.path.name.isdecimal()
    found = find_folder(check_request(request), None)
    assert found is not None and found.path == made.path
    assert find_folder(check_request(replace(request, on_step_error="skip")), None) is None


@pytest.mark.parametrize("strategy", ["fsdp"])
def test_a_strategy_that_shards_the_model(package: PackageFolder, messages: Messages, strategy: str) -> None:
    ranks = RankRequest(devices=2, strategy=strategy)
    with pytest.raises(UsageError) as caught:
        evaluate(EvaluateRequest(package=package.path, checkpoints="last", device="cpu", ranks=ranks))
    messages.check(caught.value)


def test_a_package_without_a_checkpoint(tmp_path: Path, messages: Messages) -> None:
    empty = trained(tmp_path, checkpoint={"every": "never"})
    for path in list(empty.checkpoints.iterdir()):
        path.rename(tmp_path / path.name)
    with pytest.raises(NotFound) as caught:
        check_request(EvaluateRequest(package=empty.path))
    messages.check(caught.value)


def test_wrong_variants_are_found_before_a_training(tmp_path: Path, messages: Messages) -> None:
    config = project(tmp_path / "project")
    (tmp_path / "v.yaml").write_text("grid: {beam: 5}\n")
    following = EvaluateRequest(package=Path(), variants=tmp_path / "v.yaml")
    with pytest.raises(ConfigError) as caught:
        run(RunRequest(config=config, device="cpu", evaluate=following))
    messages.check(caught.value)
    assert not (tmp_path / "project" / "runs").exists()
