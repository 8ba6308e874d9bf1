"""When something is due: every n steps, every n epochs, n times an epoch, or every so many seconds."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass

from roost.base.errors import ConfigError

NEVER = 2**63
"""A step that no run reaches."""

_SECONDS = {"s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_CLOCK = re.compile(r"(?:(\d{1,5})-)?(\d{1,5}):(\d{2}):(\d{2})")
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(sec|s|min|h|d)")


def parse_duration(text: str, *, setting: str) -> float:
    """Seconds of a duration such as ``90s``, ``10min``, ``1h30min`` or ``2d``; or, as Slurm writes them,
    ``11:30:00`` or ``1-02:00:00``, the first being days.

    Raises:
        ConfigError: It is no duration above 0.
    """
    if clock := _CLOCK.fullmatch(text.strip()):
        days, hours, minutes, left = (int(one or 0) for one in clock.groups())
        if total := ((days * 24 + hours) * 60 + minutes) * 60 + left:
            return float(total)
    compact = text.replace(" ", "")
    # `1h30m` is what many people type; a lone `m` would read as metres or months, so it ends a word here.
    compact = re.sub(r"m(?!in)", "min", compact)
    parts = _DURATION.findall(compact)
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != compact or seconds <= 0:
        raise ConfigError(
            "is no duration", setting=setting, received=text, fix="write 90s, 10min, 11h30m, 2d or 11:30:00"
        )
    return seconds


@dataclass(frozen=True)
class Interval:
    """One of: ``steps``, ``epochs``, ``per_epoch`` (times an epoch) or ``seconds``; the others are 0."""

    steps: int = 0
    epochs: int = 0
    per_epoch: int = 0
    seconds: float = 0.0

    @classmethod
    def parse(cls, value: str | int, *, setting: str) -> Interval:
        """Reads ``500``, ``2ep``, ``10/ep`` or ``10min``.

        Raises:
            ConfigError: It is none of these, or not above 0.
        """
        text = str(value).strip()
        match = re.fullmatch(r"(\d{1,18})(ep|/ep)?", text)
        if match and int(match[1]) > 0:
            kind = {None: "steps", "ep": "epochs", "/ep": "per_epoch"}[match[2]]
            return cls(**{kind: int(match[1])})
        with contextlib.suppress(ConfigError):  # its text speaks of durations only
            return cls(seconds=parse_duration(text, setting=setting))
        raise ConfigError(
            "is no interval",
            setting=setting,
            received=value,
            fix="write a number of steps (500), epochs (2ep), times an epoch (10/ep) or a time (10min)",
        )

    def next_step(self, step: int, steps_per_epoch: int) -> int:
        """The first step after ``step`` at which this is due; `NEVER` for a time, which has no step.

        Times an epoch are spread evenly and always hit the epoch's last step; when an epoch has fewer
        steps than that, every step is due.
        """
        if self.steps:
            return step - step % self.steps + self.steps
        if self.epochs:
            span = self.epochs * steps_per_epoch
            return step - step % span + span
        if self.per_epoch:
            epoch, inside = divmod(step, steps_per_epoch)
            due = inside * self.per_epoch // steps_per_epoch + 1  # the how manieth of this epoch comes next
            return epoch * steps_per_epoch - (-due * steps_per_epoch // self.per_epoch)  # rounded up
        return NEVER

    def __str__(self) -> str:
        if self.seconds:
            return f"{self.seconds:g}s"
        if self.epochs:
            return f"{self.epochs}ep"
        return f"{self.per_epoch}/ep" if self.per_epoch else f"{self.steps} steps"


def parse_start(value: str | int, *, setting: str) -> Interval | None:
    """The steps or epochs after which something begins: ``0`` (None, at once), ``500`` or ``5ep``.

    Raises:
        ConfigError: It is none of these.
    """
    if str(value).strip() == "0":
        return None
    with contextlib.suppress(ConfigError):
        found = Interval.parse(value, setting=setting)
        if found.steps or found.epochs:
            return found
    raise ConfigError(
        "is no beginning",
        setting=setting,
        received=value,
        fix="write 0, a number of steps (500) or of epochs (5ep)",
    )


def parse_steps(value: str | int, *, setting: str) -> Interval:
    """An interval that counts steps or epochs: of each step it is known before whether it is due.

    Raises:
        ConfigError: It is none, or a time.
    """
    found = Interval.parse(value, setting=setting)
    if found.seconds:
        raise ConfigError(
            "is a time, and it must be known before a step whether it is due",
            setting=setting,
            received=value,
            fix="write a number of steps (100), epochs (2ep) or times an epoch (10/ep)",
        )
    return found
