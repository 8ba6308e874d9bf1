"""Following what runs by its files alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from roost.base.errors import Refused
from roost.operations.continue_ import ContinueRequest, continue_
from roost.operations.run import RunRequest, run
from roost.operations.running import Running, ask, follow, newest
from roost.operations.starting import Started
from roost.package.sessions import Session
from tests.operations.packages import package, project


def followed(started: Started) -> tuple[Running, bytes, Session]:
    """All that it prints until it ends; it is asked to stop once it says the word ``epoch``, if endless."""
    assert started.running is not None and started.process is not None
    place, shown = started.running, b""
    for event in follow(place):
        if isinstance(event, Session):
            started.process.wait(10)
            return place, shown, event
        shown += event
        if b"epoch" in event and place.session().request["description"] == "endless":
            ask(place.session())
    raise AssertionError


def test_follows_to_the_end_and_from_an_offset(tmp_path: Path) -> None:
    place, first, ended = followed(run(RunRequest(config=project(tmp_path / "p", max_epochs="2"))))
    assert ended.state == "succeeded"
    assert first == place.output.read_bytes() and b"epoch 2/2" in first
    again = continue_(ContinueRequest(package=place.package, overrides=["max_epochs=3"]))
    place, second, ended = followed(again)
    assert (place.number, ended.state) == (2, "succeeded")
    assert second and first + second == place.output.read_bytes()


def test_asks_and_hears_of_the_end(tmp_path: Path) -> None:
    config = project(tmp_path / "p", max_epochs="1000000", validate_every="1000")
    _, _, ended = followed(run(RunRequest(config=config, description="endless")))
    assert ended.state == "stopped" and ended.record is not None
    assert ended.record["exit_code"] == 75


def test_one_that_dies_without_a_word_reads_as_crashed(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="running", pid=os.getpid(), start_ticks=1)
    found = newest(made)
    assert found is not None and found.state == "crashed"
    place = Running(
        made.path,
        1,
        request=made.path / "sessions" / "1.request.json",
        record=made.path / "sessions" / "1.json",
        output=made.output,
    )
    *_, ended = follow(place)
    assert isinstance(ended, Session) and ended.state == "crashed"


def test_another_machine_is_not_asked(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="running", host="elsewhere")
    with pytest.raises(Refused, match="elsewhere"):
        ask(made.sessions()[-1])
