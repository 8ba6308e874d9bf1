"""What a session tells of the memory that it took."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roost.devices.card import TYPICAL_CONTEXT_MB
from roost.lab.memory import memory_use
from roost.lab.memory.memory_prediction import OutOfMemory
from roost.lab.memory.memory_use import MemoryUse
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.session_folder import SessionFolder
from roost.package.session_schema import SessionRecord, SessionRequest
from roost.package.sessions import Session
from tests.lab.queued import card

MEMORY = {"peak_mb": 5000.0, "allocated_mb": 4800.0, "driver_mb": 400.0, "others_mb": 0.0, "ooms": 0.0}


def session_of(request: dict[str, Any], record: dict[str, Any] | None) -> Session:
    found = SessionRecord.from_json(record) if record is not None else None
    return Session(1, SessionRequest.from_json(request), found)


def ended(
    state: str = "succeeded", *, reason: str = "finished", reserved_mb: object = None, **told: Any
) -> Session:
    seconds = told.pop("seconds", 5.0)
    record = {"state": state, "reason": reason, "seconds": seconds, "memory": {**MEMORY, **told}}
    request = {**memory_use.card_fields([card(0), card(1, 16_000)]), "reserved_mb": reserved_mb}
    return session_of(request, record)


def test_the_request_tells_of_the_smallest_card() -> None:
    assert memory_use.card_fields([card(0), card(1, 16_000)]) == {"card_model": "test", "card_mb": 16_000}
    assert memory_use.card_fields([]) == {}


def test_what_it_took_and_whether_others_take_as_much() -> None:
    assert memory_use.session_memory_use(ended()) == MemoryUse(5000.0, 400.0, "test", True)
    other = memory_use.session_memory_use(ended(driver_mb=None))
    assert other is not None and other.driver_mb == TYPICAL_CONTEXT_MB

    def is_representative(*given: Any, **told: Any) -> bool:
        found = memory_use.session_memory_use(ended(*given, **told))
        return found is not None and found.is_representative

    assert is_representative("stopped", seconds=601)
    assert not is_representative("stopped", seconds=9)
    assert (
        not is_representative("failed")
        and not is_representative(ooms=1.0)
        and not is_representative(peak_mb=0.0)
    )
    for nonsense in (float("nan"), float("inf"), 10**400, -1.0):
        assert not is_representative(peak_mb=nonsense), "the queue could not hold it"


def test_how_it_ran_out() -> None:
    found = memory_use.session_memory_use(
        ended("failed", reason="oom_gpu", reserved_mb=6000, asked_mb=900.0, others_mb=255.0)
    )
    assert found is not None and not found.is_representative
    assert found.ran_out == OutOfMemory(6000, 16_000, 16_000, 5400.0, asked_mb=900.0, alone=True)
    found = memory_use.session_memory_use(ended("failed", reason="oom_gpu", others_mb=256.0))
    assert found is not None and found.ran_out == OutOfMemory(None, 16_000, 16_000, 5400.0, alone=False)


def test_what_tasks_may_have_here_is_asked_after_it_ran_out_alone() -> None:
    found = memory_use.with_card_capacities(
        memory_use.session_memory_use(ended("failed", reason="oom_gpu")), lambda mb: (mb - 1000, 79_000)
    )
    assert found is not None and found.ran_out is not None
    assert (found.ran_out.card_mb, found.ran_out.largest_mb) == (15_000, 79_000)
    for other in (memory_use.session_memory_use(ended()), None):
        assert memory_use.with_card_capacities(other, lambda mb: pytest.fail("it was asked")) == other


@pytest.mark.parametrize("session", [session_of({}, None), session_of({}, {"memory": MEMORY})], ids=str)
def test_who_did_not_tell(session: Session) -> None:
    assert memory_use.session_memory_use(session) is None


def attempt(package: PackageFolder, record: dict[str, Any] | None, **request: Any) -> int:
    number = package.new_session({"task": "t", **memory_use.card_fields([card()]), **request})
    if record is not None:
        (package.path / "sessions" / f"{number}.json").write_text(json.dumps(record))
    return number


def test_attempts_in_vain_are_those_in_a_row_that_nobody_could_help_and_that_saved_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = {"state": "running", "pid": 1, "host": "elsewhere"}
    package = PackageFolder.create(tmp_path, name="p", values={})
    saved: list[checkpoint.Manifest] = []
    monkeypatch.setattr(checkpoint, "read_manifests", lambda folder: saved)
    assert memory_use.count_lost_in_a_row(package, "t") == 0
    attempt(package, gone)
    attempt(package, {"state": "failed", "reason": "exception"})
    assert memory_use.count_lost_in_a_row(package, "t") == 0
    for _ in range(2):
        attempt(package, gone)
    assert (
        memory_use.count_lost_in_a_row(package, "t") == 2
        and memory_use.count_lost_in_a_row(package, "other") == 0
    )
    out = {"state": "failed", "reason": "oom_gpu", "memory": {**MEMORY, "others_mb": 9e3, "asked_mb": 9.0}}
    attempt(package, out, reserved_mb=9000)
    assert memory_use.count_lost_in_a_row(package, "t") == 3
    saved.append(checkpoint.Manifest(id=0, step=3, epoch=0, batch=0, session=4))
    assert memory_use.count_lost_in_a_row(package, "t") == 1
    attempt(package, out, reserved_mb=5400)
    assert memory_use.count_lost_in_a_row(package, "t") == 0


def test_attempts_of_an_analyzer_count_anew_after_a_script_that_succeeded(tmp_path: Path) -> None:
    package = PackageFolder.create(tmp_path, name="p", values={})
    folder = SessionFolder(package.path / "analyzers" / "1", package.path)
    folder.session_files.mkdir(parents=True)

    def attempt(number: int, started: float | None) -> None:
        request = folder.session_files / f"{number}.request.json"
        request.write_text(json.dumps({"task": "t"}))
        if started is not None:
            gone = {"state": "running", "pid": 1, "host": "elsewhere", "started": started}
            (folder.session_files / f"{number}.json").write_text(json.dumps(gone))

    def call(number: int, state: str, started: float, *, analyzer: int | None = 1) -> None:
        place = package.path / "analysis" / str(number)
        place.mkdir(parents=True)
        request = {"kind": "analyze", "script": {"path": "/s.py"}, "analyzer": analyzer}
        (place / "request.json").write_text(json.dumps(request))
        record = {"state": state, "started": started, "ended": started + 1}
        (place / "session.json").write_text(json.dumps(record))

    attempt(1, 100.0)
    attempt(2, 200.0)
    attempt(3, 300.0)
    call(1, "succeeded", 50.0)
    call(2, "crashed", 310.0)
    call(3, "succeeded", 311.0, analyzer=2)
    call(4, "succeeded", 311.0, analyzer=None)
    assert memory_use.count_lost_in_a_row(folder, "t") == 3
    call(5, "succeeded", 210.0)
    assert memory_use.count_lost_in_a_row(folder, "t") == 1
    attempt(4, None)
    assert memory_use.count_lost_in_a_row(folder, "t") == 2
    call(6, "succeeded", 400.0)
    assert memory_use.count_lost_in_a_row(folder, "t") == 1
