from __future__ import annotations

import os
from pathlib import Path

import pytest

from roost.base.errors import Refused
from roost.serve import server_presence
from tests.messages import Messages


def test_the_lock_is_one_servers_until_it_ends(tmp_path: Path, messages: Messages) -> None:
    fd = server_presence.lock(tmp_path)
    with pytest.raises(Refused) as refused:
        server_presence.lock(tmp_path)
    messages.check(refused.value)
    server_presence.write_record(tmp_path, 1234)
    found = server_presence.find_running(tmp_path)
    assert found is not None and found.is_alive and (found.pid, found.port) == (os.getpid(), 1234)
    with pytest.raises(Refused, match=rf"pid {os.getpid()}\b.*port 1234\b") as refused:
        server_presence.lock(tmp_path)
    messages.check(refused.value)
    os.close(fd)
    os.close(server_presence.lock(tmp_path))
