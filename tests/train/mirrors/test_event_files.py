"""Event files as torch writes them, while they grow."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch.utils.tensorboard import SummaryWriter

from roost.train.mirrors.event_files import EventFile, Scalar, read_events


def one_file(folder: Path) -> Path:
    (path,) = folder.glob("events.out.tfevents.*")
    return path


def test_scalars_are_read_once_and_as_they_come(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("train/loss", 0.5, 1)
        writer.add_scalar("new", 0.25, 2, new_style=True)
        writer.add_scalar("double", 0.125, 2, new_style=True, double_precision=True)
        writer.add_text("words", "3", 2)
        writer.add_histogram("weights", torch.ones(3), 2)
        writer.flush()
        events = EventFile(one_file(tmp_path))
        found = list(events.new_scalars())
        assert found == [Scalar(1, "train/loss", 0.5), Scalar(2, "new", 0.25), Scalar(2, "double", 0.125)]
        writer.add_scalar("train/loss", 0.25, 3)
        writer.flush()
        assert list(events.new_scalars()) == [Scalar(3, "train/loss", 0.25)]
        assert list(events.new_scalars()) == []


def test_a_record_is_read_when_it_is_whole(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path / "all")) as writer:
        for step in range(50):
            writer.add_scalar("loss", step, step)
    whole = one_file(tmp_path / "all").read_bytes()
    path = tmp_path / "part"
    path.touch()
    events, found = EventFile(path), list[Scalar]()
    for at in range(0, len(whole), 37):
        with path.open("ab") as file:
            file.write(whole[at : at + 37])
        found += events.new_scalars()
    assert [one.step for one in found] == list(range(50))


def test_what_is_no_event_file_has_no_scalars(tmp_path: Path) -> None:
    path = tmp_path / "junk"
    for size in (0, 1, 12, 4096):
        path.write_bytes(os.urandom(size))
        assert list(EventFile(path).new_scalars()) == []
    assert list(EventFile(tmp_path / "absent").new_scalars()) == []


def test_a_whole_file_with_its_times_and_a_step_back(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("loss", 0.5, 1, walltime=1000.25)
        writer.add_text("words", "3", 2)
        writer.add_scalar("loss", 0.25, 2, walltime=1001.0)
    first = one_file(tmp_path)
    (one, two) = read_events(first)
    assert (one.step, one.time, one.scalars, one.is_start) == (1, 1000.25, [Scalar(1, "loss", 0.5)], False)
    assert two.time == 1001.0
    with SummaryWriter(str(tmp_path / "again"), purge_step=2):
        pass
    (start,) = read_events(one_file(tmp_path / "again"))
    assert (start.step, start.is_start) == (2, True)
    first.write_bytes(first.read_bytes()[:-3])
    assert [event.step for event in read_events(first)] == [1]
