"""The operations ``up --at-boot`` and ``up --not-at-boot``: what was interrupted continues after a reboot."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from roost.base.errors import Refused, RoostError
from roost.base.system import state_folder
from roost.operations import systemd_unit
from roost.operations.systemd_unit import UserUnit

UP_UNIT = UserUnit("roost-up.service", "Continues the runs of roost that were interrupted", "up --yes")
_MARK = "# roost up --at-boot"
_LOG_NAME = "up.log"
_CRON_NAMES = ("cron", "crond", "fcron")
_CRON_FOLDER = "/proc"


class BootStart(NamedTuple):
    """The entry of the machine that starts ``roost up``."""

    where: str
    """The file or the table that was written."""
    text: str
    """What was written there, in one line."""
    notes: list[str]
    """Notes for the user, one line each."""


def enable() -> BootStart:
    """Has ``roost up --yes`` started with the machine: by a unit of systemd where it manages services of this
    user, else by a line in the user's crontab.

    Raises:
        Refused: The machine has neither; or the unit of another lab is enabled.
        RoostError: systemd or crontab failed.
        OSError: The unit cannot be written.
    """
    try:
        systemd_unit.require_systemd()
    except Refused as error:
        return _enable_by_cron(error.message)
    found = systemd_unit.enable(UP_UNIT, now=False)
    return BootStart(str(found.file), _start_line(), found.notes)


def disable() -> list[str]:
    """Removes what `enable` has written; returns where that was.

    Raises:
        RoostError: systemd or crontab failed.
        OSError: The unit cannot be removed.
    """
    removed = []
    if systemd_unit.unit_file(UP_UNIT).exists() and (file := systemd_unit.disable(UP_UNIT)) is not None:
        removed.append(str(file))
    if shutil.which("crontab") is not None:
        lines = _crontab()
        kept = [line for line in lines if not line.endswith(_own_mark())]
        if kept != lines:
            _write_crontab(kept)
            removed.append(_table())
    return removed


def _enable_by_cron(why_not_systemd: str) -> BootStart:
    if shutil.which("crontab") is None:
        raise Refused(
            f"{why_not_systemd}, and there is no crontab: nothing here starts a command at boot",
            fix=f"let what starts this container or notebook run: {_start_line()}",
        )
    state_folder.prepare(state_folder.lab_folder())
    line = f"@reboot {_escaped(_start_line())} {_own_mark()}"
    _write_crontab([*(one for one in _crontab() if not one.endswith(_own_mark())), line])
    notes = [f"by crontab, as {why_not_systemd}"]
    if not _cron_runs():
        notes.append("no cron daemon runs on this machine now: the line has an effect only where one does")
    return BootStart(_table(), line, notes)


def _start_line() -> str:
    """Returns the command line that continues what was interrupted, with its output in the lab's folder."""
    folder = state_folder.lab_folder()
    command = [sys.executable, "-P", "-m", "roost.cli", *UP_UNIT.start.split()]
    log = shlex.quote(str(folder / _LOG_NAME))
    return f"ROOST_STATE={shlex.quote(str(folder.parent))} {shlex.join(command)} >> {log} 2>&1"


def _escaped(line: str) -> str:
    """Returns a command of a crontab, in which a per cent sign is the end of a line."""
    return line.replace("%", "\\%")


def _own_mark() -> str:
    """Returns the end of the line of this lab: each lab of a user has its own."""
    return f"{_MARK} of {_escaped(str(state_folder.lab_folder().parent))}"


def _table() -> str:
    return "your crontab (`crontab -l` shows it)"


def _crontab() -> list[str]:
    """Returns the lines of the user's crontab; a user without one has none."""
    done = subprocess.run(["crontab", "-l"], capture_output=True, encoding="utf-8", errors="surrogateescape")
    if done.returncode and "no crontab" not in done.stderr:
        raise RoostError(f"`crontab -l` failed: {' '.join(done.stderr.split())}")
    if done.returncode or not done.stdout:
        return []
    return done.stdout.removesuffix("\n").split("\n")


def _write_crontab(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(
        ["crontab", "-"], input=text, capture_output=True, encoding="utf-8", errors="surrogateescape"
    )
    if done.returncode:
        raise RoostError(f"`crontab -` failed: {' '.join(done.stderr.split())}")


def _cron_runs() -> bool:
    """Whether a cron daemon runs on this machine; True where that cannot be seen."""
    try:
        names = [entry.name for entry in os.scandir(_CRON_FOLDER) if entry.name.isdecimal()]
    except OSError:
        return True
    return any(_process_name(Path(_CRON_FOLDER) / name) in _CRON_NAMES for name in names)


def _process_name(folder: Path) -> str:
    try:
        return (folder / "comm").read_text().strip()
    except OSError:
        return ""
