"""``devices --history``: what the cards and the host of this machine did, and who held the cards."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from roost.base.interval import parse_duration
from roost.devices import lease_files, usage_ledger
from roost.devices.sampling import sample_ring
from roost.devices.sampling.machine_columns import HOST
from roost.devices.sampling.sample_ring import MachineSample, RingReader
from roost.operations.devices.device_list import DEFAULT_SINCE
from roost.operations.reading.system_details import HostUseDetails

_SPAN_SHARE = 0.98
"""A level of samples is used for a time up to this share of its own, whose oldest records may be missing."""


class CardHolding(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which a user held a card. Unix seconds."""

    user: str
    begin: float
    end: float | None
    """None: still."""
    package: str = ""
    """Empty: not known, because the lease has ended."""


class CardHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A card over the times of the `MachineHistory`."""

    number: int
    id: str
    name: str
    total_mb: int
    columns: dict[str, list[float | None]]
    """One value for each time, by `machine_columns.CARD_COLUMNS`; None: not measured."""
    holders: list[CardHolding]


class MachineHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The samples of this machine since a moment."""

    since: float
    """Unix seconds, as all times here."""
    until: float
    seconds: float
    """The time between two values, as far as they are not newer: the newest ones may be closer."""
    times: list[float]
    """The end of each interval, ascending."""
    cards: list[CardHistory]
    host: dict[str, list[float | None]]
    """By `machine_columns.HOST_COLUMNS`."""
    machine: HostUseDetails
    sampler_pid: int | None
    """The process that samples now; None: none does, as no session runs."""
    trouble: str
    """Why there are no samples of the cards now; empty: there are, or there are no cards."""


def history(since: str = DEFAULT_SINCE) -> MachineHistory:
    """Returns what was sampled of this machine, at the finest interval that is stored for so long a time.

    Args:
        since: How far back: ``30min``, ``12h``; about a day is stored.

    Raises:
        ConfigError: The text is not a duration.
    """
    duration, now = parse_duration(since, setting="--since"), time.time()
    ring = sample_ring.newest_ring(str(lease_files.leases_folder() / lease_files.SAMPLES_FOLDER))
    if ring is None:
        return MachineHistory(
            since=now - duration,
            until=now,
            seconds=1.0,
            times=[],
            cards=[],
            host={},
            machine=HostUseDetails(),
            sampler_pid=None,
            trouble="",
        )
    try:
        return _history(ring, duration, now)
    finally:
        ring.close()


def _history(ring: RingReader, duration: float, now: float) -> MachineHistory:
    level = _level(ring, duration)
    boot_now = sample_ring.boot_seconds()
    # The times are those of the clock as it is now: a change of it would tear them apart.
    samples = list(_samples(ring, level, boot_now - duration))
    times = [round(now - (boot_now - one.boot_seconds), 3) for one in samples]
    by_column = zip(*(one.values for one in samples), strict=True)
    columns = dict(zip(ring.columns, map(_checked, by_column), strict=False))  # none without samples
    holders = _holders([card["id"] for card in ring.header.cards], now - duration)
    is_live = bool(samples) and boot_now - samples[-1].boot_seconds < sample_ring.FRESH_SECONDS
    return MachineHistory(
        since=now - duration,
        until=now,
        seconds=ring.header.levels[level][0],
        times=times,
        cards=[
            CardHistory(
                number=number,
                id=card["id"],
                name=card["name"],
                total_mb=card["total_mb"],
                columns={name: columns.get(f"{card['id']}/{name}", []) for name in ring.header.card_columns},
                holders=holders[card["id"]],
            )
            for number, card in enumerate(ring.header.cards)
        ],
        host={name: columns.get(f"{HOST}/{name}", []) for name in ring.header.host_columns},
        machine=_machine(ring.header.host),
        sampler_pid=ring.header.pid if is_live else None,
        trouble=sample_ring.STATES[samples[-1].state] if is_live else "",
    )


def _machine(host: dict[str, object]) -> HostUseDetails:
    try:
        return msgspec.convert(host, HostUseDetails)
    except msgspec.ValidationError:  # of another user
        return HostUseDetails()


def _level(ring: RingReader, duration: float) -> int:
    """Returns the finest level that reaches back so far; else the coarsest."""
    spans = [seconds * count * _SPAN_SHARE for seconds, count in ring.header.levels]
    return next((level for level, span in enumerate(spans) if span >= duration), len(spans) - 1)


def _samples(ring: RingReader, level: int, begin: float) -> Iterator[MachineSample]:
    """Yields the samples of a level since ``begin``, in seconds since boot; those of the newest interval,
    which has not ended yet, from the finer levels."""
    for one in range(level, -1, -1):
        for sample in ring.level(one):
            if sample.boot_seconds > begin:
                yield sample
                begin = sample.boot_seconds


def _checked(values: Sequence[float]) -> list[float | None]:
    return [None if math.isnan(value) else round(value, 3) for value in values]


def _holders(cards: Sequence[str], begin: float) -> dict[str, list[CardHolding]]:
    """Returns who held each card: by the leases that live, those whose files are left, and those in the usage
    ledgers."""
    found: defaultdict[str, dict[tuple[str, float], CardHolding]] = defaultdict(dict)
    for user, row in usage_ledger.rows_since(begin):
        for card in row.cards:
            held = CardHolding(user=user, begin=row.start, end=row.end)
            found[card][user, row.start] = held
    try:
        leases = lease_files.all_leases(lease_files.leases_folder(), first=cards)
    except OSError:
        leases = []
    for lease in leases:
        if lease.blocked or (not lease.is_live and lease.ended < begin):
            continue
        held = CardHolding(
            user=lease.user,
            begin=lease.record.since,
            end=None if lease.is_live else lease.ended,
            package=os.path.basename(lease.record.package),  # noqa: PTH119
        )
        found[lease.card][lease.user, round(lease.record.since, 3)] = held
    return {card: sorted(found[card].values(), key=lambda one: one.begin) for card in cards}
