"""The report of `roost tune`: a file that its worker replaces after each target, and the operation reads."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from roost.base import durable, safe_read

NAME = "tuning.json"
"""The name of the file, in the package that is measured."""
TuningTarget = Literal["workers", "prefetch", "batch_size", "step_mode", "lr"]
TARGETS: tuple[TuningTarget, ...] = ("workers", "prefetch", "batch_size", "step_mode", "lr")
"""All targets, in the order of measuring."""


class CandidateRates(msgspec.Struct, kw_only=True):
    """The measurements of one value of a setting."""

    value: int | str
    rates: list[float] = []
    """Samples per second, one number for each round; empty if it failed."""
    memory_mb: float | None = None
    """The most memory of the card, or of the training process on the host."""
    note: str = ""
    """Why it was measured no further, or not at all."""

    @property
    def median(self) -> float:
        """The median of the rounds; 0 without any."""
        return statistics.median(self.rates) if self.rates else 0.0

    @property
    def spread(self) -> float:
        """The distance of the quartiles of the rounds, as a share of the median; 0 without any."""
        low, high = quartiles(self.rates)
        return (high - low) / self.median if self.rates else 0.0

    def ratios(self, other: CandidateRates) -> list[float]:
        """Returns the rates of this candidate relative to those of another one in the same rounds."""
        return [one / two for one, two in zip(self.rates, other.rates, strict=False) if two]


def quartiles(numbers: Sequence[float]) -> tuple[float, float]:
    """Returns the lower and the upper quartile of some numbers; of fewer than three the extremes."""
    if len(numbers) < 3:
        return min(numbers, default=0.0), max(numbers, default=0.0)
    low, _, high = statistics.quantiles(numbers, n=4, method="inclusive")
    return low, high


class TargetFinding(msgspec.Struct, kw_only=True):
    """The measurements of one target, and the choice among its candidates."""

    target: TuningTarget
    setting: str
    """Dotted."""
    present: int | str
    """The value of the config; of ``auto`` the number that it became."""
    chosen: int | str
    reason: str
    """Why this value, or why nothing was measured."""
    is_late: bool = False
    """Whether nothing was measured because the time did not suffice."""
    candidates: list[CandidateRates] = []
    changes: dict[str, Any] = {}
    """The settings to write, dotted; empty if the present value remains."""
    is_neutral: bool = False
    """Whether the settings change no bit of a run."""
    consequences: list[str] = []
    """The effect of the settings on the results, one line each."""


class RangeTestFinding(msgspec.Struct, kw_only=True):
    """The result of a learning-rate range test."""

    optimizer: str
    present: float
    """The learning rate of the config."""
    rates: list[float]
    losses: list[float]
    smoothed: list[float]
    reason: str
    """The rule behind the suggestion, or why there is none."""
    steepest: float | None = None
    """The rate at which the smoothed loss falls fastest."""
    divergence: float | None = None
    """The rate at which the loss diverged; None: it did not, up to the last rate."""
    suggestion: float | None = None
    changes: dict[str, Any] = {}


class TuningReport(msgspec.Struct, kw_only=True):
    """All measurements so far."""

    device: str = ""
    num_cores: int = 0
    num_threads: int = 0
    findings: list[TargetFinding] = []
    range_test: RangeTestFinding | None = None
    seconds: float = 0.0
    """The time of all measurements."""

    @property
    def has_measured(self) -> bool:
        """Whether anything was measured."""
        return self.range_test is not None or any(one.candidates for one in self.findings)


def write(package: Path, report: TuningReport) -> None:
    """Writes the report into a package made for it.

    Raises:
        OSError: The file cannot be written.
    """
    durable.write_unsynced(package / NAME, msgspec.json.encode(report))


def read(package: Path) -> TuningReport:
    """Returns the report in a package so far; empty if the file does not exist, or cannot be read."""
    try:
        return msgspec.json.decode(bytes(safe_read.read(package / NAME)), type=TuningReport)
    except (OSError, ValueError):
        return TuningReport()


def ordered_targets(requested: Sequence[str]) -> list[TuningTarget]:
    """Returns the requested targets, all if there are none, in the order of measuring."""
    return [name for name in TARGETS if not requested or name in requested]
