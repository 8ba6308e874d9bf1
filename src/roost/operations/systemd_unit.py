"""The units of systemd that start something of the user with the machine: the daemon (the operations ``lab
enable`` and ``lab disable``), and ``roost up`` (`roost.operations.boot_start`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from roost.base import durable
from roost.base.errors import Refused, RoostError
from roost.base.system import state_folder


class UserUnit(NamedTuple):
    """A unit of systemd for one user."""

    name: str
    description: str
    start: str
    """What roost is called with at the start, after its program."""
    stop: str = ""
    """Likewise at the stop; empty: nothing is done."""


LAB_UNIT = UserUnit(
    "roost-lab.service", "The daemon of roost, which starts queued tasks", "lab start", "lab stop"
)
NAME = LAB_UNIT.name
_SECONDS = 60.0
_CRONTAB = "add to `crontab -e`: @reboot {command} lab start"


class EnabledUnit(NamedTuple):
    """The unit after `enable`."""

    file: Path
    notes: list[str]
    """Notes for the user, one line each."""


def enable(unit: UserUnit = LAB_UNIT, *, now: bool = True) -> EnabledUnit:
    """Writes the unit of this lab, and has systemd start it with the machine.

    Args:
        unit: The unit.
        now: Whether to start it now, too.

    Raises:
        Refused: systemd does not manage services of this user, or the unit of another lab is enabled.
        RoostError: systemd could not start the unit.
        OSError: The unit cannot be written.
    """
    require_systemd()
    state_folder.prepare(state_folder.lab_folder())
    file, text = unit_file(unit), unit_text(unit)
    if file.exists() and _state_line(file.read_text(errors="replace")) != _state_line(text):
        command = "roost lab disable" if unit is LAB_UNIT else "roost up --not-at-boot"
        fix = f"run `{command}` with the ROOST_STATE of that lab first"
        raise Refused("the unit of another lab is enabled", where=file, fix=fix)
    durable.make_folders(file.parent)
    durable.write(file, text.encode())
    _systemctl("daemon-reload")
    _systemctl("enable", *(["--now"] if now else []), unit.name)
    return EnabledUnit(file, [] if _lingers() else [_linger_note()])


def disable(unit: UserUnit = LAB_UNIT) -> Path | None:
    """Removes a unit; returns its file, None if there was none. The daemon and running tasks continue.

    Raises:
        Refused: systemd does not manage services of this user.
        RoostError: systemd could not disable the unit.
        OSError: The unit cannot be removed.
    """
    require_systemd()
    file = unit_file(unit)
    if not file.exists():
        return None
    _systemctl("disable", unit.name)
    durable.discard(file)
    _systemctl("daemon-reload")
    return file


def unit_file(unit: UserUnit = LAB_UNIT) -> Path:
    """Returns the path of a unit."""
    home = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".config") / "systemd" / "user" / unit.name


def unit_text(unit: UserUnit = LAB_UNIT) -> str:
    """Returns a unit. systemd must end nothing when it stops the unit (``KillMode``), because running tasks
    are in the unit's cgroup, and leave the groups below it to roost (``Delegate``)."""
    command = f"{_quote(sys.executable)} -P -m roost.cli"
    stop = f"\nExecStop={command} {unit.stop}" if unit.stop else ""
    return f"""[Unit]
Description={unit.description}

[Service]
Type=oneshot
RemainAfterExit=yes
Environment={_quote(f"ROOST_STATE={state_folder.lab_folder().parent}")}
ExecStart={command} {unit.start}{stop}
KillMode=process
Delegate=yes

[Install]
WantedBy=default.target
"""


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _state_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.startswith("Environment=")), "")


def require_systemd() -> None:
    """Checks that systemd manages services of this user.

    Raises:
        Refused: It does not, or the machine has none.
    """
    fix = _CRONTAB.format(command=Path(sys.executable).with_name("roost"))
    if shutil.which("systemctl") is None:
        raise Refused("this machine has no systemd", fix=fix)
    done = subprocess.run(["systemctl", "--user", "show-environment"], capture_output=True, text=True)
    if done.returncode:
        why = " ".join(done.stderr.split()) or f"systemctl exited with {done.returncode}"
        raise Refused(f"systemd manages no services of this user: {why}", fix=fix)


def _systemctl(*arguments: str) -> None:
    command = ["systemctl", "--user", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise RoostError(f"`{' '.join(command)}` did not end within {_SECONDS:g} s") from error
    if done.returncode:
        why = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        fix = f"`systemctl --user status {arguments[-1]}` and `roost lab log` may say more"
        raise RoostError(f"`{' '.join(command)}` failed: {why}", where=unit_file().parent, fix=fix)


def _lingers() -> bool:
    """Whether systemd keeps the services of this user while no session of the user is open."""
    if shutil.which("loginctl") is None:
        return False
    command = ["loginctl", "show-user", str(os.geteuid()), "--property=Linger", "--value"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() == "yes"


def _linger_note() -> str:
    return (
        "systemd starts it when you log in, and ends it and the tasks after you have logged out; "
        "`loginctl enable-linger` starts it with the machine, and keeps both"
    )
