"""Several ranks in forked processes: a gloo group exists in each within a tenth of a second."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # the first optimizer imports it: a second in each rank otherwise
import torch.distributed as dist

from roost.train.distributed import ranks
from roost.train.distributed.ranks import Ranks
from tests.waiting import MAX_SECONDS

SECONDS = MAX_SECONDS


class RankFailed(AssertionError):
    """A rank raised; its traceback is the message."""


def team(
    world: int, work: Callable[[Ranks], Any], *, seconds: float = SECONDS, timeout_seconds: float = SECONDS
) -> list[Any]:
    """Calls ``work(ranks)`` in ``world`` new processes that are one group; gives what each returned.

    Args:
        world: Number of ranks.
        work: What each does, on one thread (a pool of threads does not survive a fork).
        seconds: After which all are killed.
        timeout_seconds: How long one waits for another.

    Raises:
        RankFailed: The first rank that raised, or what is known of one that ended or never did.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pids = [_fork(rank, world, work, folder, timeout_seconds) for rank in range(world)]
        _wait(pids, seconds)
        found = []
        for rank in range(world):
            failed, result = folder / f"{rank}.error", folder / f"{rank}.result"
            if failed.exists():
                raise RankFailed(f"rank {rank}:\n{failed.read_text()}")
            found.append(pickle.loads(result.read_bytes()) if result.exists() else RankFailed)  # noqa: S301
        if RankFailed in found:
            raise RankFailed(f"ended without a result, or not in {seconds:g} s: {found}")
        return found


def _fork(rank: int, world: int, work: Callable[[Ranks], Any], folder: Path, timeout_seconds: float) -> int:
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        torch.set_num_threads(1)
        store = dist.FileStore(str(folder / "store"), world)
        own = ranks.join(store, rank, world, local_rank=rank, timeout_seconds=timeout_seconds)
        result = pickle.dumps(work(own))
        (folder / f"{rank}.part").write_bytes(result)
        (folder / f"{rank}.part").rename(folder / f"{rank}.result")
    except BaseException:  # noqa: BLE001  - reported by the parent
        (folder / f"{rank}.error").write_text(traceback.format_exc())
    finally:
        sys.stdout.flush()
        os._exit(0)


def _wait(pids: list[int], seconds: float) -> None:
    deadline, left = time.monotonic() + seconds, set(pids)
    while left and time.monotonic() < deadline:
        left -= {pid for pid in left if os.waitpid(pid, os.WNOHANG)[0]}
        time.sleep(0.005)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """What ranks print beside each other goes nowhere."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield
