from __future__ import annotations

import json
from pathlib import Path

import pytest

from roost.base.errors import Refused
from roost.package.kinds import TASK_KINDS, PackageKind, TaskKind, task_label
from roost.package.package import PackageFolder
from roost.package.project_preflight import require_runner


def test_words_in_files_are_plain_texts() -> None:
    assert json.loads(json.dumps([PackageKind.TRAIN, TaskKind.DATA_REPORT])) == ["train", "data"]


@pytest.mark.parametrize("request_", [{}, {"kind": None}, {"kind": []}, {"kind": "of a later version"}])
def test_a_package_of_no_known_kind_is_taken_for_a_training(request_: dict[str, object]) -> None:
    assert PackageKind.of(request_) is PackageKind.TRAIN


def test_a_program_has_no_runner(tmp_path: Path) -> None:
    made = PackageFolder.create(tmp_path, values={}, request={"kind": PackageKind.COMMAND})
    with pytest.raises(Refused):
        require_runner(made)


def test_what_trains_by_sessions_of_roost() -> None:
    assert [kind for kind in PackageKind if kind.trains] == [PackageKind.TRAIN, PackageKind.DLNEST]


def test_requests_of_older_packages_are_understood() -> None:
    found = [TaskKind.of({"kind": word}) for word in ("analysis", "prediction", "export")]
    assert found == [TaskKind.ANALYZE, TaskKind.PREDICT, TaskKind.EXPORT]
    assert TaskKind.of({}) is TaskKind.of({"kind": "else"}) is TaskKind.ANALYZE


def test_the_kinds_of_the_lab_have_labels_and_places() -> None:
    letters = [traits.letter for traits in TASK_KINDS.values()]
    assert len(set(letters)) == len(letters)
    found = {kind: (traits.folder, traits.locks_package) for kind, traits in TASK_KINDS.items()}
    assert found == {
        "train": (None, True),
        "command": (None, True),
        "analyze": ("analyzers", False),
        "predict": ("predictions", False),
        "evaluate": ("evaluations", False),
    }
    assert task_label("predict", 15) == "P_15"
    for other in ("export", "of a later version"):
        with pytest.raises(ValueError, match=other):
            task_label(other, 1)
