from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.retention import RetentionPolicy
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.hook import Hook, Phase
from roost.train.hooks import Save
from roost.train.trainer import Trainer
from tests.train.parts import MLP, Still, StopAt, bits, built, plain


class Asks(Hook):
    """Makes one request after one step."""

    phase = Phase.SCHEDULE

    def __init__(self, step: int, what: str) -> None:
        self.step, self.what = step, what

    def on_step(self, trainer: Trainer) -> None:
        if trainer.progress.step == self.step:
            getattr(trainer, f"request_{self.what}")()


class Holds(Asks):
    """Asks for a save that is held."""

    def on_step(self, trainer: Trainer) -> None:
        if trainer.progress.step == self.step:
            trainer.request_save(hold=True)


ALL = RetentionPolicy(fast=100)


def saving(
    folder: Path, every: Any, *hooks: Hook, until: int = 8, policy: RetentionPolicy = ALL
) -> list[tuple[Any, ...]]:
    """(step, reason, number among the scheduled ones) of each save that is kept."""
    trainer = plain(
        built(MLP), Still(), [Save(every), *hooks], until=until, checkpoints=Checkpoints(folder, policy)
    )
    trainer.fit()
    return [(info.step, info.reason, info.scheduled) for info in checkpoint.read_manifests(folder)]


@pytest.mark.parametrize(
    ("every", "saves"),
    [
        ("3", [(3, "scheduled", 0), (6, "scheduled", 1), (8, "final", None)]),
        ("4", [(4, "scheduled", 0), (8, "scheduled", 1)]),
        (["5", "1ep"], [(5, "scheduled", 0), (7, "scheduled", 1), (8, "final", None)]),
        ("100", [(8, "final", None)]),
    ],
)
def test_at_its_intervals_and_in_the_last_step(every: Any, saves: list[Any], tmp_path: Path) -> None:
    assert saving(tmp_path, every) == saves


def test_requests_are_saved_in_the_same_step_and_not_counted(tmp_path: Path) -> None:
    assert saving(tmp_path, "4", Asks(2, "save"), Holds(3, "hold")) == [
        (2, "requested", None),
        (3, "held", None),
        (4, "scheduled", 0),
        (8, "scheduled", 1),
    ]
    assert [info.held for info in checkpoint.read_manifests(tmp_path)] == [False, True, False, False]


def test_a_request_at_a_scheduled_save_is_one_save(tmp_path: Path) -> None:
    assert saving(tmp_path, "4", Holds(4, "hold")) == [(4, "scheduled", 0), (8, "scheduled", 1)]
    assert [info.held for info in checkpoint.read_manifests(tmp_path)] == [True, False]


def test_the_slow_track_takes_every_nth_scheduled_save_over_restarts(tmp_path: Path) -> None:
    """However many others lie between, and wherever the run was cut."""
    policy = RetentionPolicy(fast=1, held=0, slow=10, slow_every=2)
    saving(tmp_path, "2", StopAt(5), until=12, policy=policy)
    saves = saving(tmp_path, "2", Asks(7, "save"), until=12, policy=policy)
    assert saves == [
        (2, "scheduled", 0),
        (6, "scheduled", 2),
        (10, "scheduled", 4),
        (12, "scheduled", 5),
    ]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_hooks_are_called_once_a_save_is_committed(tmp_path: Path, asynchronous: bool) -> None:
    seen: list[tuple[str, int, bool]] = []

    class Hears(Hook):
        def before_save(self, trainer: Trainer) -> None:
            seen.append(("before", trainer.progress.step, False))

        def on_save(self, trainer: Trainer, path: Path) -> None:
            seen.append((path.name, trainer.progress.step, (path / "MANIFEST.json").is_file()))

        def before_step(self, trainer: Trainer) -> None:
            assert trainer.checkpoints is not None
            trainer.checkpoints.wait()

    place = Checkpoints(tmp_path, asynchronous=asynchronous)
    plain(built(MLP), Still(), [Save("4"), Hears()], until=6, checkpoints=place).fit()
    heard = seen[1][1]
    assert heard in ((5, 6) if asynchronous else (4,))  # at the next look around, which short steps pass over
    assert seen == [
        ("before", 4, False),
        ("state_0.ckpt", heard, True),
        ("before", 6, False),
        ("state_1.ckpt", 6, True),
    ]


def test_state_round_trip() -> None:
    first, second = Save(), Save()
    first._scheduled = 7
    second.load_state_dict(first.state_dict())
    assert bits(second.state_dict()) == bits(first.state_dict())


def test_nothing_is_saved_without_a_place() -> None:
    assert plain(built(MLP), Still(), [Save("1")], until=2).fit() == "finished"
