"""One checkpoint of several ranks: one folder, whole or not there; an error of one is an error of all."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from roost.base import durable
from roost.base.errors import PeerLost, RoostError
from roost.package.checkpoints import checkpoint
from roost.train.checkpointing import checkpoint_writer
from roost.train.checkpointing.checkpoint_writer import PendingSave, TornCopy, WritePace, prepare_together
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.distributed.ranks import Ranks
from roost.train.progress import Progress
from tests.messages import Messages
from tests.train.team import team


class Value:
    """A part; `optional` as that of a rank."""

    def __init__(self, value: Any, *, optional: bool = False) -> None:
        self.value, self.optional = value, optional

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


def parts(rank: int, value: float) -> dict[str, Any]:
    own = Value(torch.full((3,), float(rank)), optional=rank > 0)
    return {"model": Value(torch.full((4, 2), value)), f"rank-{rank}": own}


def save(checkpoints: Checkpoints, ranks: Ranks, step: int) -> PendingSave:
    return checkpoints.save(parts(ranks.rank, float(step)), Progress(step=step), prints_error=False)


def test_all_ranks_write_one_checkpoint_and_any_number_loads_it(tmp_path: Path) -> None:
    def writes(ranks: Ranks) -> tuple[str, int]:
        checkpoints = Checkpoints(tmp_path, ranks=ranks)
        save(checkpoints, ranks, 1)
        path = save(checkpoints, ranks, 2).wait()
        assert checkpoints.newest is not None
        return path.name, checkpoints.newest.step

    assert team(3, writes) == [("state_1.ckpt", 2)] * 3
    info = checkpoint.verify(tmp_path / "state_1.ckpt")
    files = sorted(f"{name}{ending}" for name in parts(0, 0) for ending in (".json", ".safetensors"))
    others = [f"rank-{rank}{ending}" for rank in (1, 2) for ending in (".json", ".safetensors")]
    assert info.ranks == 3 and sorted(info.files) == sorted([*files, *others])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state_0.ckpt", "state_1.ckpt"]

    damaged = tmp_path / "state_1.ckpt" / "rank-2.safetensors"  # which fewer ranks do not read
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")

    def loads(ranks: Ranks) -> list[Any]:
        into, checkpoints = parts(ranks.rank, 0.0), Checkpoints(tmp_path, ranks=ranks)
        info, _ = checkpoints.load(into)
        assert info is not None and checkpoints.newest == info
        save(checkpoints, ranks, 9).wait()
        return [info.step, float(into["model"].value[0, 0]), into[f"rank-{ranks.rank}"].value.tolist()]

    assert team(2, loads) == [[1, 1.0, [0.0] * 3], [1, 1.0, [1.0] * 3]], "the one before the damaged one"
    (tmp_path / "state_2.ckpt").rename(tmp_path / "aside")
    assert [one[2] for one in team(4, loads)] == [[float(rank)] * 3 for rank in range(4)]


def test_each_rank_writes_its_own_shards_and_one_process_reads_them_as_one(tmp_path: Path) -> None:
    whole = torch.arange(10.0).reshape(5, 2)

    def work(ranks: Ranks) -> None:
        mesh = init_device_mesh("cpu", (ranks.world_size,))
        value = distribute_tensor(whole, mesh, [Shard(0)])
        saved = Checkpoints(tmp_path, ranks=ranks).save(
            {"model": Value(value)}, Progress(step=1), defer=[value], prints_error=False
        )
        saved.wait_until_copied()
        value.to_local().zero_()
        saved.wait()

    team(2, work)
    path = tmp_path / "state_0.ckpt"
    shards = ["model.shard-0.safetensors", "model.shard-1.safetensors"]
    assert sorted(checkpoint.verify(path).files) == ["model.json", *shards]
    read = Value(None)
    Checkpoints(tmp_path).load({"model": read})
    assert torch.equal(read.value, whole)


def fails_on(rank: int, operation: str) -> Callable[[Ranks], list[str]]:
    """Saves three times, of which the second fails on one rank; gives what came of them on this one."""

    def work(ranks: Ranks) -> list[str]:
        place = Path("Checkpoints")
        checkpoints, results = Checkpoints(place, ranks=ranks), []
        for step in (1, 2, 3):

            def fault(what: str, path: str, step: int = step) -> None:
                if step == 2 and ranks.rank == rank and what == operation and "state_" in path:
                    raise OSError(errno.EIO, "Input/output error", path)

            durable.fault = fault
            try:
                results.append(save(checkpoints, ranks, step).wait().name)
            except OSError as error:
                results.append(str(error).partition(": '")[0])
            assert checkpoints.newest is not None and checkpoints.newest.step == (1 if step == 2 else step)
        return results

    return work


@pytest.mark.parametrize(
    ("rank", "operation"), [(1, "write"), (2, "fsync"), (0, "write"), (0, "mkdir"), (0, "rename")]
)
def test_an_error_of_one_rank_is_raised_on_all_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int, operation: str
) -> None:
    monkeypatch.chdir(tmp_path)
    results = team(3, fails_on(rank, operation))
    said = f"[Errno 5] rank {rank}: Input/output error"
    assert [one[0] for one in results] == ["state_0.ckpt"] * 3
    assert [one[1] for one in results] == [said] * 3
    assert [one[2] for one in results] == ["state_1.ckpt"] * 3
    names = sorted(path.name for path in (tmp_path / "Checkpoints").iterdir())
    assert names == ["state_0.ckpt", "state_1.ckpt"]


def test_what_one_rank_tore_none_writes(tmp_path: Path) -> None:
    def work(ranks: Ranks) -> list[str]:
        checkpoints, value = Checkpoints(tmp_path, ranks=ranks), torch.zeros(3)
        part = {f"rank-{ranks.rank}": Value(value)}
        saved = checkpoints.save(part, Progress(step=1), defer=[value], prints_error=False)
        value += ranks.rank
        with pytest.raises(TornCopy):
            saved.wait()
        return [path.name for path in tmp_path.iterdir()]

    assert team(2, work)[1] == []


def test_a_rank_that_is_gone_ends_the_save_of_the_others_and_the_previous_one_remains(
    tmp_path: Path, messages: Messages
) -> None:
    def work(ranks: Ranks) -> str:
        checkpoints = Checkpoints(tmp_path, ranks=ranks)
        save(checkpoints, ranks, 1).wait()
        if ranks.rank == 1:
            return "gone"
        try:
            save(checkpoints, ranks, 2).wait()
        except PeerLost as error:
            return str(error)
        return "saved"

    left, gone = team(2, work)
    assert gone == "gone" and left != "saved"
    messages.check(left)
    checkpoint.verify(tmp_path / "state_0.ckpt")
    assert not (tmp_path / "state_1.ckpt").exists()


def test_what_rank_0_cannot_load_no_rank_loads(tmp_path: Path, messages: Messages) -> None:
    place = tmp_path / "Checkpoints"
    Checkpoints(place).save({"model": Value(np.ones(2))}, Progress(step=1)).wait()
    (place / "state_0.ckpt" / "model.json").write_bytes(b"{}")

    def work(ranks: Ranks) -> str:
        try:
            Checkpoints(place, ranks=ranks).load(parts(ranks.rank, 0.0))
        except RoostError as error:
            return f"{type(error).__name__}: {error}"
        return "loaded"

    said = team(2, work)
    assert said[0].startswith("CheckpointError: ") and said[1].startswith("PeerLost: ")
    assert "rank 0" in said[1]
    messages.check(said[0])
    messages.check(said[1])


def test_what_one_rank_has_no_space_for_no_rank_begins_to_save() -> None:
    def work(ranks: Ranks) -> str:
        def sync() -> None:
            if ranks.rank == 1:
                raise OSError(errno.ENOSPC, "No space left on device")

        with pytest.raises(OSError, match=r"rank 1\b.*No space left on device") as raised:
            prepare_together(ranks, sync)
        prepare_together(ranks, lambda: None)
        return errno.errorcode[raised.value.errno or 0]

    assert team(3, work) == ["ENOSPC"] * 3


def test_it_is_written_with_rests_until_a_wait() -> None:
    pace, written = WritePace(), []
    pieces = [memoryview(b"x")] * 5

    def writes() -> None:
        for piece in pace(iter(pieces)):
            written.append(bytes(piece))
            threading.Event().wait(0.01)

    pace._hurry = Rests()
    writes()
    assert len(written) == 5 and len(pace._hurry.rests) == 5 and min(pace._hurry.rests) > 0.01
    pace.hurry()
    writes()
    assert len(written) == 10 and len(pace._hurry.rests) == 5


class Rests(threading.Event):
    """Counts how long it was waited for, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.rests: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.rests.append(timeout or 0.0)
        return self.is_set()


@pytest.mark.parametrize(
    ("seconds", "interval", "rest"),
    [(0.0, 10.0, 4.0), (1.0, 100.0, 4.0), (1.0, 5.0, 2.0), (1.0, 1.0, 0.0), (3.0, 0.1, 0.0)],
)
def test_what_is_saved_often_is_written_with_fewer_rests(
    seconds: float, interval: float, rest: float
) -> None:
    assert checkpoint_writer.rest_ratio(seconds, interval) == pytest.approx(rest)
