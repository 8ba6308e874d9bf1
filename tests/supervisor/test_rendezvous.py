from __future__ import annotations

import secrets
import socket
from pathlib import Path

import pytest

from roost.base.system.worker_protocol import RENDEZVOUS_VARIABLE
from roost.supervisor import rendezvous


def test_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = secrets.token_hex(16)
    made = rendezvous.create_folder(token)
    place = Path(made[RENDEZVOUS_VARIABLE])
    assert place.parent.stat().st_mode & 0o777 == 0o700
    with socket.socket() as found:
        found.bind((made["MASTER_ADDR"], int(made["MASTER_PORT"])))
    with pytest.raises(FileExistsError):
        rendezvous.create_folder(token)
    place.touch()
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # as the process that continues it may have
    monkeypatch.setattr("tempfile.tempdir", None)
    rendezvous.remove_folder(token)
    rendezvous.remove_folder(token)
    assert not place.parent.exists()
