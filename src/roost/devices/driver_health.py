"""The health of NVIDIA's driver and cards, queried once in a child process that may hang."""

from __future__ import annotations

import subprocess

import msgspec

from roost.devices.driver_report import DriverError
from roost.devices.nvml import FIRST_ANSWER_SECONDS, query_command


class CardHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What may slow a card down or falsify its results. None: the driver does not report it."""

    uuid: str
    name: str
    temperature: int | None = None
    """Degrees Celsius."""
    slowdown_temperature: int | None = None
    """From which the card lowers its clock."""
    ecc_errors: int | None = None
    """Uncorrected errors of its memory since the driver was loaded."""
    remap_pending: bool | None = None
    """Whether a part of its memory is to be replaced at the next reset."""
    remap_failed: bool | None = None
    """Whether no spare part is left."""
    persistence: int | None = None
    """1: the driver keeps the card ready while no process uses it."""
    link_width: int | None = None
    """Lanes of PCI Express in use."""
    max_link_width: int | None = None
    slowed_by_power: bool | None = None
    """Whether the power limit lowers its clock now."""
    slowed_by_heat: bool | None = None
    """Whether its temperature lowers its clock now."""
    error: str = ""
    """Why the card does not answer."""


class DriverHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The driver and its cards."""

    gpus: list[CardHealth] = []
    driver: str = ""
    """The version; empty without a driver."""
    cuda: int = 0
    """The newest CUDA that the driver runs: 12040 is 12.4."""
    error: str = ""

    @property
    def cuda_version(self) -> tuple[int, int]:
        """Returns ``(12, 4)``."""
        return self.cuda // 1000, self.cuda % 1000 // 10


def read_health(timeout_seconds: float = FIRST_ANSWER_SECONDS) -> DriverHealth:
    """Returns the state of the driver now; one without a version where there is none.

    Raises:
        DriverError: The driver does not answer in time, or as expected.
    """
    try:
        done = subprocess.run(
            query_command(),
            input=b"health\n",
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            timeout=timeout_seconds,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DriverError(f"the driver did not answer within {timeout_seconds:g} s") from None
    try:
        found = msgspec.json.decode(done.stdout, type=DriverHealth)
    except ValueError as error:
        raise DriverError(f"the driver's answer cannot be read ({error})") from None
    if found.error:
        raise DriverError(found.error)
    return found
