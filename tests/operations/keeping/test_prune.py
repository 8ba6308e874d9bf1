"""A pruned package says what was removed, and what is left of it works."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

import roost
from roost.analysis import preconditions
from roost.base.errors import Damaged, Refused, RoostError, UsageError
from roost.operations.keeping import prune
from roost.operations.keeping.prune import PlannedPruning, PruneRequest, checked_request
from roost.operations.lifecycle.continue_ import ContinueRequest, continue_
from roost.operations.lifecycle.fork import ForkRequest, fork
from roost.operations.listing.list_packages import list_packages
from roost.operations.reading.verify import Finding, verify
from roost.package.checkpoints import checkpoint, pruning
from roost.package.package import PackageFolder
from roost.package.seals import seal, session_seal
from roost.train.weights import package_weights
from tests.operations.packages import add_checkpoint, package, session
from tests.project.trained import trained

BEST_AND_LAST = PruneRequest(keep=("best", "last"))
RECORDS_ONLY = PruneRequest(records_only=True)
WEIGHTS_ONLY = PruneRequest(weights_only=True)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def sealed(tmp_path: Path, name: str = "one", state: str = "succeeded") -> PackageFolder:
    made = package(tmp_path / "runs", name, state=state)
    session_seal.write(session_seal.seal_path(made.path, 1))
    return made


def pruned(made: PackageFolder, request: PruneRequest) -> PlannedPruning:
    (done,) = prune.prune(prune.plan([str(made.path)], request), request)
    return done


def trained_and_ended(folder: Path, **options: Any) -> PackageFolder:
    """A package of a real training, with the record that its supervisor would have written."""
    made = trained(folder, **options)
    record = {
        "session": 1,
        "state": "succeeded",
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "exit_code": 0,
    }
    (made.path / "sessions" / "1.json").write_text(json.dumps(record))
    return made


def findings(made: PackageFolder, verdict: str) -> list[Finding]:
    return [one for one in verify(made.path) if one.verdict == verdict]


def bad(made: PackageFolder) -> list[Finding]:
    return [one for one in verify(made.path) if one.is_bad]


def test_the_best_and_the_last_remain_and_verify_knows_why(tmp_path: Path) -> None:
    made = sealed(tmp_path)
    done = pruned(made, BEST_AND_LAST)
    assert list(done.pruning.removed) == ["Checkpoints/state_0.ckpt"] and done.num_bytes > 0
    assert checkpoint.ids(made.checkpoints) == [1, 2] and bad(made) == []
    (said,) = findings(made, "pruned")
    assert "by --keep best,last: 1 checkpoint removed" in said.reason
    (again,) = prune.plan([str(made.path)], BEST_AND_LAST)
    assert again.is_empty


def test_without_any_checkpoint_continue_and_fork_refuse_to_begin_at_zero(tmp_path: Path) -> None:
    made = sealed(tmp_path, state="stopped")
    pruned(made, RECORDS_ONLY)
    assert checkpoint.ids(made.checkpoints) == [] and made.kept_ids() == set() and bad(made) == []
    for begin in (
        lambda: continue_(ContinueRequest(package=made.path)),
        lambda: fork(ForkRequest(package=made.path)),
        lambda: preconditions.check_checkpoints(made, None, fix="wait for its first one"),
    ):
        with pytest.raises(Refused, match=r"its checkpoints were removed on .*--records-only.*roost rerun"):
            begin()
    (row,) = list_packages(tmp_path / "runs")
    assert row.last == 0.75


def test_a_checkpoint_that_is_gone_otherwise_is_still_missing(tmp_path: Path) -> None:
    made = sealed(tmp_path)
    pruned(made, BEST_AND_LAST)
    (made.checkpoints / "state_1.ckpt" / "MANIFEST.json").unlink()
    assert [one.path for one in bad(made)] == ["Checkpoints/state_1.ckpt"]


def test_an_edited_record_of_prunings_is_damage(tmp_path: Path) -> None:
    made = sealed(tmp_path)
    pruned(made, RECORDS_ONLY)
    file = made.path / "_pruned.json"
    file.write_text(file.read_text().replace("--records-only", "--keep last"))
    assert {one.path for one in bad(made)} >= {"_pruned.json"}


def test_the_last_is_kept_in_any_case(tmp_path: Path) -> None:
    made = sealed(tmp_path)
    assert list(pruned(made, PruneRequest(keep=("0",))).pruning.removed) == ["Checkpoints/state_1.ckpt"]
    assert checkpoint.ids(made.checkpoints) == [0, 2]


def test_nothing_goes_if_what_is_kept_is_damaged(tmp_path: Path) -> None:
    made = sealed(tmp_path)
    (made.checkpoints / "state_2.ckpt" / "model.json").write_text("{}")
    with pytest.raises(Damaged):
        pruned(made, BEST_AND_LAST)
    assert checkpoint.ids(made.checkpoints) == [0, 1, 2] and findings(made, "pruned") == []


@pytest.mark.parametrize(
    ("keep", "weights", "records"),
    [(None, False, False), ("", False, False), ("bset", False, False), ("-1", False, False),
     ("last", False, True), (None, True, True)],
)  # fmt: skip
def test_what_is_not_said_is_not_guessed(keep: str | None, weights: bool, records: bool) -> None:
    with pytest.raises(UsageError):
        checked_request(keep, weights_only=weights, records_only=records)


@pytest.mark.parametrize("request_", [PruneRequest(keep=("9",)), WEIGHTS_ONLY])
def test_what_cannot_be_done_to_one_is_done_to_none(tmp_path: Path, request_: PruneRequest) -> None:
    made = [sealed(tmp_path), sealed(tmp_path, "two")]
    request = made[1].path / "request.json"
    request.write_text(request.read_text().replace('"train"', '"python"'))
    with pytest.raises(Refused, match="nothing was pruned"):
        prune.plan([str(one.path) for one in made], request_)
    assert all(checkpoint.ids(one.checkpoints) == [0, 1, 2] for one in made)


def test_averages_of_weights_are_not_thrown_away_with_the_state_of_the_trainer(tmp_path: Path) -> None:
    made = trained_and_ended(tmp_path, averages={"ema": {"decay": 0.9}})
    with pytest.raises(Refused, match="has averages of its weights"):
        prune.plan([str(made.path)], WEIGHTS_ONLY)


def test_weights_alone_predict_and_begin_new_runs_and_do_not_continue(tmp_path: Path) -> None:
    made = trained_and_ended(tmp_path)
    before = roost.open_package(made.path).load_model(device="cpu").state_dict()
    done = pruned(made, WEIGHTS_ONLY)
    assert done.num_bytes > 0 and len(done.pruning.reduced) == len(checkpoint.ids(made.checkpoints)) > 1
    for id in checkpoint.ids(made.checkpoints):
        files = sorted(path.name for path in checkpoint.checkpoint_folder(made.checkpoints, id).iterdir())
        assert files == ["MANIFEST.json", "model.json", "model.safetensors"]
    assert bad(made) == []
    after = roost.open_package(made.path).load_model(device="cpu").state_dict()
    assert before.keys() == after.keys() and all(bool((before[key] == after[key]).all()) for key in before)
    assert package_weights.read(made.path).weights
    for begin in (
        lambda: continue_(ContinueRequest(package=made.path)),
        lambda: fork(ForkRequest(package=made.path, overrides=["max_epochs=9"])),
    ):
        with pytest.raises(Refused, match=r"weights only.*init_from="):
            begin()


def test_a_pruning_that_was_cut_off_is_explained_and_then_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from roost.base import durable

    made = sealed(tmp_path)

    def cut(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith("state_1.ckpt"):
            raise KeyboardInterrupt

    monkeypatch.setattr(durable, "fault", cut)
    with pytest.raises(KeyboardInterrupt):
        pruned(made, RECORDS_ONLY)
    monkeypatch.setattr(durable, "fault", None)
    assert checkpoint.ids(made.checkpoints) == [1, 2] and bad(made) == []
    (said,) = findings(made, "pruned")
    assert "interrupted" in said.reason
    pruned(made, RECORDS_ONLY)
    assert checkpoint.ids(made.checkpoints) == [] and bad(made) == []
    assert not any("interrupted" in one.reason for one in findings(made, "pruned"))


def test_a_package_in_use_is_refused(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="running")
    with pytest.raises(RoostError, match="is running"):
        prune.plan([str(made.path)], RECORDS_ONLY)


def test_a_session_that_fails_before_it_saves_changes_nothing_about_it(tmp_path: Path) -> None:
    made = sealed(tmp_path, state="stopped")
    pruned(made, PruneRequest(keep=("last",)))
    session(made, "failed")
    session_seal.write(session_seal.seal_path(made.path, 2))
    assert bad(made) == []
    add_checkpoint(made, 3, {"step": 40, "epoch": 4})
    (made.checkpoints / "state_3.ckpt" / "MANIFEST.json").unlink()
    assert [one.path for one in bad(made)] == ["Checkpoints/state_3.ckpt"]


@pytest.mark.parametrize("name", ["../../precious", "/precious", "Checkpoints", "Checkpoints/../../one"])
def test_a_record_of_prunings_from_elsewhere_removes_nothing_outside(tmp_path: Path, name: str) -> None:
    made = package(tmp_path / "runs", checkpoints=False)
    precious = tmp_path / "precious"
    precious.mkdir()
    entry = {"time": 1.8e9, "rule": "--keep last", "session": 1}
    for part in ("removed", "reduced"):
        body = {"format": 1, "prunings": [{**entry, part: {name.replace("/precious", str(precious)): ""}}]}
        (made.path / "_pruned.json").write_bytes(seal.encode(body))
        with pytest.raises(RoostError, match="names what is no checkpoint"):
            pruned(made, BEST_AND_LAST)
        with pytest.raises(RoostError, match="names what is no checkpoint"):
            pruning.finish_interrupted(made)
        assert precious.is_dir() and made.checkpoints.is_dir()
        assert [one.path for one in bad(made)] == ["_pruned.json"]


@pytest.mark.parametrize("request_", [BEST_AND_LAST, WEIGHTS_ONLY, RECORDS_ONLY])
def test_checkpoints_of_another_package_are_not_pruned_through_a_link(
    tmp_path: Path, request_: PruneRequest
) -> None:
    other, made = package(tmp_path / "runs", "other"), package(tmp_path / "runs", checkpoints=False)
    made.checkpoints.rmdir()
    made.checkpoints.symlink_to(other.checkpoints)
    with pytest.raises(Refused, match=r"Checkpoints is a link to .*other"):
        pruned(made, request_)
    made.checkpoints.unlink()
    made.checkpoints.mkdir()
    (made.checkpoints / "state_0.ckpt").symlink_to(other.checkpoints / "state_0.ckpt")
    with pytest.raises(Refused, match=r"state_0.ckpt is a link to .*other"):
        pruned(made, request_)
    assert checkpoint.ids(other.checkpoints) == [0, 1, 2]


def test_a_second_pruning_that_was_cut_off_at_once_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from roost.base import durable

    made = sealed(tmp_path)
    pruned(made, PruneRequest(keep=("0",)))

    def cut(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith("_package.json"):
            raise KeyboardInterrupt

    monkeypatch.setattr(durable, "fault", cut)
    with pytest.raises(KeyboardInterrupt):
        pruned(made, RECORDS_ONLY)
    monkeypatch.setattr(durable, "fault", None)
    assert checkpoint.ids(made.checkpoints) == [0, 2] and bad(made) == []
