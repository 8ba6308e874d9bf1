"""The operations ``lab enable`` and ``lab disable``: a systemd unit of the user, which starts the daemon with
the machine."""

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

NAME = "roost-lab.service"
_SECONDS = 60.0
_CRONTAB = "add to `crontab -e`: @reboot {command} lab start"


class EnabledUnit(NamedTuple):
    """The unit after `enable`."""

    file: Path
    notes: list[str]
    """Notes for the user, one line each."""


def enable() -> EnabledUnit:
    """Writes the unit of this lab, and has systemd start it now and with the machine.

    Raises:
        Refused: systemd does not manage services of this user, or the unit of another lab is enabled.
        RoostError: systemd could not start the unit.
        OSError: The unit cannot be written.
    """
    _require_systemd()
    state_folder.prepare(state_folder.lab_folder())
    file, text = unit_file(), unit_text()
    if file.exists() and _state_line(file.read_text(errors="replace")) != _state_line(text):
        fix = "run `roost lab disable` with the ROOST_STATE of that lab first"
        raise Refused("the unit of another lab is enabled", where=file, fix=fix)
    durable.make_folders(file.parent)
    durable.write(file, text.encode())
    _systemctl("daemon-reload")
    _systemctl("enable", "--now", NAME)
    return EnabledUnit(file, [] if _lingers() else [_linger_note()])


def disable() -> Path | None:
    """Removes the unit; returns its file, None if there was none. The daemon and running tasks continue.

    Raises:
        Refused: systemd does not manage services of this user.
        RoostError: systemd could not disable the unit.
        OSError: The unit cannot be removed.
    """
    _require_systemd()
    file = unit_file()
    if not file.exists():
        return None
    _systemctl("disable", NAME)
    durable.discard(file)
    _systemctl("daemon-reload")
    return file


def unit_file() -> Path:
    """Returns the path of the unit."""
    home = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".config") / "systemd" / "user" / NAME


def unit_text() -> str:
    """Returns the unit. systemd must end nothing when it stops the unit (``KillMode``), because running tasks
    are in the unit's cgroup, and leave the groups below it to roost (``Delegate``)."""
    command = f"{_quote(sys.executable)} -P -m roost.cli lab"
    return f"""[Unit]
Description=The daemon of roost, which starts queued tasks

[Service]
Type=oneshot
RemainAfterExit=yes
Environment={_quote(f"ROOST_STATE={state_folder.lab_folder().parent}")}
ExecStart={command} start
ExecStop={command} stop
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


def _require_systemd() -> None:
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
        fix = f"`systemctl --user status {NAME}` and `roost lab log` may say more"
        raise RoostError(f"`{' '.join(command)}` failed: {why}", where=unit_file(), fix=fix)


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
