"""``notices``: who is told when tasks end, fail or stall; and whether that arrives."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgspec

from roost.lab.notices import notice_events, test_message
from roost.lab.notices import receivers as settings

_MAX_PARALLEL = 8


class ReceiverStatus(msgspec.Struct, frozen=True):
    """One receiver."""

    name: str
    kind: str
    place: str
    """Without what is secret."""
    why_not: str | None = None
    """Why the trial did not arrive; empty if it did, None without one."""


class Notices(msgspec.Struct, frozen=True):
    """What is set."""

    file: str
    events: list[str]
    least_minutes: float | None
    receivers: list[ReceiverStatus]


def notices() -> Notices:
    """What is set; nothing that is secret is in it.

    Raises:
        NotFound: Nothing is set.
        Refused: Others may read the file.
        ConfigError: It does not mean anything.
    """
    file = notice_events.settings_path()
    asked = settings.read_settings(file)
    told = [ReceiverStatus(name, one.kind, one.address) for name, one in asked.receivers.items()]
    return Notices(str(file), list(asked.events), asked.least_minutes, told)


def try_notices() -> Notices:
    """Sends one notice to each receiver, and tells what came of it.

    Raises:
        NotFound, Refused, ConfigError: As `notices`.
    """
    found = notices()
    with ThreadPoolExecutor(_MAX_PARALLEL) as pool:
        results = list(pool.map(test_message.send_test, range(len(found.receivers))))
    told = [
        msgspec.structs.replace(one, why_not=why_not)
        for one, why_not in zip(found.receivers, results, strict=True)
    ]
    return msgspec.structs.replace(found, receivers=told)
