"""Takes leases: the right to use a card, or part of one, respected by all users of the machine who compute
through roost. `roost.devices.lease_files` describes the files.

::

    take:    lock the folders of the cards, in the order of their ids (no deadlock)
             remove this user's ended leases, after adding them to `roost.devices.usage_ledger`
             does each card have enough free capacity?    no: CardsBusy, with the leases in the way
             create one file for each card, and take its flock
    pass on: give the descriptors to guard and supervisor; close the own ones
    end:     when the last descriptor is closed, however its process ended
"""

# Not durable: a lease is a lock; nothing resumes from its file

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from roost.base import durable
from roost.base.errors import Refused
from roost.base.system import process_identity
from roost.base.system.worker_protocol import LEASE_VARIABLE
from roost.base.text.byte_sizes import format_memory
from roost.base.text.word_list import join_names
from roost.devices import lease_files, usage_ledger
from roost.devices.card import Card
from roost.devices.lease_files import CardLease, LeaseRecord

_PROCESS_LIMIT_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class CardsBusy(Refused):
    """Other leases leave too little of the requested cards.

    Args:
        message: See `RoostError`.
        leases: The live leases of each card that is too full, by its id.
        fix: See `RoostError`.
    """

    def __init__(
        self, message: str, *, leases: Mapping[str, Sequence[CardLease]], fix: str | None = None
    ) -> None:
        super().__init__(message, fix=fix)
        self.leases = leases


class LeaseHolder(NamedTuple):
    """The process that takes a lease, as its file names it."""

    pid: int
    start_ticks: int | None
    boot_id: str
    package: str
    task: str

    @classmethod
    def this_process(cls, task: str = "", package: str = "") -> Self:
        """Returns the calling process as the holder, for a task of the lab or a package."""
        return cls(
            os.getpid(), process_identity.start_ticks(os.getpid()), process_identity.boot_id(), package, task
        )


class Leases:
    """The leases that one call of `take` gave.

    Args:
        token: Identifies them.
        fds: One descriptor for each card. A process with a copy of a descriptor holds that lease.
        card_ids: The ids of these cards.
    """

    def __init__(self, token: str, fds: Sequence[int], card_ids: Sequence[str] = ()) -> None:
        self.token, self.fds, self.card_ids = token, tuple(fds), tuple(card_ids)

    def environment(self) -> dict[str, str]:
        """Returns the variables for a process that runs under these leases: with them, processes that it
        starts may use the same cards."""
        return {LEASE_VARIABLE: self.token}

    def close(self) -> None:
        """Closes the descriptors of this process. Never LOCK_UN, which would end the leases also for the
        processes they were passed on to."""
        fds, self.fds = self.fds, ()
        for fd in fds:
            os.close(fd)


class _CardRequest(NamedTuple):
    """The memory requested of each card, and the leases that may share it."""

    mb: int | None
    reserve_mb: int
    parent_token: str


def take(
    cards: Sequence[Card],
    mb: int | None,
    holder: LeaseHolder,
    *,
    reserve_mb: int = 0,
    parent_token: str = "",
) -> Leases:
    """Takes a lease of each card, or none at all.

    Args:
        cards: The cards, each once.
        mb: Memory of each card; None: the whole cards, which are then not shared.
        holder: The process that takes the leases.
        reserve_mb: Memory of each card that is never leased.
        parent_token: The token of leases that do not count as occupied, because the calling process runs
            under them (`Leases.environment`).

    Raises:
        CardsBusy: Other leases leave too little.
        Refused: A card is too small, the folder cannot be used or written to, or another process keeps it
            locked.
        OSError: This process has reached its limit of open files, or memory.
    """
    assert len({card.id for card in cards}) == len(cards)
    assert mb is None or mb > 0
    request = _CardRequest(mb, reserve_mb, parent_token)
    _check_size(cards, request)
    root = lease_files.make_shared_folder(lease_files.leases_folder())
    deadline = time.monotonic() + lease_files.ADMISSION_WAIT_SECONDS
    with ExitStack() as stack:
        locked: list[tuple[Card, int]] = []
        for card in sorted(cards, key=lambda card: card.id):
            path = lease_files.make_shared_folder(lease_files.card_folder(root, card.id))
            fd = stack.enter_context(lease_files.locked_folder(path, fcntl.LOCK_EX, deadline=deadline))
            locked.append((card, fd))
        found = {card.id: _other_leases(root, card, fd, request) for card, fd in locked}
        full = [card for card in cards if not _fits(card, found[card.id], request)]
        if full:
            raise _busy_error(full, found, mb)
        return _write_leases(locked, mb, holder, card_ids=[card.id for card in cards])


def unleased_cards(cards: Sequence[Card]) -> list[Card]:
    """Returns the cards without a live lease."""
    return cards_with_capacity(cards, None)


def cards_with_capacity(cards: Sequence[Card], mb: int | None, *, reserve_mb: int = 0) -> list[Card]:
    """Returns the cards whose live leases leave the requested memory; for the arguments see `take`."""
    request = _CardRequest(mb, reserve_mb, "")
    return [card for card in cards if _fits(card, lease_files.live_leases(card.id), request)]


def _check_size(cards: Sequence[Card], request: _CardRequest) -> None:
    for card in cards:
        available_mb = card.total_mb - request.reserve_mb
        if request.mb is not None and card.total_mb and request.mb > available_mb:
            raise Refused(
                f"{format_memory(request.mb)} were requested of GPU {card.number} ({card.name}), which has "
                f"{format_memory(card.total_mb)}, of which {format_memory(request.reserve_mb)} stay free",
                fix=f"request at most {format_memory(available_mb)}, or a larger card",
            )


def _other_leases(root: Path, card: Card, fd: int, request: _CardRequest) -> list[CardLease]:
    """The live leases of a card that are in the way of the request; removes this user's ended ones."""
    found = lease_files.read_leases(fd, card.id)
    for lease in found:
        if lease.is_live or lease.uid != os.geteuid():
            continue
        with suppress(OSError, Refused):  # then the file stays, and counts like the row in the ledger
            usage_ledger.record_usage(root, lease)
            os.unlink(lease_files.file_name(lease.uid, lease.token), dir_fd=fd)
    return [lease for lease in found if lease.is_live and lease.token != request.parent_token]


def _fits(card: Card, others: Sequence[CardLease], request: _CardRequest) -> bool:
    if not others:
        return True
    if card.exclusive:
        return False
    parts = [lease.record.mb for lease in others]
    # Without a known size of the card it is unknown whether two parts fit.
    if request.mb is None or None in parts or not card.total_mb:
        return False
    return sum(mb for mb in parts if mb is not None) + request.mb <= card.total_mb - request.reserve_mb


def _busy_error(full: Sequence[Card], found: Mapping[str, Sequence[CardLease]], mb: int | None) -> CardsBusy:
    leases = {card.id: found[card.id] for card in full}
    each = [
        f"GPU {card.number} ({card.name}{f', {format_memory(card.total_mb)}' if card.total_mb else ''}) "
        f"is held by {join_names([str(lease) for lease in leases[card.id]])}"
        for card in full
    ]
    amount = "the whole card was" if mb is None else f"{format_memory(mb)} were"
    return CardsBusy(
        f"{amount} requested, but {'; '.join(each)}",
        leases=leases,
        fix="wait until it is free, or take another card",
    )


def _write_leases(
    locked: Sequence[tuple[Card, int]], mb: int | None, holder: LeaseHolder, *, card_ids: Sequence[str]
) -> Leases:
    token, since, fds = secrets.token_hex(8), time.time(), []
    name = lease_files.file_name(os.geteuid(), token)
    try:
        for card, folder_fd in locked:
            record = LeaseRecord(
                pid=holder.pid,
                start_ticks=holder.start_ticks,
                boot_id=holder.boot_id,
                user=lease_files.user_name(os.geteuid()),
                mb=mb,
                share=1.0 if mb is None or not card.total_mb else min(1.0, mb / card.total_mb),
                since=since,
                package=holder.package,
                task=holder.task,
            )
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=folder_fd)
            fds.append(fd)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(fd, 0o644)  # a narrow umask would hide it from the others
            durable.append(fd, msgspec.json.encode(record))
    except BaseException as error:
        for (_, folder_fd), fd in zip(locked, fds, strict=False):
            with suppress(OSError):  # once closed, a remaining file is an ended lease
                os.unlink(name, dir_fd=folder_fd)
            os.close(fd)
        if isinstance(error, OSError) and error.errno not in _PROCESS_LIMIT_ERRORS:
            raise Refused(
                f"a lease of GPU {card.number} cannot be written: {error.strerror}",
                where=lease_files.card_folder(lease_files.leases_folder(), card.id),
                fix=f"free space or repair that disk, or name another folder in {lease_files.VARIABLE}",
            ) from error
        raise
    return Leases(token, fds, card_ids)
