"""The right to use a card, or a part of one, respected by every user of the machine who computes through
roost. What lies on the disk is told in `devices.held`.

::

    take:    lock the folders of the cards, in the order of their ids
             remove what is left of our own leases that have ended (`devices.usage`)
             is there room on each?    no: Busy, who holds what
             one file on each card, its flock ours
    hand on: the descriptors, to guard and supervisor; close ours
    free:    when the last descriptor is closed, however its process ended
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
    """Others hold what is asked for.

    Args:
        message: As of any error.
        held: Who holds what of each card that has no room, by its id.
        fix: As of any error.
    """

    def __init__(self, message: str, *, held: Mapping[str, Sequence[CardLease]], fix: str | None = None) -> None:
        super().__init__(message, fix=fix)
        self.held = held


class LeaseHolder(NamedTuple):
    """Who takes a lease."""

    pid: int
    start_ticks: int | None
    boot_id: str
    package: str
    task: str

    @classmethod
    def own(cls, task: str = "", package: str = "") -> Self:
        """This process, for a task of the lab or a package, as others will be told."""
        return cls(
            os.getpid(), process_identity.start_ticks(os.getpid()), process_identity.boot_id(), package, task
        )


class Leases:
    """The leases that one `take` gave.

    Args:
        token: Their name.
        fds: One descriptor for each card. Whoever has a copy of one holds that lease.
    """

    def __init__(self, token: str, fds: Sequence[int]) -> None:
        self.token, self.fds = token, tuple(fds)

    def environment(self) -> dict[str, str]:
        """For what runs under these leases: what it starts itself is not kept from the cards by them."""
        return {LEASE_VARIABLE: self.token}

    def close(self) -> None:
        """Closes the descriptors of this process, never LOCK_UN: that would take the leases from whoever they
        were handed to."""
        fds, self.fds = self.fds, ()
        for fd in fds:
            os.close(fd)


class _CardRequest(NamedTuple):
    """What is asked of each card."""

    mb: int | None
    reserve_mb: int
    under: str


def take(
    cards: Sequence[Card],
    mb: int | None,
    holder: LeaseHolder,
    *,
    reserve_mb: int = 0,
    under: str = "",
) -> Leases:
    """Takes a lease of each card, or none at all.

    Args:
        cards: Which; each once.
        mb: Of each. None: the whole cards, which then are shared with nobody.
        holder: Who takes them.
        reserve_mb: Of each card, what is given to nobody.
        under: The token of leases that are in nobody's way here, because it is under them that they are asked
            for (`Leases.environment`).

    Raises:
        Busy: Others hold what is asked for.
        Refused: A card does not have as much, the folder cannot be used or written to, or somebody blocks it.
        OSError: This process may open no more files.
    """
    assert len({card.id for card in cards}) == len(cards)
    assert mb is None or mb > 0
    asked = _CardRequest(mb, reserve_mb, under)
    _check_size(cards, asked)
    root = lease_files.make_shared_folder(lease_files.leases_folder())
    deadline = time.monotonic() + lease_files.ADMISSION_WAIT_SECONDS
    with ExitStack() as stack:
        locked: list[tuple[Card, int]] = []
        for card in sorted(cards, key=lambda card: card.id):
            path = lease_files.make_shared_folder(lease_files.card_folder(root, card.id))
            fd = stack.enter_context(lease_files.locked_folder(path, fcntl.LOCK_EX, deadline=deadline))
            locked.append((card, fd))
        found = {card.id: _other_leases(root, card, fd, asked) for card, fd in locked}
        full = [card for card in cards if not _fits(card, found[card.id], asked)]
        if full:
            raise _busy_error(full, found, mb)
        return _write_leases(locked, mb, holder)


def unleased_cards(cards: Sequence[Card]) -> list[Card]:
    """Those of the cards of which nobody holds anything now."""
    return cards_with_capacity(cards, None)


def cards_with_capacity(cards: Sequence[Card], mb: int | None, *, reserve_mb: int = 0) -> list[Card]:
    """Those of the cards whose other leases leave so much; arguments as of `take`."""
    asked = _CardRequest(mb, reserve_mb, "")
    return [card for card in cards if _fits(card, lease_files.live_leases(card.id), asked)]


def _check_size(cards: Sequence[Card], asked: _CardRequest) -> None:
    for card in cards:
        room = card.total_mb - asked.reserve_mb
        if asked.mb is not None and card.total_mb and asked.mb > room:
            raise Refused(
                f"{format_memory(asked.mb)} are asked for of GPU {card.number} ({card.name}), "
                f"which has {format_memory(card.total_mb)}, of which {format_memory(asked.reserve_mb)} stay free",
                fix=f"ask for at most {format_memory(room)}, or for a larger card",
            )


def _other_leases(root: Path, card: Card, fd: int, asked: _CardRequest) -> list[CardLease]:
    """Who stands beside us on a card; removes what is left of those of us that have ended."""
    found = lease_files.read_leases(fd, card.id)
    for lease in found:
        if lease.is_live or lease.uid != os.geteuid():
            continue
        with suppress(OSError, Refused):  # its file stays then, and counts as the row would
            usage_ledger.record_usage(root, lease)
            os.unlink(lease_files.file_name(lease.uid, lease.token), dir_fd=fd)
    return [lease for lease in found if lease.is_live and lease.token != asked.under]


def _fits(card: Card, others: Sequence[CardLease], asked: _CardRequest) -> bool:
    if not others:
        return True
    if card.exclusive:
        return False
    parts = [lease.said.mb for lease in others]
    # Of a card that does not tell how large it is nobody knows whether two parts fit.
    if asked.mb is None or None in parts or not card.total_mb:
        return False
    return sum(mb for mb in parts if mb is not None) + asked.mb <= card.total_mb - asked.reserve_mb


def _busy_error(full: Sequence[Card], found: Mapping[str, Sequence[CardLease]], mb: int | None) -> CardsBusy:
    held_by = {card.id: found[card.id] for card in full}
    each = [
        f"GPU {card.number} ({card.name}{f', {format_memory(card.total_mb)}' if card.total_mb else ''}) is held by "
        f"{join_names([str(one) for one in held_by[card.id]])}"
        for card in full
    ]
    what = "the whole card is" if mb is None else f"{format_memory(mb)} are"
    return CardsBusy(
        f"{what} asked for: {'; '.join(each)}",
        held=held_by,
        fix="wait until it is free, or take another card",
    )


def _write_leases(locked: Sequence[tuple[Card, int]], mb: int | None, holder: LeaseHolder) -> Leases:
    token, since, fds = secrets.token_hex(8), time.time(), []
    name = lease_files.file_name(os.geteuid(), token)
    try:
        for card, folder_fd in locked:
            said = LeaseRecord(
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
            durable.append(fd, msgspec.json.encode(said))
    except BaseException as error:
        for (_, folder_fd), fd in zip(locked, fds, strict=False):
            with suppress(OSError):  # what stays is nobody's, once it is closed
                os.unlink(name, dir_fd=folder_fd)
            os.close(fd)
        if isinstance(error, OSError) and error.errno not in _PROCESS_LIMIT_ERRORS:
            raise Refused(
                f"a lease of GPU {card.number} cannot be written: {error.strerror}",
                where=lease_files.card_folder(lease_files.leases_folder(), card.id),
                fix=f"make room or have that disk mended, or name another folder in {lease_files.VARIABLE}",
            ) from error
        raise
    return Leases(token, fds)
