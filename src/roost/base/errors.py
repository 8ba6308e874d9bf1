"""What can go wrong by somebody's mistake, each kind with its exit code (DESIGN, section 8)."""

from __future__ import annotations

_NOTHING = object()


class RoostError(Exception):
    """A mistake that a person can mend; its text says what, where and how.

    Args:
        message: What is wrong, in one sentence, without a full stop.
        setting: The setting at fault, dotted (``data.batch_size``).
        received: The value that was given; shown with ``repr``.
        where: Where it was given, for example ``config.yaml:12``.
        fix: What to do about it, as an order ("give a number above 0").
    """

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        setting: str | None = None,
        received: object = _NOTHING,
        where: object | None = None,
        fix: str | None = None,
    ) -> None:
        self.message, self.setting, self.where, self.fix = message, setting, where, fix
        # What is wrong, where the setting is told beside, and with it.
        self.said = message if received is _NOTHING else f"{message}; received {received!r}"
        self.what = text = self.said if setting is None else f"{setting}: {self.said}"
        if where is not None:
            text += f" (at {where})"
        if fix is not None:
            text += f". To mend it: {fix}"
        super().__init__(text)


class UsageError(RoostError):
    """The command line itself is wrong."""

    exit_code = 2


class NotFound(RoostError):
    """A package, file, checkpoint or class that was named does not exist."""

    exit_code = 3


class ConfigError(RoostError):
    """The configuration cannot be read or does not mean anything."""

    exit_code = 4


class Refused(RoostError):
    """roost could do it, but it would lose or mix up something."""

    exit_code = 5


class ContractError(RoostError):
    """The project's code does not keep the native contract (DESIGN, section 4)."""


class RanksApart(ContractError):
    """The ranks do not do the same: they can talk to each other no more, so it ends the run."""


class CheckpointError(RoostError):
    """A checkpoint cannot be used: it is damaged, needs a newer roost or torch, or does not fit what it is
    loaded into. Only `Damaged` speaks against its bytes."""


class Damaged(CheckpointError):
    """The bytes of a checkpoint are not those that were written: a file is missing, or its size or digest is
    another one. Nothing else raises this, because such a checkpoint is set aside for good."""


class TrainingError(RoostError):
    """The training cannot go on, for example because the loss is not finite."""


class PeerLost(RoostError):
    """Another rank is gone, or has failed: never the cause, which that rank tells itself."""

    by_the_machine = True
    """Whether another time that rank might not have failed; unless it has said otherwise."""


STOPPED_EXIT_CODE = 75
"""Stopped on request after saving; ``roost continue`` goes on exactly (EX_TEMPFAIL of sysexits.h)."""

INTERRUPTED_EXIT_CODE = 130
"""Ended at once by a second Ctrl-C."""
