from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from roost.base.errors import Refused
from roost.config import layers
from roost.operations.queue import submit
from roost.package.package import PackageFolder
from roost.package.package_draft import TrainingDraft, prepare_training
from tests.messages import Messages
from tests.operations.packages import project


def plans(folder: Path, count: int) -> list[tuple[TrainingDraft, str | None]]:
    files = layers.load_files(project(folder))
    return [(prepare_training(files.config([f"seed={n}"])), f"seed={n}") for n in range(count)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_all_of_them_in_their_order(tmp_path: Path, messages: Messages) -> None:
    heard: list[str] = []
    made = list(submit.create_packages(plans(tmp_path / "p", 20), command=["roost"], report=heard.append))
    assert [package.path.name for package in made] == [f"seed={n}" for n in range(20)]
    assert [package.args["seed"] for package in made] == list(range(20))
    assert made[19].request["command"] == ["roost"] and made[19].changed_files() == []
    assert [re.findall(r"\d+", text) for text in heard] == [[str(n), "20"] for n in range(2, 21)]
    messages.check(heard[-1])


def test_a_taken_name_is_refused_to_one_and_gets_a_suffix_in_a_sweep(
    tmp_path: Path, messages: Messages
) -> None:
    asked = plans(tmp_path / "p", 2)
    for _ in range(2):
        list(submit.create_packages(asked, command=[]))
    assert names(tmp_path / "p" / "runs") == ["seed=0", "seed=0-2", "seed=1", "seed=1-2"]
    with pytest.raises(Refused) as refused:
        list(submit.create_packages(asked[:1], command=[]))
    assert refused.value.setting == "--name"
    assert "'seed=0'" in str(refused.value)
    messages.check(refused.value)
    (unnamed,) = submit.create_packages([(asked[0][0], None)], command=[])
    assert len(names(tmp_path / "p" / "runs")) == 5 and unnamed.changed_files() == []


def test_packages_that_are_not_received_are_removed(tmp_path: Path) -> None:
    packages = submit.create_packages(plans(tmp_path / "p", 20), command=[])
    assert [next(packages).path.name, next(packages).path.name] == ["seed=0", "seed=1"]
    packages.close()
    assert names(tmp_path / "p" / "runs") == ["seed=0", "seed=1"]


def test_one_that_cannot_be_made_takes_those_after_it_along(tmp_path: Path) -> None:
    asked = plans(tmp_path / "p", 20)
    (tmp_path / "file").write_text("")
    asked[2] = (replace(asked[2][0], root=tmp_path / "file" / "runs"), "seed=2")
    made: list[PackageFolder] = []
    with pytest.raises(OSError):
        made.extend(submit.create_packages(asked, command=[]))
    assert names(tmp_path / "p" / "runs") == ["seed=0", "seed=1"]
