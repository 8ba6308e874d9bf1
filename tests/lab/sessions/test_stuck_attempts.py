from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roost.lab.sessions.stuck_attempts import stuck_text
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder

FAILED = {"state": "failed", "reason": "exception", "step": 40, "saved_step": 30}


@pytest.fixture
def package(tmp_path: Path) -> PackageFolder:
    return PackageFolder.create(tmp_path, name="p", values={})


def attempt(package: PackageFolder, record: dict[str, Any], **request: Any) -> None:
    number = package.new_session({"task": "t", **request})
    (package.path / "sessions" / f"{number}.json").write_text(json.dumps(record))


def test_three_at_the_same_step(package: PackageFolder) -> None:
    attempt(package, FAILED, attempt=1)
    attempt(package, FAILED, attempt=2)
    assert stuck_text(package, "train") is None
    attempt(package, FAILED, attempt=3)
    assert stuck_text(package, "train") == "its last 3 attempts have ended at step 40"
    assert stuck_text(package, "evaluate") is None


def test_with_a_session_that_a_person_began_the_count_begins_again(package: PackageFolder) -> None:
    for number in (1, 2, 3):
        attempt(package, FAILED, attempt=number)
    attempt(package, FAILED)
    attempt(package, FAILED, restart_of=4)
    assert stuck_text(package, "train") is None
    attempt(package, {**FAILED, "state": "stopped", "reason": "time limit"}, command=["roost", "up"])
    assert stuck_text(package, "train") is not None


def test_one_that_was_preempted_had_no_chance(package: PackageFolder) -> None:
    attempt(package, FAILED, attempt=1)
    attempt(package, {**FAILED, "state": "stopped", "reason": "signal"}, attempt=2)
    attempt(package, FAILED, attempt=3)
    assert stuck_text(package, "train") is None


def test_the_checkpoints_of_one_that_could_not_record_its_end_count(
    package: PackageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a power cut: nothing but the checkpoints says how far it got."""
    saved: list[checkpoint.Manifest] = []
    monkeypatch.setattr(checkpoint, "read_manifests", lambda folder: saved)
    gone = {"state": "running", "pid": 1, "host": "elsewhere"}
    for number in (1, 2, 3):
        attempt(package, gone, attempt=number)
    assert stuck_text(package, "train") == "its last 3 attempts have ended without a step on record"
    saved.append(checkpoint.Manifest(id=0, step=30, epoch=0, batch=0, session=3))
    assert stuck_text(package, "train") is None
