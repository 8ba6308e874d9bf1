"""The errors that a user or an administrator can fix, each kind with its exit code (DESIGN, section 8)."""

from __future__ import annotations

FIX_SEPARATOR = "; fix: "
"""Between the message of an error and its fix."""

_NOTHING = object()


def with_fix(message: str, fix: str | None) -> str:
    """``message; fix: fix``; the message alone where there is no fix."""
    return message if fix is None else f"{message}{FIX_SEPARATOR}{fix}"


class RoostError(Exception):
    """A mistake that the user can fix. Its text says what is wrong, where, and how to fix it.

    Args:
        message: What is wrong, in one sentence, without a full stop.
        setting: The setting at fault, dotted (``data.batch_size``).
        received: The value that was given; shown with ``repr``.
        where: Where it was given, for example ``config.yaml:12``.
        fix: What to do about it, as an imperative sentence ("give a number above 0").

    Attributes:
        detail: The message with the received value.
        summary: The setting and the detail, without where and fix.
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
        self.detail = message if received is _NOTHING else f"{message}; received {received!r}"
        self.summary = self.detail if setting is None else f"{setting}: {self.detail}"
        text = self.summary if where is None else f"{self.summary} (at {where})"
        super().__init__(with_fix(text, fix))


class UsageError(RoostError):
    """The command line itself is wrong."""

    exit_code = 2


class NotFound(RoostError):
    """A package, file, checkpoint or class that was named does not exist."""

    exit_code = 3


class ConfigError(RoostError):
    """The configuration cannot be read, or is not valid."""

    exit_code = 4


class Refused(RoostError):
    """A request that is possible, but would lose or mix up data."""

    exit_code = 5


class ContractError(RoostError):
    """The project's code does not keep the native contract (DESIGN, section 4)."""


class RanksApart(ContractError):
    """The ranks execute different code or exchange different messages. They can communicate no more, so the
    run ends."""


class CheckpointError(RoostError):
    """A checkpoint cannot be used: it is damaged, needs a newer roost or torch, or does not fit what it is
    loaded into. Only `Damaged` means that its bytes are wrong."""


class Damaged(CheckpointError):
    """The bytes of a checkpoint are not those that were written: a file is missing, or its size or digest
    differs. Nothing else raises this error, because such a checkpoint is set aside permanently."""


class TrainingError(RoostError):
    """The training cannot continue, for example because the loss is not finite."""


class PeerLost(RoostError):
    """Another rank has ended or failed. This error is never the cause; the other rank reports the cause."""

    is_transient = True
    """Whether that rank might succeed in another attempt; True unless the rank has reported otherwise."""


STOPPED_EXIT_CODE = 75
"""Stopped on request after saving; ``roost continue`` continues exactly (EX_TEMPFAIL of sysexits.h)."""

INTERRUPTED_EXIT_CODE = 130
"""Ended at once by a second Ctrl-C."""
