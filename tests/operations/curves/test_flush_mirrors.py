"""What mirrors of ended runs lack is sent without a session."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest

from roost.operations.curves.flush_mirrors import MirrorState, flush_mirrors, list_mirrors
from roost.package.package import PackageFolder
from roost.package.records import RecordsWriter
from tests.operations import packages
from tests.train.mirrors.recorded import folded, narrow, scalars, table


def mirrored(folder: Path, name: str = "one", state: str = "succeeded", **kinds: Any) -> PackageFolder:
    values = {**(packages.VALUES if state == "succeeded" else packages.UNFINISHED), "mirrors": kinds}
    return packages.package(folder / "runs", name, state=state, values=values, checkpoints=False)


def states(found: list[MirrorState]) -> dict[str, str]:
    return {one.kind: one.state for one in found}


def test_files_get_what_they_lack_once(tmp_path: Path) -> None:
    package = mirrored(tmp_path, csv=True, tensorboard=True)
    word = [str(package.path)]
    assert states(list(list_mirrors(word))) == {"csv": "incomplete", "tensorboard": "incomplete"}
    sent = list(flush_mirrors(word))
    assert [(one.state, one.rows, one.error) for one in sent] == [("complete", 3, None)] * 2
    assert table(package.path / "metrics.csv") == folded(package.path)
    assert scalars(package.path / "tensorboard") == narrow(folded(package.path))
    files = sorted((package.path / "tensorboard").iterdir())
    assert [(one.state, one.rows) for one in flush_mirrors(word)] == [("complete", 0)] * 2
    assert sorted((package.path / "tensorboard").iterdir()) == files, "a complete mirror is left alone"


def test_later_records_make_it_incomplete_again(tmp_path: Path) -> None:
    package = mirrored(tmp_path, csv=True)
    list(flush_mirrors([str(package.path)]))
    number = packages.session(package, "stopped")
    writer = RecordsWriter(package.path / f"records/{number}.jsonl", session=number, start_step=30)
    writer.row(40, 4, {"train/loss": 0.25})
    writer.close()
    assert states(list(list_mirrors([str(package.path)]))) == {"csv": "incomplete"}
    assert states(list(flush_mirrors([str(package.path)]))) == {"csv": "complete"}
    assert [step for step, _ in table(package.path / "metrics.csv")][-1] == 40


def test_a_running_session_sends_by_its_own_mirrors(tmp_path: Path) -> None:
    package = mirrored(tmp_path, state="running", csv=True)
    assert states(list(flush_mirrors([str(package.path)]))) == {"csv": "running"}
    assert not (package.path / "metrics.csv").exists()


def test_a_process_that_still_writes_it_is_named(tmp_path: Path) -> None:
    package = mirrored(tmp_path, csv=True)
    (package.path / "mirrors").mkdir()
    with (package.path / "mirrors" / "csv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = list(flush_mirrors([str(package.path)]))
    assert states(found) == {"csv": "incomplete"} and "another process" in str(found[0].error)
    assert states(list(flush_mirrors([str(package.path)]))) == {"csv": "complete"}


def test_a_mirror_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    package = mirrored(tmp_path, csv=True)
    found = list(flush_mirrors([str(package.path)], timeout_seconds=0.001))
    assert states(found) == {"csv": "incomplete"} and "0.001 s" in str(found[0].error)


def test_a_package_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    broken, good = mirrored(tmp_path, "broken", csv=True), mirrored(tmp_path, "good", csv=True)
    args = broken.path / "args.json"
    args.write_text(json.dumps({**json.loads(args.read_text()), "mirrors": {"csv": 3}}))
    found = list(flush_mirrors([str(broken.path), str(good.path)]))
    assert [one.state for one in found] == ["unknown", "complete"] and found[0].error


@pytest.mark.parametrize("words", [[], ["runs"]])
def test_packages_without_mirrors_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    mirrored(tmp_path)
    for kind in ("command", "import"):
        PackageFolder.create(tmp_path / "runs", name=kind, values={}, request={"kind": kind})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "state"))  # neither knows folders of other tests
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert list(list_mirrors(words)) == []
