from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from roost.base import durable
from roost.base.errors import CheckpointError, NotFound, Refused
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.retention import BestRule, RetentionPolicy
from roost.package.package import PackageFolder
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.model.module_state import ModuleState
from roost.train.progress import Progress
from tests.messages import Messages
from tests.package.owner import other_machine
from tests.train.parts import bits


class Number:
    """The smallest thing with a state."""

    def __init__(self, value: Any = 0) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


@pytest.fixture(autouse=True)
def no_fault() -> Iterator[None]:
    yield
    durable.fault = None


def save(checkpoints: Checkpoints, step: int, **options: Any) -> Path:
    return checkpoints.save({"number": Number(step)}, Progress(step=step), **options).wait()


def steps(folder: Path) -> list[int]:
    return [info.step for info in checkpoint.read_manifests(folder)]


def test_saves_and_loads_torch_s_own_parts(tmp_path: Path) -> None:
    def parts() -> dict[str, Any]:
        torch.manual_seed(0)
        model = nn.Linear(2, 2)
        return {"model": model, "optimizer": torch.optim.Adam(model.parameters()), "progress": Progress()}

    first = parts()
    first["model"](torch.ones(1, 2)).sum().backward()
    first["optimizer"].step()
    first["progress"].advance(batches=1, samples=1, last=False)
    checkpoints = Checkpoints(tmp_path / "new" / "folder")
    assert checkpoints.load(parts()) == (None, [])
    assert checkpoints.newest is None
    path = checkpoints.save(first, first["progress"]).wait()
    assert path.is_dir() and path.parent == tmp_path / "new" / "folder"
    second = parts()
    info, said = Checkpoints(tmp_path / "new" / "folder").load(second)
    assert info is not None and (info.step, said) == (1, [])
    assert all(bits(dict(second[n].state_dict())) == bits(dict(first[n].state_dict())) for n in first)


def test_the_manifest_has_step_and_reason(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, session=4)
    save(
        checkpoints,
        3,
        reason="best",
        held=True,
        scheduled=None,
        metrics={"valid/loss": 0.5},
        inexact=["clock"],
    )
    progress = Progress(step=9, epoch=2, batch=1)
    checkpoints.save({"number": Number()}, progress, scheduled=7).wait()
    first, second = checkpoint.read_manifests(tmp_path)
    assert (first.id, first.step, first.reason, first.held, first.session) == (0, 3, "best", True, 4)
    assert (first.metrics, first.inexact, first.parent) == ({"valid/loss": 0.5}, ["clock"], None)
    assert (second.id, second.step, second.epoch, second.batch) == (1, 9, 2, 1)
    assert (second.parent, second.scheduled, second.line) == (0, 7, [(0, 1)])
    assert checkpoints.newest == second


def test_a_metric_that_is_not_finite_is_left_out(tmp_path: Path) -> None:
    """A manifest is JSON: it could not be read again."""
    save(Checkpoints(tmp_path), 1, metrics={"a": float("nan"), "b": float("inf"), "c": 1.0})
    (info,) = checkpoint.read_manifests(tmp_path)
    assert info.metrics == {"c": 1.0}


def test_a_chosen_checkpoint_begins_a_new_line(tmp_path: Path, messages: Messages) -> None:
    checkpoints = Checkpoints(tmp_path, RetentionPolicy(fast=10))
    for step in (1, 2, 3):
        save(checkpoints, step)
    again, number = Checkpoints(tmp_path, RetentionPolicy(fast=10)), Number()
    info, _ = again.load({"number": number}, id=0)
    assert info is not None and (info.step, number.value) == (1, 1)
    save(again, 20)
    assert again.newest is not None and again.newest.line == [(0, 0), (3, 3)]
    assert [info.step for info in again.store.lineage()] == [1, 20]
    newest = Number()
    Checkpoints(tmp_path).load({"number": newest})
    assert newest.value == 20
    with pytest.raises(NotFound, match=r"\b7\b.*: 0, 1, 2, 3\b") as refused:
        again.load({"number": number}, id=7)
    messages.check(refused.value.summary)


def test_retention_runs_after_the_new_one_is_committed(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, RetentionPolicy(fast=2, best=(BestRule(monitor="loss"),)))
    seen: list[tuple[str, list[int]]] = []

    def watch(operation: str, path: str) -> None:
        if operation == "unlink":
            seen.append((Path(path).name, steps(tmp_path)))

    for step, loss in enumerate([3.0, 1.0, 2.0, 4.0], 1):
        durable.fault = watch
        save(checkpoints, step, metrics={"loss": loss})
    assert steps(tmp_path) == [2, 3, 4]
    assert seen and all(step in found for (_, found), step in zip(seen, [3, 4], strict=False))
    best = checkpoints.best(BestRule(monitor="loss"))
    assert best is not None and best.step == 2
    assert checkpoints.best(BestRule(monitor="other")) is None


def test_a_save_that_fails_leaves_everything_as_it_was(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1)
    operations: list[str] = []
    durable.fault = lambda operation, path: operations.append(operation)
    save(checkpoints, 2)
    for number in range(len(operations)):
        left = iter(range(number + 1))

        def fail(operation: str, path: str, left: Iterator[int] = left) -> None:
            if next(left, None) == number:  # noqa: B023  - called before the loop goes on
                raise OSError(errno.EIO, "Input/output error", path)

        before = checkpoints.newest
        durable.fault = fail
        try:
            save(checkpoints, 100 + number)
        except OSError:
            assert checkpoints.newest == before
        durable.fault = None
        loaded = Number()
        info, said = Checkpoints(tmp_path).load({"number": loaded})
        assert info is not None and not said
        assert loaded.value == info.step
        save(checkpoints, 3 + number)
        assert steps(tmp_path)[-1] == 3 + number


def test_what_cannot_be_tidied_up_is_said_and_the_save_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    checkpoints = Checkpoints(tmp_path, RetentionPolicy(fast=2))
    for step in (1, 2):
        save(checkpoints, step)

    def fail(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith("state_0.ckpt"):
            raise OSError(errno.EIO, "Input/output error", path)

    durable.fault = fail
    save(checkpoints, 3)
    assert checkpoints.newest is not None and checkpoints.newest.step == 3
    said = capsys.readouterr().out
    assert "Input/output error" in said and said.count("\n") == 1
    messages.check(said)
    durable.fault = None
    save(checkpoints, 4)
    assert steps(tmp_path) == [3, 4]


def test_a_damaged_one_is_set_aside_and_the_one_before_it_used(tmp_path: Path, messages: Messages) -> None:
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        save(checkpoints, step)
    file = checkpoint.checkpoint_folder(tmp_path, 1) / "number.json"
    file.write_bytes(file.read_bytes().replace(b"2", b"3"))
    number, again = Number(), Checkpoints(tmp_path)
    info, said = again.load({"number": number})
    assert info is not None and (info.id, number.value) == (0, 1)
    assert len(said) == 1 and "state_1.ckpt" in said[0] and "number.json" in said[0]
    messages.check(said[0])
    assert (tmp_path / "state_1.ckpt.corrupt").is_dir()
    save(again, 5)
    assert [info.id for info in checkpoint.read_manifests(tmp_path)] == [0, 2], "no id is used twice"


def test_a_damaged_one_that_was_chosen_is_an_error(tmp_path: Path, messages: Messages) -> None:
    save(Checkpoints(tmp_path), 1)
    (checkpoint.checkpoint_folder(tmp_path, 0) / "number.json").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"number\.json.*\b0 bytes") as refused:
        Checkpoints(tmp_path).load({"number": Number()}, id=0)
    messages.check(refused.value)
    assert not list(tmp_path.glob("*.corrupt"))


def test_a_part_that_is_missing_is_named_and_nothing_is_set_aside(tmp_path: Path, messages: Messages) -> None:
    save(Checkpoints(tmp_path), 1)
    with pytest.raises(CheckpointError, match=r"checkpoint 0\b.*'model'.*\bnumber\b") as refused:
        Checkpoints(tmp_path).load({"model": Number()})
    messages.check(refused.value)
    assert steps(tmp_path) == [1]


def test_one_part_alone(tmp_path: Path) -> None:
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save({"model": ModuleState(model), "number": Number()}, Progress(step=1))
    checkpoints.load_part(0, "model", ModuleState(other))
    assert bits(dict(other.state_dict())) == bits(dict(model.state_dict()))


def test_litter_of_a_killed_save_is_swept_by_the_first_save_and_not_before(tmp_path: Path) -> None:
    """What only looks must not tear down the save that another process is at."""
    litter = durable.make_staging_folder(tmp_path / "state_0.ckpt")
    (litter / "x").write_bytes(b"1")
    checkpoints = Checkpoints(tmp_path)
    checkpoints.load({"number": Number()})
    assert (litter / "x").is_file()
    save(checkpoints, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["state_0.ckpt"]


def test_a_disk_that_does_not_answer_sets_nothing_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(Checkpoints(tmp_path), 1)
    with monkeypatch.context() as patch:
        patch.setattr("roost.base.safe_read.open_fd", _fails)
        with pytest.raises(OSError, match="Stale file handle"):
            Checkpoints(tmp_path).load({"number": Number()})
    assert steps(tmp_path) == [1] and not list(tmp_path.glob("*.corrupt*"))


def _fails(*_: object) -> None:
    raise OSError(errno.ESTALE, "Stale file handle")


def test_ranked_gives_all_that_were_measured_the_best_first(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, RetentionPolicy(fast=9))
    for step, metrics in enumerate([{"loss": 3.0}, {"loss": 1.0}, {}, {"loss": 2.0}], 1):
        save(checkpoints, step, metrics=metrics)
    assert [info.step for info in checkpoints.ranked(BestRule(monitor="loss"))] == [2, 4, 1]
    assert checkpoints.ranked(BestRule(monitor="other")) == []


def test_in_a_package_the_tracks_are_written_down(tmp_path: Path) -> None:
    package = PackageFolder.create(tmp_path, name="p", values={})
    checkpoints = Checkpoints(package, RetentionPolicy(fast=1, best=(BestRule(monitor="loss"),)), session=1)
    for step, loss in ((1, 1.0), (2, 2.0), (3, 3.0)):
        save(checkpoints, step, metrics={"loss": loss}, held=step == 2, inexact=["why"])
    derived = package.derived
    assert (derived["ckpt_fast"], derived["ckpt_best"], derived["ckpt_consistent"]) == ([2], [0], [1])
    assert (derived["prefix"], derived["inexact"]) == ("state_", ["why"])


def test_the_package_s_own_choice_of_a_line_is_kept(tmp_path: Path) -> None:
    """`continue -c 0` before its first save: the newest of the line is 0."""
    package = PackageFolder.create(tmp_path, name="p", values={})
    for step in (1, 2):
        save(Checkpoints(package, session=1), step)
    package.new_session({"overrides": [], "checkpoint": None})
    package.new_session({"overrides": [], "checkpoint": 0})
    number = Number()
    Checkpoints(package, session=2).load({"number": number})
    assert number.value == 1


def test_a_package_whose_checkpoints_are_gone_does_not_begin_anew(tmp_path: Path, messages: Messages) -> None:
    package = PackageFolder.create(tmp_path, values={})
    package.write_derived({"slow": [], "fast": [1, 2], "held": [], "best": []}, [])
    with pytest.raises(CheckpointError, match=r"\(1, 2\)") as refused:
        Checkpoints(package).load({})
    messages.check(refused.value)


def test_going_on_without_loading(tmp_path: Path) -> None:
    first = Checkpoints(tmp_path)
    for step in (1, 2, 3):
        save(first, step)
    newest = checkpoint.checkpoint_folder(tmp_path, 2)
    part = next(path for path in newest.iterdir() if path.name != "MANIFEST.json")
    part.write_bytes(b"?" + part.read_bytes()[1:])
    second = Checkpoints(tmp_path)
    found, said = second.verify_parent()
    assert found is not None and found.id == 1 == second.newest.id and len(said) == 1  # type: ignore[union-attr]
    save(second, 4)
    assert second.newest is not None and (second.newest.id, second.newest.parent) == (3, 1)
    third = Checkpoints(tmp_path)
    third.verify_parent(verified=checkpoint.read_manifest(third.store.path(1)))
    save(third, 5)
    assert third.newest is not None and third.newest.line == [(0, 1), (4, 4)]


def test_a_session_that_lost_its_package_to_another_machine_commits_nothing(tmp_path: Path) -> None:
    package = PackageFolder.create(tmp_path, values={}, name="one")
    other_machine.write(package.path, session=1)
    checkpoints = Checkpoints(package, session=1, asynchronous=False)
    save(checkpoints, 1)
    other_machine.write(package.path, session=2)
    with pytest.raises(Refused, match="taken over by host far"):
        save(checkpoints, 2)
    assert steps(package.checkpoints) == [1]
    assert len(list(package.checkpoints.iterdir())) == 1, "nothing half-written"
