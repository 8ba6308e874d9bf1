from __future__ import annotations

import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from roost.base.errors import Refused
from roost.serve import presence
from roost.serve.presence import ABOUT, LOCK, About


def test_the_lock_is_one_servers_until_it_ends(tmp_path: Path) -> None:
    fd = presence.lock(tmp_path)
    (tmp_path / ABOUT).write_bytes(msgspec.json.encode(About.own(1234)))
    with pytest.raises(Refused, match=rf"runs already \(pid {os.getpid()}, port 1234\)"):
        presence.lock(tmp_path)
    os.close(fd)
    os.close(presence.lock(tmp_path))


def test_a_link_in_the_locks_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("mine")
    (tmp_path / LOCK).symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"):
        presence.lock(tmp_path)
    assert (tmp_path / "other").read_text() == "mine"


def test_who_has_ended_is_not_there(tmp_path: Path) -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    found = msgspec.structs.replace(About.own(1), pid=child.pid)
    (tmp_path / ABOUT).write_bytes(msgspec.json.encode(found))
    assert presence.about(tmp_path) is None


def test_another_process_of_the_same_number_is_not_the_server(tmp_path: Path) -> None:
    own = About.own(1)
    for other in ({"start_ticks": (own.start_ticks or 0) + 1}, {"boot_id": "another boot"}):
        (tmp_path / ABOUT).write_bytes(msgspec.json.encode(msgspec.structs.replace(own, **other)))
        assert presence.about(tmp_path) is None
    (tmp_path / ABOUT).write_bytes(msgspec.json.encode(own))
    assert presence.about(tmp_path) == own


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"pid": "x"}', b"\xff"])
def test_a_damaged_file_tells_of_nobody(tmp_path: Path, content: bytes) -> None:
    assert presence.about(tmp_path) is None
    (tmp_path / ABOUT).write_bytes(content)
    assert presence.about(tmp_path) is None
