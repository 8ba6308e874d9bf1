"""`roost tasks`, through the real program."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.cli.commands.tasks import _STATES
from roost.lab.task import SUCCEEDED, Need
from roost.operations.list_tasks import STATES
from tests.cli.programs import Terminal, roost
from tests.lab.labs import Lab
from tests.lab.queued import task


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    with lab.here():
        yield lab


def cells(text: str) -> list[list[str]]:
    return [re.split(r" {2,}", line) for line in text.splitlines()]


def test_what_waits_is_told_with_what_for(lab: Lab) -> None:
    sweep = [
        task(name=f"lr={n}", array="7sweep", need=Need(cards=1), reason="cards: none") for n in (1, 2, 3)
    ]
    gang = task(name="b\x1b[2Jb", need=Need(cards=4, memory_mb=9216), priority=3, reason="memory: too little")
    with lab.store() as store:
        store.submit([*sweep, gang])
        store.move(store.start(store.task(sweep[0].id), [], None), SUCCEEDED)
    said = roost("tasks")
    assert said.returncode == 0 and "\x1b" not in said.stdout
    assert said.stderr == "nobody looks after them: roost lab start\n"
    header, folded, other = cells(said.stdout)
    assert header == ["ID", "NAME", "STATE", "CARDS", "MEMORY", "TIME", "PRIORITY", "REASON"]
    assert folded[:5] == ["7sweep", "lr=… (3 tasks)", "2 pending, 1 succeeded", "1", "whole"]
    assert folded[-1] == "cards: none"
    assert gang.id.startswith(other[0]) and other[2:5] == ["pending", "4", "9.0 GB"]
    assert other[-2:] == ["3", "memory: too little"]
    assert len(cells(roost("tasks", "--each").stdout)) == 5
    assert [row["id"] for row in json.loads(roost("tasks", "--json").stdout)] == [
        one.id for one in (*sweep, gang)
    ]
    assert len(json.loads(roost("tasks", "--state", "succeeded", "--json").stdout)) == 1


def test_a_line_does_not_wrap_on_a_terminal(lab: Lab) -> None:
    with lab.store() as store:
        store.submit([task(name="one", reason="memory: " + "very " * 40)])
    terminal = Terminal("tasks")
    try:
        code, shown = terminal.end()
    finally:
        terminal.kill()
    assert code == 0 and max(map(len, shown.splitlines())) <= 120 and "very …" in shown


def test_nothing_to_tell_of(lab: Lab) -> None:
    assert roost("tasks").stderr == "no tasks\n"
    assert roost("tasks", "--json").stdout == "[]\n"
    assert "--all lists all" in roost("tasks", "--user", "nobody").stderr
    said = roost("tasks", "--state", "odd")
    assert said.returncode == 2 and "'odd' is not one of 'pending'" in said.stderr


def test_the_states_are_those_of_tasks() -> None:
    assert _STATES == STATES
