"""How the curves of a plot are presented."""

from __future__ import annotations

from dataclasses import dataclass

from roost.base.errors import UsageError

X_KINDS = ("step", "epoch", "time", "elapsed", "samples")
"""The axes. time: of the day; elapsed: in sessions, without the pauses between them."""
LOG_AXES = ("x", "y", "xy", "none")
BANDS = ("std", "min-max")


@dataclass(frozen=True)
class PlotView:
    """How curves are presented.

    Raises:
        UsageError: A value is none of those that are possible.
    """

    x: str = "step"
    """One of `X_KINDS`."""
    smooth: float = 0.0
    """The weight of the mean before in an exponential moving average, below 1; 0: none."""
    log: str | None = None
    """The logarithmic axes, one of `LOG_AXES`; None: the vertical one of a loss that falls by orders of
    magnitude."""
    group_by: str | None = None
    """Draw means over groups of runs, as `roost ls --group-by`: seed, sweep or a key."""
    band: str = "std"
    """Around a mean, one of `BANDS`."""

    def __post_init__(self) -> None:
        if not 0 <= self.smooth < 1:
            raise UsageError(
                "must be at least 0 and below 1", setting="--smooth", received=self.smooth, fix="try 0.9"
            )
        for setting, value, known in (
            ("--x", self.x, X_KINDS),
            ("--log", self.log or "none", LOG_AXES),
            ("--band", self.band, BANDS),
        ):
            if value not in known:
                raise UsageError(
                    "is not known", setting=setting, received=value, fix=f"give one of: {', '.join(known)}"
                )

    @property
    def log_x(self) -> bool:
        """Whether the horizontal axis is logarithmic."""
        return self.log is not None and "x" in self.log
