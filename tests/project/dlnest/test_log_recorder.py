from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from roost.package.records import fold
from roost.project.dlnest.log_recorder import LogRecorder
from roost.train.distributed.ranks import Ranks
from roost.train.progress import Progress


def recorder(folder: Path, log: dict[str, Any], *, rank: int = 0, session: int = 1) -> LogRecorder:
    project: Any = SimpleNamespace(log=log, ranks=Ranks(rank=rank, world_size=2))
    made = LogRecorder(project)
    made.begin(folder / "records", session, start_step=0)
    return made


def test_a_row_has_what_training_and_validation_add(tmp_path: Path) -> None:
    log: dict[str, Any] = {"loss": [1.0]}
    rows = recorder(tmp_path, log)
    rows.collect("train")
    log["acc"] = 0.5
    rows.collect("valid")
    assert rows.results == {"valid/acc": 0.5}
    rows.write(Progress(step=3, epoch=1))
    rows.write(Progress(step=4, epoch=1))
    rows.close()
    [row] = fold(tmp_path / "records").rows
    assert (row["step"], row["epoch"], row["train/loss"], row["valid/acc"]) == (3, 1, 1.0, 0.5)


def test_a_row_that_is_not_written_yet_is_part_of_the_state(tmp_path: Path) -> None:
    log: dict[str, Any] = {"loss": [1.0, 3.0]}
    first = recorder(tmp_path, log)
    first.collect("train")
    second = recorder(tmp_path, log, session=2)
    second.load_state_dict(first.state_dict())
    first.close()
    second.collect("train")
    second.write(Progress(step=1))
    second.close()
    assert [row["train/loss"] for row in fold(tmp_path / "records").rows] == [2.0]


def test_another_rank_records_nothing(tmp_path: Path) -> None:
    rows = recorder(tmp_path, {"loss": [1.0]}, rank=1)
    rows.collect("train")
    rows.write(Progress(step=1))
    rows.sync()
    rows.close()
    assert not (tmp_path / "records").exists()


def test_a_full_disk_is_said_once_and_the_row_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from roost.base import durable

    log: dict[str, Any] = {"loss": [1.0]}
    rows = recorder(tmp_path, log)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(durable, "append", full)
        for step in (1, 2):
            log["loss"].append(float(step))
            rows.collect("train")
            rows.write(Progress(step=step))
    assert capsys.readouterr().out.count("records not written") == 1
    rows.close()
    assert [row["step"] for row in fold(tmp_path / "records").rows] == [1, 2]
