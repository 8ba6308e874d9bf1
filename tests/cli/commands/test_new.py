"""`roost new`, through the real program."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.operations.new_project import TEMPLATES
from tests.cli.programs import roost


def test_help_names_each_template() -> None:
    said = " ".join(roost("new", "--help").stdout.split())
    assert all(f"{name}: {words}" in said for name, words in TEMPLATES.items())


@pytest.mark.parametrize(
    ("arguments", "mark"),
    [
        (["p"], "scikit-learn"),
        (["-d", "p"], "scikit-learn"),
        (["p", "-t", "clean"], "smallest"),
        (["p", "-t", "mnist"], "MNIST"),
        (["-d", "p", "-MNIST"], "MNIST"),
        (["p", "-MNIST", "-t", "mnist"], "MNIST"),
    ],
)
def test_ways_to_say_it(tmp_path: Path, arguments: list[str], mark: str) -> None:
    said = roost("new", *arguments, cwd=tmp_path)
    assert said.returncode == 0 and said.stderr == ""
    project = tmp_path / "p"
    assert mark in (project / "README.md").read_text() + (project / "config.yaml").read_text()
    where, following = said.stdout.split("next:\n")
    folder, *lines = where.splitlines()
    assert folder == "p/" and following.startswith(
        "  cd p\n  roost check config.yaml\n  roost run -c config.yaml\n  roost analyze "
    )
    assert {line.split()[0] for line in lines} == {
        f"{path.name}/" if path.is_dir() else path.name for path in project.iterdir()
    }
    assert any(
        line.split() == ["Dataset/", *sorted(p.name for p in (project / "Dataset").iterdir())]
        for line in lines
    )
    assert all(len(line) < 90 for line in lines)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["p", "-MNIST", "-t", "digits"], "-MNIST asks for another template"),
        (["p", "-d", "q"], "two folders are named"),
    ],
)
def test_contradictions_are_told(tmp_path: Path, arguments: list[str], says: str) -> None:
    said = roost("new", *arguments, cwd=tmp_path)
    assert said.returncode == 2 and says in said.stderr and list(tmp_path.iterdir()) == []
