"""Intervals: every n steps, every n epochs, n times an epoch, every n seconds, or never."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass

from roost.base.errors import ConfigError

NEVER = 2**63
"""A step number that no run reaches."""

_SECONDS = {"s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_CLOCK = re.compile(r"(?:(\d{1,5})-)?(\d{1,5}):(\d{2}):(\d{2})")
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(sec|s|min|h|d)")


def parse_duration(text: str, *, setting: str, may_be_zero: bool = False) -> float:
    """Returns the seconds of a duration such as ``90s``, ``10min``, ``1h30min`` or ``2d``, or in Slurm's
    format ``11:30:00`` or ``1-02:00:00`` (days first).

    Raises:
        ConfigError: The text is not a duration, or it is 0 and that is not permitted.
    """
    if clock := _CLOCK.fullmatch(text.strip()):
        days, hours, minutes, seconds_left = (int(part or 0) for part in clock.groups())
        if total := ((days * 24 + hours) * 60 + minutes) * 60 + seconds_left:
            return float(total)
    compact = text.replace(" ", "")
    # `1h30m` is a common form: `m` is read as `min`.
    compact = re.sub(r"m(?!in)", "min", compact)
    parts = _DURATION.findall(compact)
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != compact or not (
        seconds > 0 or (may_be_zero and parts)
    ):
        raise ConfigError(
            "is not a duration",
            setting=setting,
            received=text,
            fix="write 90s, 10min, 11h30m, 2d or 11:30:00",
        )
    return seconds


@dataclass(frozen=True)
class Interval:
    """How often something is due. One of ``steps``, ``epochs``, ``per_epoch`` (times an epoch) and
    ``seconds`` is not 0; if all are, never."""

    steps: int = 0
    epochs: int = 0
    per_epoch: int = 0
    seconds: float = 0.0

    @classmethod
    def parse(cls, value: str | int, *, setting: str) -> Interval:
        """Reads ``500``, ``2ep``, ``10/ep``, ``10min`` or ``never``.

        Raises:
            ConfigError: The value has none of these forms, or is not above 0.
        """
        text = str(value).strip()
        if text == "never":
            return cls()
        match = re.fullmatch(r"(\d{1,18})(ep|/ep)?", text)
        if match and int(match[1]) > 0:
            kind = {None: "steps", "ep": "epochs", "/ep": "per_epoch"}[match[2]]
            return cls(**{kind: int(match[1])})
        with contextlib.suppress(ConfigError):  # its message would mention durations only
            return cls(seconds=parse_duration(text, setting=setting))
        raise ConfigError(
            "is not an interval",
            setting=setting,
            received=value,
            fix="write steps (500), epochs (2ep), times an epoch (10/ep), a time (10min) or never",
        )

    def next_step(self, step: int, steps_per_epoch: int) -> int:
        """Returns the first step after ``step`` at which the interval is due; `NEVER` for one in seconds
        and for never.

        With ``per_epoch`` the steps are spread evenly and include the epoch's last step; when an epoch has
        fewer steps than ``per_epoch``, every step is due.
        """
        if self.steps:
            return step - step % self.steps + self.steps
        if self.epochs:
            span = self.epochs * steps_per_epoch
            return step - step % span + span
        if self.per_epoch:
            epoch, inside = divmod(step, steps_per_epoch)
            due = inside * self.per_epoch // steps_per_epoch + 1  # number of the next one within this epoch
            return epoch * steps_per_epoch - (-due * steps_per_epoch // self.per_epoch)  # rounded up
        return NEVER

    def __str__(self) -> str:
        if self.seconds:
            return f"{self.seconds:g}s"
        if self.epochs:
            return f"{self.epochs}ep"
        if self.per_epoch:
            return f"{self.per_epoch}/ep"
        return f"{self.steps} steps" if self.steps else "never"


def parse_start(value: str | int, *, setting: str) -> Interval | None:
    """Returns the steps or epochs after which something begins: ``500`` or ``5ep``; None for ``0`` (at once).

    Raises:
        ConfigError: The value has none of these forms.
    """
    if str(value).strip() == "0":
        return None
    with contextlib.suppress(ConfigError):
        interval = Interval.parse(value, setting=setting)
        if interval.steps or interval.epochs:
            return interval
    raise ConfigError(
        "is not a starting point",
        setting=setting,
        received=value,
        fix="write 0, a number of steps (500) or of epochs (5ep)",
    )


def parse_steps(value: str | int, *, setting: str) -> Interval:
    """Parses an interval in steps or epochs, for which it is known before each step whether it is due.

    Raises:
        ConfigError: The value is not an interval, or is a time.
    """
    interval = Interval.parse(value, setting=setting)
    if interval == Interval():
        raise ConfigError(
            "must be due at some step", setting=setting, received=value, fix="remove the section"
        )
    if interval.seconds:
        raise ConfigError(
            "is a time, but whether it is due must be known before the step",
            setting=setting,
            received=value,
            fix="write a number of steps (100), epochs (2ep) or times an epoch (10/ep)",
        )
    return interval
