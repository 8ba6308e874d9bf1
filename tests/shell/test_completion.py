"""Completion: what may stand at the end of a line, in a real lab."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roost.shell import local_connection, server_connection
from roost.shell.completion import VerbCompletion
from roost.shell.lab_connection import LabConnection
from roost.shell.verbs import VERBS
from tests.serve.servers import Server


def completed(connection: LabConnection, line: str) -> list[str]:
    """Returns the whole lines that a completion makes."""
    return [line[: one.start] + one.text for one in VerbCompletion(connection).complete(line)]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("root_config.json", "my config.json", "notes.txt", ".hidden.json", "a.py"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "Saves" / "one two").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_verbs_are_completed(connection: LabConnection) -> None:
    assert completed(connection, "") == [verb.name for verb in VERBS]
    assert completed(connection, "showD") == ["showDevices", "showDL"]
    assert completed(connection, "runexp") == ["runExp"]
    assert completed(connection, "help wi") == ["help withdraw"]
    assert completed(connection, "nothing ") == []


def test_options_are_completed_once(connection: LabConnection) -> None:
    assert completed(connection, "run -c a -DD") == ["run -c a -DDP"]
    found = completed(connection, "run -c a -CPU ")
    assert "run -c a -CPU -f" in found
    assert not any(line.endswith((" -c", "-CPU -CPU")) for line in found)
    assert completed(connection, "run -c a '-D") == []
    assert "run -c a -d some words -CPU" in completed(connection, "run -c a -d some words -C")


def test_paths_are_completed_by_what_an_option_takes(connection: LabConnection, files: Path) -> None:
    if not connection.has_own_files:
        pytest.skip("the server has files of its own")
    assert completed(connection, "run -c ") == [
        "run -c Saves/",
        'run -c "my config.json"',
        "run -c root_config.json",
    ]
    assert completed(connection, 'run -c "my') == ['run -c "my config.json"']
    assert completed(connection, "run -c .h") == ["run -c .hidden.json"]
    assert completed(connection, "continue -r Sa") == ["continue -r Saves/"]
    assert completed(connection, "continue -r Saves/") == ['continue -r "Saves/one two/']
    assert completed(connection, "analyze -r p -s a") == ["analyze -r p -s a.py"]
    assert completed(connection, "run -c nowhere/") == []
    assert completed(connection, f"run -c {files}/root") == [f"run -c {files}/root_config.json"]


def test_a_lab_elsewhere_has_no_paths(server: Server, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_SERVER_TOKEN", server.token)
    away = server_connection.connect(url=f"http://localhost:{server.about.port}")
    assert not away.has_own_files and completed(away, "run -c ro") == []
    away.close()


def test_tasks_cards_and_words_are_completed(connection: LabConnection, server: Server) -> None:
    id = server.lab.submit("sleep 600")
    server.lab.wait_for(id, "running")
    label = server.lab.one(id).label
    (one,) = [one for one in VerbCompletion(connection).complete("del C_") if one.text == label]
    assert one.summary.startswith("running, ")
    assert completed(connection, "watch C_") == []
    server.lab.ask(id, "kill")
    server.lab.wait_for(id)
    assert f"del {label}" not in completed(connection, "del C_")
    assert f"why {label}" in completed(connection, "why C_")
    assert completed(connection, "changeDevices -d 0 ") == [
        f"changeDevices -d 0 {word}" for word in ("0", "1", "all", "-1")
    ]
    assert completed(connection, "analyze -r p -c ") == [
        f"analyze -r p -c {word}" for word in ("last", "best", "untrained")
    ]
    assert "new -t digits" in completed(connection, "new -t d")


def test_a_lab_that_does_not_answer_has_no_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path))
    (tmp_path / "lab").mkdir(mode=0o700)
    (tmp_path / "lab" / "lab.db").write_bytes(b"no database")
    assert completed(local_connection.connect(), "del ") == []
    assert completed(local_connection.connect(), "de") == ["del"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=st.lists(st.sampled_from(
    ["run", "-c", "-d", "-CPU", " ", "'", '"', "\\", "/", "~", "..", "\0", "\ud800", "del", "showAN", "-t"]
)).map("".join))  # fmt: skip
def test_no_line_raises(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "state"))
    for one in VerbCompletion(local_connection.connect()).complete(line):
        assert 0 <= one.start <= len(line)
