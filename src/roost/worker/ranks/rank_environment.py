"""Rank and world size of a worker, read from the environment variables of its launcher."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from roost.base.system.worker_protocol import TOKEN_VARIABLE

_TORCHRUN_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
_SLURM_NAMES = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")


class RankEnvironment(NamedTuple):
    """Rank and world size of one of several ranks."""

    rank: int
    world_size: int
    """World size: number of ranks."""
    local_rank: int
    """Index among the ranks of this machine."""


def read_rank_environment(environ: Mapping[str, str] = os.environ) -> RankEnvironment | None:
    """Returns rank and world size of this process; None if it is the only one.

    A supervisor and torchrun use the same variables. A task of srun is a rank if MASTER_ADDR says where the
    ranks meet. Slurm's variables are ignored in a process that a supervisor started: in a batch script they
    describe the script.
    """
    names = _TORCHRUN_NAMES
    if "RANK" not in environ and "MASTER_ADDR" in environ and TOKEN_VARIABLE not in environ:
        names = _SLURM_NAMES
    if not all(name in environ for name in names):
        return None
    found = RankEnvironment(*(int(environ[name]) for name in names))
    return found if found.world_size > 1 else None
