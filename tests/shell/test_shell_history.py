"""The file of typed lines: private, bounded, and never in the way."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from roost.shell.shell_history import ShellHistory, history_path


def loaded(path: Path) -> list[str]:
    return list(ShellHistory(path).load_history_strings())


def test_lines_are_kept_newest_first_and_private(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "shell_history"
    history = ShellHistory(path)
    assert loaded(path) == []
    for line in ("showTask", "note T_1 'a\nb'", "ä"):
        history.store_string(line)
    assert loaded(path) == ["ä", "note T_1 'a b'", "showTask"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_long_file_is_cut_at_a_line(tmp_path: Path) -> None:
    path = tmp_path / "shell_history"
    path.write_text("".join(f"run -c {number:060}\n" for number in range(20_000)))
    assert len(loaded(path)) == 20_000
    kept = loaded(path)
    assert len(kept) < 10_000 and kept[0] == f"run -c {19_999:060}" and kept[-1].startswith("run -c ")


def test_a_file_that_cannot_be_used_is_left_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("not ours\n")
    link = tmp_path / "link"
    link.symlink_to(elsewhere)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (tmp_path, link, fifo):
        ShellHistory(path).store_string("showTask")
    assert elsewhere.read_text() == "not ours\n"


def test_it_is_in_the_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ROOST_STATE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert history_path() == tmp_path / "roost" / "shell_history"
