from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.exception_record import record_exception
from roost.worker.causes.cause import Cause, FailureContext, gib, rule_by_text
from tests.project.projects import project


def test_a_row_of_a_text() -> None:
    row = rule_by_text("OSError", r"no (\w+) of (\w+)?", "{1} lacks {0}", "get {0}")
    scene = FailureContext()
    assert row(record_exception(FileNotFoundError("no leg of table")), scene) == Cause(
        "table lacks leg", "get leg"
    )
    assert row(record_exception(OSError("no leg of ")), scene) == Cause(" lacks leg", "get leg")
    assert row(record_exception(ValueError("no leg of table")), scene) is None, "another class"
    assert row(record_exception(OSError("there is no leg of table")), scene) is None, (
        "the text begins otherwise"
    )


def test_a_scene_of_a_package(tmp_path: Path) -> None:
    package = project(tmp_path)
    package.new_session({"overrides": ["data.batch_size=3"], "device": "cpu", "project": str(tmp_path)})
    scene = FailureContext(package.path)
    assert scene.settings["data"]["batch_size"] == 3
    assert scene.project == tmp_path and scene.left_out == {} and scene.records.rows == []


@pytest.mark.parametrize("damage", ["request.json", "args.json", "manifest.json"])
def test_a_scene_in_which_all_is_missing(tmp_path: Path, damage: str) -> None:
    empty = FailureContext()
    assert (empty.settings, empty.project, empty.left_out, empty.records.rows) == ({}, None, {}, [])
    package = project(tmp_path)
    (package.path / damage).write_text("{")
    scene = FailureContext(package.path)
    assert isinstance(scene.settings, dict) and scene.left_out == {} and scene.records.rows == []
    assert scene.project in (None, tmp_path)
    gone = FailureContext(tmp_path / "gone")
    assert (gone.settings, gone.project, gone.left_out, gone.records.rows) == ({}, None, {}, [])


def test_sizes() -> None:
    assert [gib(one) for one in (5, 2048, 3 * 2**29, 2**52)] == [
        "5 bytes",
        "2.00 KiB",
        "1.50 GiB",
        "4096.00 TiB",
    ]
