"""`roost fork`, and the commands that show it afterwards."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from roost.package.package import PackageFolder
from tests.cli.programs import roost
from tests.operations.packages import package, project


@pytest.mark.timeout(120)
def test_it_is_shown(tmp_path: Path) -> None:
    config = project(tmp_path / "p", max_epochs="2", checkpoint="{every: 1ep, fast: 9}", test_at_end="none")
    assert roost("run", config, "--name", "a").returncode == 0
    runs = tmp_path / "p" / "runs"
    steps = [info.step for info in PackageFolder.open(runs / "a").store().lineage()]
    said = roost("fork", "runs/a", "--at", steps[0], "--name", "b", "max_epochs=3", cwd=runs.parent)
    assert said.returncode == 0 and f"step {steps[0]} (checkpoint 0)" in said.stderr, said.stderr
    assert f" step {steps[0]}" in said.stdout
    rows = {row["name"]: row for row in json.loads(roost("ls", runs, "--json").stdout)}
    assert (rows["b"]["parent"], rows["b"]["parent_step"], rows["a"]["parent"]) == ("a", steps[0], None)
    assert f"a@{steps[0]}" in roost("ls", runs).stdout
    shown = json.loads(roost("show", runs / "b", "--json").stdout)
    assert shown["parent"]["package"] == "a" and shown["parent"]["changed"][0]["key"] == "max_epochs"
    assert re.search(rf"^ *forks: b .*step {steps[0]}\b", roost("show", runs / "a").stdout, re.MULTILINE)
    text = roost("show", "runs/b", cwd=runs.parent).stdout
    assert re.search(rf" runs/a .*step {steps[0]} \(checkpoint 0\)", text) and "max_epochs: 2 -> 3" in text
    assert roost("verify", runs / "b").returncode == 0
    assert roost("fork", runs / "a", "--at", steps[0], "--name", "b").returncode == 5


def test_wrong_use_makes_nothing(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    for arguments, code in (
        ((), 2),
        (("max_epochs=3",), 2),
        ((made.path, "--at", 20, "-c", 1), 2),
        ((made.path, "--at", 15), 3),
        ((made.path, "-c", 9), 3),
        ((made.path, "max_epoch=3"), 4),
        ((made.path, "--name", "one"), 5),
    ):
        said = roost("fork", *arguments)
        assert (
            said.returncode == code
            and said.stderr.startswith("error: ")
            and len(said.stderr.splitlines()) == 1
        )
    assert [path.name for path in made.path.parent.iterdir()] == ["one"]
