from __future__ import annotations

import pytest

from roost.project.dlnest.classes.running_status import RunningStatus
from roost.train.distributed.ranks import Ranks


@pytest.mark.parametrize(
    ("device", "ranks", "expected"),
    [
        ("cpu", Ranks(), ("CPU", -1, 1)),
        ("cuda:1", Ranks(), ("GPU", -1, 1)),
        ("cuda:1", Ranks(rank=1, world_size=2), ("DDP", 1, 2)),
        ("cpu", Ranks(rank=0, world_size=2), ("DDP", 0, 2)),
    ],
)
def test_where_a_process_runs(device: str, ranks: Ranks, expected: tuple[str, int, int]) -> None:
    status = RunningStatus(device, ranks)
    assert (status.env, status.rank, status.worldSize) == expected


@pytest.mark.parametrize("word", ["Training", "Validating", "Analyzing", "Waiting"])
def test_what_a_process_does(word: str) -> None:
    status = RunningStatus()
    assert (status.isWaiting(), status.epoch, status.iter) == (True, 0, 0)
    status.status = word
    found = {
        name: getattr(status, f"is{name}")() for name in ("Training", "Validating", "Analyzing", "Waiting")
    }
    assert found == {name: name == word for name in found}
