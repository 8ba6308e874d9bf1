"""Whether another machine's session gives signs of life: no clocks of two machines are compared."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import Refused
from roost.base.system import mounts, process_identity
from roost.package.owner import other_owner, owner_file, takeover
from roost.package.owner.other_owner import OwnerLooks, find_other
from tests.package.owner import other_machine
from tests.package.owner.other_machine import LONG_AGO


def session_record(package: Path, number: int, **fields: Any) -> None:
    (package / "sessions" / f"{number}.json").write_text(json.dumps(fields))


def test_a_living_session_elsewhere_is_named(tmp_path: Path) -> None:
    other_machine.write(tmp_path, idle=5)
    found = find_other(tmp_path)
    assert found is not None and not found.is_silent and 4 < found.idle_seconds < 100
    with pytest.raises(Refused) as error:
        takeover.require_no_owner(tmp_path)
    text = str(error.value)
    assert error.value.exit_code == 5
    assert all(part in text for part in ("host far", "session 1", "user ann", "sign of life", "--steal"))
    assert [path.name for path in (tmp_path / "sessions").iterdir()] == ["owner.json"]


def test_what_that_machine_takes_for_the_time_does_not_count(tmp_path: Path) -> None:
    other_machine.write(tmp_path, time=time.time() - 1e6, started=time.time() + 1e6)
    found = find_other(tmp_path)
    assert found is not None and not found.is_silent


def test_a_file_from_the_future_is_no_silence(tmp_path: Path) -> None:
    other_machine.write(tmp_path, idle=-3600)
    with pytest.raises(Refused):
        takeover.require_no_owner(tmp_path)


def test_a_session_that_has_recorded_its_end_owns_nothing(tmp_path: Path) -> None:
    other_machine.write(tmp_path)
    session_record(tmp_path, 1, state="running")
    assert find_other(tmp_path) is not None
    session_record(tmp_path, 1, state="failed", restarted_as=2)
    assert find_other(tmp_path) is not None, "its guard starts the next one"
    session_record(tmp_path, 2, state="succeeded")
    assert find_other(tmp_path) is None


@pytest.mark.parametrize(("kind", "is_other"), [("ext4", False), ("nfs4", True), ("fuse.drive", True)])
def test_another_boot_of_the_same_name_is_this_machine_on_its_own_disk_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, is_other: bool
) -> None:
    monkeypatch.setattr(mounts, "file_system_type", lambda _: kind)
    other_machine.write(tmp_path, host=socket.gethostname())
    assert (find_other(tmp_path) is not None) is is_other
    other_machine.write(tmp_path, boot_id=process_identity.boot_id())
    assert (find_other(tmp_path) is not None) is is_other


def test_on_this_machine_the_lock_decides(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    owner_file.claim(tmp_path, session=1, token="own")
    assert find_other(tmp_path) is None


def test_a_silent_session_is_looked_at_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_owner, "SECOND_LOOK_SECONDS", 0.02)
    path = other_machine.write(tmp_path, idle=LONG_AGO)
    looks, found = OwnerLooks(), find_other(tmp_path)
    assert found is not None and looks.seconds_until_gone(found) > 0
    other_machine.beat(path, idle=LONG_AGO - 10)  # stamped by a clock that is behind
    again = find_other(tmp_path)
    assert again is not None and again.is_silent
    with pytest.raises(Refused):
        looks.seconds_until_gone(again)
    takeover.require_no_owner(tmp_path)  # now without a sign
    line = takeover.take_over(tmp_path, steal=False, token="cd")
    assert line is not None and "no sign of life for 3m" in line
    assert find_other(tmp_path) is None


def test_a_living_session_is_taken_over_on_request_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "STOP_SECONDS", 0.02)
    other_machine.write(tmp_path)
    session_record(tmp_path, 1, state="running")
    with pytest.raises(Refused):
        takeover.take_over(tmp_path, steal=False, token="cd")
    line = takeover.take_over(tmp_path, steal=True, token="cd")
    assert line is not None and "did not confirm" in line
    owner = owner_file.read(owner_file.path_of(tmp_path))
    assert owner is not None and (owner.host, owner.session) == (os.uname().nodename, 2)
