"""The whole examination: a check that fails is a line; what is examined besides the machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.base.errors import NotFound
from roost.operations import work_progress
from roost.operations.doctor.diagnosis import Diagnosis, DoctorCheck, DoctorSubject, ok, problem
from roost.operations.doctor.doctor_checks import CHECKS
from roost.operations.doctor.examination import examine
from tests.messages import Messages
from tests.operations.packages import package, project


def judge(subject: DoctorSubject) -> Iterator[Diagnosis]:
    yield ok(f"{subject.save_root} {subject.num_workers} {subject.prefetch}")
    yield problem("it is broken", "mend it")


def test_each_line_has_its_check_and_one_that_fails_is_a_line() -> None:
    def fails(subject: DoctorSubject) -> None:
        raise PermissionError(13, "Permission denied", "/proc/1/environ")

    reported: list[tuple[str, int, int]] = []
    checks = [
        DoctorCheck("machine", "one", lambda subject: subject, judge),
        DoctorCheck("lab", "two", fails, judge),
    ]
    with work_progress.shown_by(lambda *what: reported.append(what)):
        found = examine(checks=checks)
    shown = [(line.topic, line.check, line.level) for line in found.lines]
    assert shown == [("machine", "one", "ok"), ("machine", "one", "problem"), ("lab", "two", "warning")]
    assert "Permission denied" in found.lines[-1].found
    assert (found.count("problem"), found.count("warning")) == (1, 1)
    assert [done for _, done, _ in reported] == [0, 1, 2]


def test_a_package_a_config_and_what_is_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.chdir(tmp_path)
    checks = [DoctorCheck("machine", "one", lambda subject: subject, judge)]

    def found(target: object) -> str:
        return examine(str(target), checks=checks).lines[0].found

    values = {"runner": "Model/Runner.py:Runner", "data": {"num_workers": 3, "prefetch": 4}}
    made = package(tmp_path / "runs", values=values)
    assert found(made.path) == f"{tmp_path / 'runs'} 3 4"
    config = project(tmp_path / "project", data="{batch_size: 8, num_workers: 5}")
    assert found(config) == f"{config.parent / 'runs'} 5 2"
    config.write_text("max_epochs: [")
    assert found(config) == f"{tmp_path / 'runs'} 0 2"
    for target in ("no.yaml", "no/package"):
        with pytest.raises(NotFound) as caught:
            found(target)
        messages.check(caught.value)


def test_the_table_has_each_check_once() -> None:
    names = [(check.topic, check.name) for check in CHECKS]
    assert len(set(names)) == len(names)
    topics = [check.topic for check in CHECKS]
    assert topics == sorted(topics, key=topics.index), "checks of one topic follow each other"
