from __future__ import annotations

import socket
from pathlib import Path

import pytest

from roost.base.handover import MEETING_VARIABLE
from roost.lab import meeting


def test_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = meeting.make("f" * 32)
    place = Path(made[MEETING_VARIABLE])
    assert place.parent.stat().st_mode & 0o777 == 0o700
    with socket.socket() as found:
        found.bind((made["MASTER_ADDR"], int(made["MASTER_PORT"])))
    with pytest.raises(FileExistsError):
        meeting.make("f" * 32)
    place.touch()
    meeting.remove("f" * 32)
    meeting.remove("f" * 32)
    assert list(tmp_path.iterdir()) == []
