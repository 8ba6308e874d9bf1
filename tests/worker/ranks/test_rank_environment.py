from __future__ import annotations

import pytest

from roost.worker.ranks.rank_environment import RankEnvironment, read_rank_environment

SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"RANK": "1", "WORLD_SIZE": "3", "LOCAL_RANK": "1"}, RankEnvironment(1, 3, 1)),
        ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}, None),
        ({**SLURM, "MASTER_ADDR": "node1"}, RankEnvironment(3, 4, 1)),
        (SLURM, None),  # `roost run` typed inside a job
        ({**SLURM, "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, RankEnvironment(0, 2, 0)),
    ],
)
def test_place(environment: dict[str, str], expected: RankEnvironment | None) -> None:
    assert read_rank_environment(environment) == expected
