"""What ``profile`` measured of a session: ``profile/<session>/profile.json``; next to it ``flame.svg``."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from roost.base import safe_read

FOLDER, NAME, PICTURE = "profile", "profile.json", "flame.svg"
FORMAT = 1
LOGGING, HOOKS, IDLE = "logging", "hooks", "idle"
"""Parts of the time in addition to those of `roost.package.results.time_breakdown`: writing rows and
printing them; the other hooks; a loader worker that waits for its next task."""
_MAX_BYTES = 4 * 2**20
MAX_LINES = 50


class OperatorTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Torch's operators in a traced step."""

    calls: int
    work_share: float
    """The share of the step, from 0 to 1, in which operators work that take longer than a launch, without
    their launches. On the host."""
    kernel_ms: float
    """On an accelerator: the time of its kernels in a step."""
    empty_us: float
    """What one operator on a single number takes."""


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """What a thread that loads batches did, in seconds. The rest of the time it waited: for a disk, a
    network, another process."""

    seconds: float
    computing: float
    """On a core, or ready for one."""
    idle: float = 0.0
    """Without a task."""

    @property
    def busy(self) -> float:
        """The seconds with a task."""
        return max(0.0, self.seconds - self.idle)

    @property
    def wait_share(self) -> float:
        """The share of the busy time in which it waited."""
        return max(0.0, 1 - self.computing / self.busy) if self.busy > 0 else 0.0


class HotLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the project's own code that was seen often."""

    part: str
    """Of the training thread; ``worker`` for the first loader worker."""
    place: str
    """``__getitem__ Dataset.py:31``"""
    is_computing: bool
    """Whether the thread computed there; otherwise it waited."""
    number: int
    """How often it was seen there."""


class ProfileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The measured steps of a session. Times are seconds of all of them together."""

    format: int = FORMAT
    session: int = 0
    time: float = 0.0
    """The end, Unix seconds."""
    device: str = "cpu"
    """The type of the device."""
    cores: int = 1
    """The cores that the run may use."""
    first_step: int = 0
    last_step: int = 0
    seconds: float = 0.0
    samples: int = 0
    parts: dict[str, float] = {}
    """By the names of `PARTS`; the rest of `seconds` is spent between them."""
    hooks: dict[str, float] = {}
    """By the names of the hooks, without validations and saves."""
    calls: dict[str, int] = {}
    """How often each hook was called."""
    num_workers: int | None = None
    """None: unknown, as of the user's own `DataLoader`."""
    batches_per_step: int = 1
    intervals: dict[str, str] = {}
    """The settings ``log_every``, ``validate_every`` and ``checkpoint.every``, as far as they are known."""
    cpu_wait: float | None = None
    """The share of the requested CPU time that other processes used; None: unknown."""
    operators: OperatorTimes | None = None
    loading: Activity | None = None
    """Of the first loader worker; without workers of the training thread, in part ``data``. None: unknown."""
    lines: list[HotLine] = []

    @property
    def steps(self) -> int:
        """The number of measured steps."""
        return self.last_step - self.first_step + 1


class SessionProfile(NamedTuple):
    """The profile of one session: its folder and its record."""

    folder: Path
    record: ProfileRecord

    @property
    def picture(self) -> Path | None:
        """The flame graph; None if there is none."""
        path = self.folder / PICTURE
        return path if path.is_file() else None


def read(package: Path, session: int | None = None) -> SessionProfile | None:
    """Returns the newest profile of a package, or that of a session; None if there is none that can be
    read."""
    try:
        folders = [one for one in (package / FOLDER).iterdir() if one.name.isdecimal()]
    except OSError:
        return None
    for folder in sorted(folders, key=lambda one: -int(one.name)):
        if session is None or int(folder.name) == session:
            try:
                data = bytes(safe_read.read(folder / NAME, max_bytes=_MAX_BYTES))
                record = msgspec.json.decode(data, type=ProfileRecord)
            except (OSError, msgspec.MsgspecError):
                continue
            if record.format == FORMAT and record.steps > 0 and record.seconds > 0:
                return SessionProfile(folder, record)
    return None
