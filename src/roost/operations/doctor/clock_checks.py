"""Checks of the clock: whether it was changed, is synchronized, and agrees with that of the disks."""

from __future__ import annotations

import ctypes
import os
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from roost.base import durable
from roost.base.text.durations import format_duration
from roost.lab.background import background_process
from roost.lab.background.background_process import ProcessFiles, ProcessRecord
from roost.operations.doctor.diagnosis import Diagnosis, DoctorSubject, ok, warning
from roost.operations.doctor.disk_checks import nearest_existing

_TOLERANCE_SECONDS = 2.0
"""A clock that is slewed, and the resolution of file times, stay below it."""
_UNSYNCHRONIZED = 0x40
"""The bit STA_UNSYNC of the kernel's clock status."""
_STATUS = struct.Struct("=40xi")
"""Where the status is in the kernel's ``struct timex`` on 64-bit Linux, which has 208 bytes."""


@dataclass(frozen=True, kw_only=True)
class ClockFacts:
    """The clock, compared with others. Seconds."""

    steps: Mapping[str, float] = field(default_factory=dict)
    """By how much it was changed since a process started, by the name of the process."""
    file_skew: float | None = None
    """By how much the time of a file just written is ahead."""
    is_synchronized: bool | None = None
    """None: the kernel does not say."""


def read_clock(subject: DoctorSubject) -> ClockFacts:
    """Compares the clock with the boot's, by the records of daemon and server, and with that of the disk."""
    steps = {}
    for name in ("daemon", "server"):
        record = background_process.find_running(ProcessFiles.of(subject.lab_folder, name), ProcessRecord)
        if record is not None and record.start_ticks is not None:
            started = record.start_ticks / os.sysconf("SC_CLK_TCK")
            steps[f"the {name}"] = time.time() - _boot_seconds() + started - record.started
    return ClockFacts(steps=steps, file_skew=_file_skew(subject), is_synchronized=_read_synchronized())


def _boot_seconds() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _file_skew(subject: DoctorSubject) -> float | None:
    folder = nearest_existing(subject.save_root)
    try:
        staging = durable.make_staging_folder(folder / "doctor")
    except OSError:  # shown by the check of the disks
        return None
    try:
        return staging.stat().st_mtime - time.time()
    finally:
        durable.discard(staging)


def _read_synchronized() -> bool | None:
    try:
        kernel = ctypes.CDLL(None, use_errno=True)
        state = ctypes.create_string_buffer(208)
        if kernel.adjtimex(state) < 0:
            return None
    except (OSError, AttributeError):  # not Linux
        return None
    (status,) = _STATUS.unpack_from(state)
    return not status & _UNSYNCHRONIZED


def judge_clock(facts: ClockFacts) -> Iterator[Diagnosis]:
    """Whether times of rows, deadlines and files can be compared."""
    sync = "let the system set it: timedatectl set-ntp true"
    bad = False
    for name, seconds in facts.steps.items():
        # A process takes a moment from its start to the time that it records.
        if abs(seconds) > _TOLERANCE_SECONDS * 5:
            bad = True
            yield warning(
                f"the clock was set {_ahead(seconds)} since {name} started: times before and after cannot be "
                "compared",
                sync,
            )
    if facts.file_skew is not None and abs(facts.file_skew) > _TOLERANCE_SECONDS:
        bad = True
        yield warning(
            f"the clock of the disk of save_root is {_ahead(facts.file_skew)}", f"{sync}, on both machines"
        )
    if facts.is_synchronized is False:
        yield warning("the clock is not synchronized with a time server", sync)
    elif not bad:
        agrees = "synchronized" if facts.is_synchronized else "it agrees with that of the disk"
        yield ok(agrees)


def _ahead(seconds: float) -> str:
    return f"{format_duration(abs(seconds))} {'ahead' if seconds > 0 else 'back'}"
