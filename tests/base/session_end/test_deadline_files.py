from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from roost.base.session_end import deadline_files
from roost.base.session_end.deadline_files import DeadlineFiles, parse_deadline, paths_of
from tests.messages import Messages

MOMENT = 1_795_271_400.0
ISO = datetime.fromtimestamp(MOMENT, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize(
    "text",
    [
        "1795271400",
        f"{ISO}",
        f'{{"action": "terminate", "time": "{ISO}"}}',
        '{"time": 1795271400}',
        "USEC=1795271400000000\nWARN_WALL=1\nMODE=poweroff\n",
    ],
)
def test_forms_of_a_time(text: str) -> None:
    assert parse_deadline(text) == MOMENT


@pytest.mark.parametrize("text", ["", '{"time": null}', "USEC=1795271400000000\nMODE=dry-reboot\n"])
def test_no_time_yet(text: str) -> None:
    assert parse_deadline(text) is None


@pytest.mark.parametrize("text", ["soon", "{", '{"at": 1}', "MODE=poweroff\nUSEC=\n", "nan", "-5", "1e300"])
def test_something_else(text: str, messages: Messages) -> None:
    with pytest.raises(ValueError) as refused:
        parse_deadline(text)
    messages.check(refused.value)


def test_a_file_appears_changes_and_goes(tmp_path: Path) -> None:
    """What cannot be read is said once, and holds no time; the earliest of several counts."""
    path, other = tmp_path / "end", tmp_path / "other"
    files = DeadlineFiles([str(path), str(other)])
    assert files.earliest() is None
    path.write_text("1795271400")
    assert files.earliest() == (MOMENT, str(path))
    other.write_text("1795271000")
    assert files.earliest() == (1_795_271_000.0, str(other))
    other.unlink()
    assert files.earliest() == (MOMENT, str(path))
    path.write_text("tomorrow")
    assert files.earliest() is None
    (trouble,) = files.new_troubles
    assert str(path) in trouble and "'tomorrow'" in trouble
    assert files.earliest() is None and files.new_troubles == []
    path.unlink()
    path.mkdir()
    assert files.earliest() is None and len(files.new_troubles) == 1


def test_a_file_that_did_not_change_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "end"
    path.write_text("1795271400")
    files = DeadlineFiles([str(path)])
    assert files.earliest() is not None
    monkeypatch.setattr(deadline_files, "read_deadline", None)
    assert files.earliest() == (MOMENT, str(path))


def test_where_systemd_runs_its_shutdown_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline_files, "_SYSTEMD_RUNS", str(tmp_path))
    scheduled = deadline_files.SCHEDULED_SHUTDOWN
    assert paths_of({}) == (scheduled,)
    given = os.pathsep.join(["/a", "/b"])
    assert paths_of({"ROOST_DEADLINE_FILE": given}) == ("/a", "/b", scheduled)
    monkeypatch.setattr(deadline_files, "_SYSTEMD_RUNS", str(tmp_path / "none"))
    assert paths_of({}) == ()
