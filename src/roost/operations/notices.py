"""``notices``: the receivers of messages about tasks that end, fail or stall, and a test of each."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgspec

from roost.lab.notices import notice_events, test_message
from roost.lab.notices import receivers as settings

_MAX_PARALLEL = 8


class ReceiverStatus(msgspec.Struct, frozen=True):
    """A receiver of notices, perhaps with the result of a test."""

    name: str
    kind: str
    place: str
    """Its address, without secret parts."""
    why_not: str | None = None
    """Why the test message did not arrive; empty if it did, None if none was sent."""


class Notices(msgspec.Struct, frozen=True):
    """The settings of notices."""

    file: str
    events: list[str]
    least_minutes: float | None
    receivers: list[ReceiverStatus]


def notices() -> Notices:
    """Returns the settings of notices, without secrets; without receivers and events if there is no file.

    Raises:
        Refused: Other users may read the file.
        ConfigError: The file is not valid.
    """
    file = notice_events.settings_path()
    if not file.exists():
        return Notices(str(file), [], None, [])
    notice_settings = settings.read_settings(file)
    found = [ReceiverStatus(name, one.kind, one.address) for name, one in notice_settings.receivers.items()]
    return Notices(str(file), list(notice_settings.events), notice_settings.least_minutes, found)


def try_notices() -> Notices:
    """Sends a test message to each receiver, and returns the receivers with the results.

    Raises:
        NotFound: There is no file of settings.
        Refused, ConfigError: As `notices`.
    """
    settings.read_settings(notice_events.settings_path())
    found = notices()
    with ThreadPoolExecutor(_MAX_PARALLEL) as pool:
        results = list(pool.map(test_message.send_test, range(len(found.receivers))))
    checked = [
        msgspec.structs.replace(one, why_not=why_not)
        for one, why_not in zip(found.receivers, results, strict=True)
    ]
    return msgspec.structs.replace(found, receivers=checked)
