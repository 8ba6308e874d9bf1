from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from roost.base.errors import TrainingError
from roost.base.exception_record import record_exception
from roost.worker.causes import cause_table
from roost.worker.causes.cause import Cause, FailureContext, gib, rule_by_text
from tests.messages import Messages
from tests.project.dlnest.projects import package as dlnest_package
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


def test_of_dlnests_contract_only_the_section_of_roost_is_settings(tmp_path: Path) -> None:
    """Its other keys are the user's, also if they are called as settings of roost."""
    own = {"data": {"batch_size": 1}, "determinism": "strict", "precision": "bf16"}
    package = dlnest_package(tmp_path, roost={"determinism": "seeded"}, **own)
    scene = FailureContext(package.path)
    assert scene.is_dlnest and scene.settings == {"determinism": "seeded"}
    assert scene.key("determinism") == "roost.determinism"
    native = FailureContext(project(tmp_path / "native").path)
    assert not native.is_dlnest and native.key("determinism") == "determinism"
    assert FailureContext().key("determinism") == "determinism"


def test_advice_names_no_setting_that_dlnests_contract_has_not(tmp_path: Path, messages: Messages) -> None:
    own = {"data": {"batch_size": 1}, "precision": "bf16", "determinism": "strict"}
    package = dlnest_package(tmp_path, roost={"determinism": "seeded"}, **own)
    scene = FailureContext(package.path)
    memory = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.95 GiB.")
    refused = RuntimeError(
        "put_ does not have a deterministic implementation, but you set "
        "'torch.use_deterministic_algorithms(True)'. You can turn off determinism"
    )
    one = ValueError("Expected more than 1 value per channel when training, got input size [1, 8]")
    for error, advice in (
        (memory, "use smaller batches; or roost.precision: bf16"),
        (refused, "or remove torch.use_deterministic_algorithms(True)"),
        (one, "drop_last=True"),
        (TrainingError("the parameters are not finite: model.weight"), "a smaller learning rate, or check"),
    ):
        found = cause_table.find(record_exception(error), scene)
        assert found is not None and advice in found.fix, (error, found)
        assert not re.search(r"data\.|gradient_acc|max_grad_norm|on_non_finite|roost debug", found.fix)
        messages.check(f"{found.description}; {found.fix}")
