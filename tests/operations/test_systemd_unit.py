"""The unit is checked by systemd itself; that it runs needs a machine that systemd manages."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from roost.base.errors import Refused
from roost.operations import systemd_unit
from tests.lab.labs import Lab
from tests.messages import Messages

SYSTEMCTL = """#!/bin/sh
echo "$*" >> {log}
"""
"""Notes what it is asked: whether systemd obeys is not roost's matter."""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab, an own home, and a systemctl that agrees to everything; gives what it was asked."""
    log, folder = tmp_path / "calls", tmp_path / "bin"
    folder.mkdir()
    (folder / "systemctl").write_text(SYSTEMCTL.format(log=log))
    (folder / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "st ate"))
    return log


def test_what_is_enabled_is_a_valid_unit_and_can_be_disabled(calls: Path, messages: Messages) -> None:
    found = systemd_unit.enable()
    assert found.file == systemd_unit.unit_file() and found.file.stat().st_mode & 0o022 == 0
    messages.check(found.notes)
    asked = calls.read_text().splitlines()
    assert asked == [
        "--user show-environment", "--user daemon-reload", f"--user enable --now {systemd_unit.NAME}"
    ]  # fmt: skip
    assert systemd_unit.enable().file == found.file, "again"
    assert systemd_unit.disable() == found.file and not found.file.exists()
    assert systemd_unit.disable() is None


@pytest.mark.needs_program("systemd-analyze")
def test_systemd_finds_no_fault_in_it(calls: Path) -> None:
    file = systemd_unit.enable().file
    done = subprocess.run(
        ["systemd-analyze", "--user", "--man=no", "verify", str(file)],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(calls.parent)},
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_its_commands_start_and_stop_the_daemon_of_this_lab(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    with lab.here():
        lines = dict(line.partition("=")[::2] for line in systemd_unit.unit_text().splitlines())
    environment = {name: value for name, value in os.environ.items() if name != "ROOST_STATE"}
    try:
        for step, runs in (("ExecStart", True), ("ExecStop", False)):
            script = f"export {lines['Environment']}; {lines[step]}"
            subprocess.run(["sh", "-c", script], env=environment, check=True)
            assert (lab.state / "daemon.json").exists() and (lab.state / "daemon.stopped").exists() != runs
    finally:
        lab.close()


def test_the_unit_of_another_lab_is_not_replaced(
    calls: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, messages: Messages
) -> None:
    systemd_unit.enable()
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "other"))
    with pytest.raises(Refused) as refused:
        systemd_unit.enable()
    messages.check(refused.value)


def test_where_systemd_is_missing_or_does_not_manage_this_user(
    calls: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, messages: Messages
) -> None:
    (tmp_path / "bin" / "systemctl").write_text("#!/bin/sh\necho no bus >&2; exit 1\n")
    with pytest.raises(Refused, match="crontab") as refused:
        systemd_unit.enable()
    assert "no bus" in str(refused.value)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused, match="crontab") as refused:
        systemd_unit.disable()
    assert refused.value.message == "this machine has no systemd"
