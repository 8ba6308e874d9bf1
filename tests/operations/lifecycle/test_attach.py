"""Finding what runs in a package."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import NotFound, Refused
from roost.operations.lifecycle.attach import attach
from tests.messages import Messages
from tests.operations.packages import package


def test_gives_the_session_that_runs_from_its_last_lines(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="running")
    made.output.write_bytes(b"".join(b"line %d\n" % i for i in range(100)))
    found = attach(made.path, lines=3)
    assert (found.number, found.package, found.session().state) == (1, made.path, "running")
    assert made.output.read_bytes()[found.offset :] == b"line 97\nline 98\nline 99\n"
    assert attach(made.path, lines=0).offset == made.output.stat().st_size


@pytest.mark.parametrize("state", ["new", "succeeded", "failed", "stopped", "crashed"])
def test_what_has_ended_is_one_clear_error(tmp_path: Path, state: str, messages: Messages) -> None:
    made = package(tmp_path / "runs", state=state)
    with pytest.raises(Refused) as caught:
        attach(made.path)
    said = str(caught.value)
    assert state == "new" or ("session 1" in said and state in said)
    assert "roost logs" in said and f"roost continue {made.path}" in said
    messages.check(caught.value)


def test_no_package(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        attach(tmp_path)


def test_a_program_of_python_prints_elsewhere(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs", state="running")
    request = made.path / "sessions" / "1.request.json"
    request.write_text(request.read_text().replace('"kind": "train"', '"kind": "python"'))
    assert made.sessions()[-1].is_python
    with pytest.raises(Refused) as refused:
        attach(made.path)
    assert refused.value.where == made.path
    messages.check(refused.value)
