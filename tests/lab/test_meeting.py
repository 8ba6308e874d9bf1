from __future__ import annotations

import secrets
import socket
from pathlib import Path

import pytest

from roost.base.handover import MEETING_VARIABLE
from roost.lab import meeting


def test_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = secrets.token_hex(16)
    made = meeting.make(token)
    place = Path(made[MEETING_VARIABLE])
    assert place.parent.stat().st_mode & 0o777 == 0o700
    with socket.socket() as found:
        found.bind((made["MASTER_ADDR"], int(made["MASTER_PORT"])))
    with pytest.raises(FileExistsError):
        meeting.make(token)
    place.touch()
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # as whoever continues it may have
    monkeypatch.setattr("tempfile.tempdir", None)
    meeting.remove(token)
    meeting.remove(token)
    assert not place.parent.exists()
