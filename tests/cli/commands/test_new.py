"""`roost new`, through the real program."""

from __future__ import annotations

from pathlib import Path

import pytest

import roost as roost_package
from roost.operations.lifecycle.new_project import TEMPLATES
from tests.cli.programs import roost
from tests.messages import Messages


def test_help_names_each_template() -> None:
    said = " ".join(roost("new", "--help").stdout.split())
    assert all(f"{name}: {words}" in said for name, words in TEMPLATES.items())


@pytest.mark.parametrize(
    ("arguments", "mark"),
    [
        (["p"], "digits"),
        (["-d", "p"], "digits"),
        (["p", "-t", "clean"], "clean"),
        (["p", "-t", "mnist"], "mnist"),
        (["-d", "p", "-MNIST"], "mnist"),
        (["p", "-MNIST", "-t", "mnist"], "mnist"),
    ],
)
def test_ways_to_say_it(tmp_path: Path, arguments: list[str], mark: str) -> None:
    said = roost("new", *arguments, cwd=tmp_path)
    assert said.returncode == 0 and said.stderr == ""
    project = tmp_path / "p"
    made_from = Path(roost_package.__file__).parent / "templates" / mark
    assert (project / "config.yaml").read_text() == (made_from / "config.yaml").read_text()
    commands = "  cd p\n  roost check config.yaml\n  roost run -c config.yaml\n  roost analyze "
    where, found, _ = said.stdout.partition(commands)
    folder, *lines, _ = where.splitlines()
    assert folder == "p/" and found
    assert {line.split()[0] for line in lines} == {
        f"{path.name}/" if path.is_dir() else path.name for path in project.iterdir()
    }
    assert any(
        line.split() == ["Dataset/", *sorted(p.name for p in (project / "Dataset").iterdir())]
        for line in lines
    )
    assert all(len(line) < 90 for line in lines)


def test_a_project_of_dlnest_begins_with_its_own_config(tmp_path: Path) -> None:
    said = roost("new", "p", "-t", "dlnest", cwd=tmp_path)
    assert said.returncode == 0 and said.stderr == ""
    assert "  roost run -c root_config.json\n  roost analyze Saves/NAME -s test\n" in said.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["p", "-MNIST", "-t", "digits"], "-MNIST"),
        (["p", "-d", "q"], "'p, q'"),
    ],
)
def test_contradictions_are_refused(
    tmp_path: Path, arguments: list[str], says: str, messages: Messages
) -> None:
    said = roost("new", *arguments, cwd=tmp_path)
    assert said.returncode == 2 and says in said.stderr and list(tmp_path.iterdir()) == []
    messages.check(said.stderr)


def test_plugins_are_not_added(tmp_path: Path, messages: Messages) -> None:
    said = roost("new", "p", "-t", "dlnest", "-p", "LogInit", "-p", "mine", cwd=tmp_path)
    assert said.returncode != 0 and list(tmp_path.iterdir()) == []
    messages.check(said.stderr)
