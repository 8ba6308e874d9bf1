"""`roost up --at-boot`, with a systemctl and a crontab that keep what they are given; the line is run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from roost.base.errors import Refused
from roost.operations import boot_start, systemd_unit
from tests.messages import Messages

CRONTAB = """#!/bin/sh
case $1 in
-l) [ -e {table} ] || {{ echo "no crontab for me" >&2; exit 1; }}; cat {table};;
-) cat > {table};;
esac
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of programs, without any; ``crontab`` keeps the table in the file beside it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "cat"):
        (folder / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "st ate"))
    return folder


def add_crontab(folder: Path) -> Path:
    table = folder.parent / "table"
    (folder / "crontab").write_text(CRONTAB.format(table=table))
    (folder / "crontab").chmod(0o755)
    return table


def test_by_systemd_where_it_manages_the_user(programs: Path) -> None:
    (programs / "systemctl").write_text(f'#!/bin/sh\necho "$*" >> {programs.parent}/calls\n')
    (programs / "systemctl").chmod(0o755)
    file = systemd_unit.unit_file(boot_start.UP_UNIT)
    assert boot_start.enable().where == str(file)
    assert (programs.parent / "calls").read_text().splitlines()[-1] == "--user enable roost-up.service"
    text = file.read_text()
    assert "roost.cli up --yes" in text and "ExecStop" not in text and "st ate" in text
    assert boot_start.disable() == [str(file)] and not file.exists()
    assert boot_start.disable() == []


def test_by_crontab_elsewhere_and_nothing_else_in_it_changes(programs: Path, messages: Messages) -> None:
    table = add_crontab(programs)
    others = b"MAILTO=me\n0 4 * * * backup /caf\xe9 \x0c\n"  # cron knows no encoding
    table.write_bytes(others)
    found = boot_start.enable()
    messages.check(found.notes[0])
    assert table.read_bytes() == others + f"{found.text}\n".encode()
    assert found.text.startswith("@reboot ROOST_STATE=")
    boot_start.enable()
    assert table.read_bytes() == others + f"{found.text}\n".encode(), "again"
    assert len(boot_start.disable()) == 1
    assert table.read_bytes() == others
    assert boot_start.disable() == []


def test_each_lab_has_its_own_line(programs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = add_crontab(programs)
    boot_start.enable()
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "100%"))
    boot_start.enable()
    assert [line.count("100\\%") for line in table.read_text().splitlines()] == [0, 3]
    assert boot_start.disable() and len(table.read_text().splitlines()) == 1


def test_where_neither_is_it_gives_the_command(programs: Path, messages: Messages) -> None:
    with pytest.raises(Refused) as refused:
        boot_start.enable()
    assert "up --yes" in str(refused.value.fix)
    messages.check(refused.value.message)


def test_the_line_runs(programs: Path, tmp_path: Path) -> None:
    """As cron runs it: by sh, with a short environment."""
    table = add_crontab(programs)
    boot_start.enable()
    line = table.read_text().strip().removeprefix("@reboot ").replace("\\%", "%")
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "LOGNAME": os.environ.get("LOGNAME", "me")}
    subprocess.run(["/bin/sh", "-c", line], env=environment, cwd=tmp_path, check=True)
    assert (tmp_path / "st ate" / "lab" / "up.log").read_text().strip() == "no run was interrupted"
