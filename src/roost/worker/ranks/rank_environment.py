"""Where a worker stands among the ranks, by the variables of whoever started it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from roost.base.system.worker_protocol import TOKEN_VARIABLE

_TORCHRUN_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
_SLURM_NAMES = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")


class RankEnvironment(NamedTuple):
    """One of several ranks."""

    rank: int
    world: int
    """Number of ranks."""
    local_rank: int
    """Among those of this machine."""


def read_rank_environment(environ: Mapping[str, str] = os.environ) -> RankEnvironment | None:
    """Which of the ranks this process is; None when it is alone.

    A supervisor and torchrun tell by the same names. A task of srun is a rank if it was told where the ranks
    meet (MASTER_ADDR). What a supervisor has started is none by Slurm's names: in a batch script they tell of
    the script.
    """
    names = _TORCHRUN_NAMES
    if "RANK" not in environ and "MASTER_ADDR" in environ and TOKEN_VARIABLE not in environ:
        names = _SLURM_NAMES
    if not all(name in environ for name in names):
        return None
    found = RankEnvironment(*(int(environ[name]) for name in names))
    return found if found.world > 1 else None
