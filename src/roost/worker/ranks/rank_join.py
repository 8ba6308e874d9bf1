"""Joining the ranks of a session: rendezvous, check that all have the same run, diagnosis of a lost rank."""

from __future__ import annotations

import datetime
import hashlib
import os
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from torch._C._distributed_c10d import FileStore, PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from roost import __version__
from roost.base.errors import ConfigError, PeerLost, RanksApart, RoostError
from roost.base.interval import parse_duration
from roost.base.system.worker_protocol import RENDEZVOUS_VARIABLE
from roost.config.run_settings import RunSettings
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.train.accelerators.registry import accelerator_of
from roost.train.distributed import ranks
from roost.train.distributed.control_channel import describe_points
from roost.train.distributed.ranks import ALONE, Ranks
from roost.worker.ranks import rank_locations
from roost.worker.ranks.rank_environment import RankEnvironment

_JOIN_SECONDS = 300.0
"""How long the ranks of a session may take to start, imports included."""
_ANSWER_SECONDS = 1.0
"""How long a rank may take to answer where it is; shorter than the time that is left once one has failed."""


def join(this_rank: RankEnvironment | None, settings: RunSettings, device: str) -> Ranks:
    """Joins the process group of all ranks. Returns `ALONE` for a single process.

    Args:
        this_rank: Rank and world size; None for a single process.
        settings: RunSettings of the run.
        device: Device of this rank.

    Raises:
        RoostError: Not all ranks came, or they cannot connect to each other.
    """
    if this_rank is None or this_rank.world_size == 1:
        return ALONE
    try:
        return ranks.join(
            _store(this_rank),
            this_rank.rank,
            this_rank.world_size,
            local_rank=this_rank.local_rank,
            backend=accelerator_of(device).collective_backend,
            timeout_seconds=parse_duration(settings.rank_timeout, setting="rank_timeout"),
        )
    except (RuntimeError, ValueError) as error:  # the classes of torch's errors of stores and groups
        first_line = str(error).partition("\n")[0]
        raise RoostError(
            f"rank {this_rank.rank} could not join the other {this_rank.world_size - 1}: {first_line}",
            fix="on several machines, use the same --rendezvous and --num-nodes, and a port that is free",
        ) from error


def _store(this_rank: RankEnvironment) -> Store:
    """Returns the store for the rendezvous: a file of this machine, else the address from the launcher."""
    timeout = datetime.timedelta(seconds=_JOIN_SECONDS)
    if (path := os.environ.get(RENDEZVOUS_VARIABLE)) is not None:
        store = FileStore(path, this_rank.world_size)
        store.set_timeout(timeout)
        return store
    found: Store
    found, _, _ = next(rendezvous("env://", this_rank.rank, this_rank.world_size, timeout=timeout))
    return PrefixStore("roost", found)


@contextmanager
def diagnosing_lost_ranks(ranks: Ranks, settings: RunSettings, folder: Path) -> Iterator[None]:
    """If another rank stops answering inside, finds out which one: every rank that still can reports its code
    location through the store.

    Args:
        ranks: All ranks.
        settings: RunSettings of the run.
        folder: Folder of the project's code.

    Raises:
        PeerLost: Some ranks do not answer.
        RanksApart: All ranks answer, from different code locations.
    """
    if not ranks.are_several:
        yield
        return
    with rank_locations.LocationResponder(ranks, folder):
        try:
            yield
        except BaseException as error:
            from roost.worker import failure_report  # imported here: a successful run does not need it

            with suppress(RuntimeError):  # the store is gone, too
                if not failure_report.is_peer_loss(error):
                    rank_locations.gather_locations(ranks, "", 0.0)
                elif found := _diagnosis(error, ranks, settings, folder):
                    raise found from error
            raise


def _diagnosis(
    error: BaseException, ranks: Ranks, settings: RunSettings, folder: Path
) -> PeerLost | RanksApart | None:
    """Returns why another rank does not answer; None if that rank reports an error of its own."""
    own = rank_locations.code_location(traceback.extract_tb(error.__traceback__), folder)
    places = rank_locations.gather_locations(ranks, own, _ANSWER_SECONDS)
    if silent := [rank for rank in range(ranks.world_size) if rank not in places]:
        return _peer_lost(silent, settings)
    if not all(places.values()) or len(set(places.values())) == 1:
        return None
    return RanksApart(
        f"after {settings.rank_timeout} (rank_timeout) the ranks are at different places: "
        f"{describe_points(list(places.values()))}",
        fix="save, evaluate and gather on every rank alike; or set a longer rank_timeout, if one rank only "
        "takes that long",
    )


def _peer_lost(silent: list[int], settings: RunSettings) -> PeerLost:
    subject = f"rank {silent[0]} does" if len(silent) == 1 else f"ranks {', '.join(map(str, silent))} do"
    return PeerLost(f"{subject} not answer: gone, or silent for {settings.rank_timeout} (rank_timeout)")


def require_same_run(package: PackageFolder, ranks: Ranks) -> None:
    """Makes sure that every rank has the same settings, code, checkpoints and versions.

    Raises:
        ConfigError: They differ; raised on rank 0, which names the first difference.
        PeerLost: They differ; raised on the other ranks.
    """
    first, *others = ranks.control.gather(_run_fingerprint(package), "the start")
    for rank, other in enumerate(others, 1):
        different = [what for what in first if other[what] != first[what]]
        if different and not ranks.is_main:
            raise PeerLost(f"rank {rank} has other {different[0]} than rank 0")
        if different:
            what = different[0]
            raise ConfigError(
                f"rank {rank} has other {what} than rank 0: {other[what]} instead of {first[what]}",
                where=package.path,
                fix="give all machines the same package, on a disk that they share, and the same environment",
            )


def _run_fingerprint(package: PackageFolder) -> Mapping[str, str]:
    """Returns the values that must be the same on every rank, as short texts for a message."""
    return {
        "settings": _digest(repr(package.settings).encode()),
        "code": _digest((package.path / "manifest.json").read_bytes()),
        "checkpoints": ", ".join(map(str, checkpoint.ids(package.checkpoints))) or "none",
        "roost": __version__,
        "torch": str(torch.__version__),
    }


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]
