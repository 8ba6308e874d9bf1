from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import roost
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.data.batches import Interrupted
from roost.train.data.external_loader import ExternalLoader
from roost.train.data.stream import Stream
from roost.train.distributed.fsdp import ShardedRunner
from roost.train.distributed.ranks import Ranks
from roost.train.hooks import Save, Visualize
from roost.train.step import seeding
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from tests.train.hooks.test_checkpoint_save import Asks
from tests.train.parts import MLP, Points, Still, bits, built, loader, plain
from tests.train.team import silent, team


class Shows(MLP):
    """Shows a text, a picture, numbers; draws from every generator; notes its mode."""

    def visualize(self, batch: Any) -> Any:
        assert self._trainer.publisher.phase == "visualizing"  # type: ignore[union-attr]
        self.modes = (self.training, torch.is_grad_enabled(), len(batch[0]))
        torch.rand(3)
        return {
            "samples/text": f"at {self.progress.step}",
            "weights": roost.Media("histogram", self.net[0].weight),
            "picture": roost.Media("image", torch.rand(4, 4)),
        }


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("every", "steps"), [("3", [3, 6, 8]), ("1ep", [7, 8]), (None, [])], ids=["steps", "epochs", "on request"]
)
def test_stores_what_the_runner_shows(every: Any, steps: list[int], tmp_path: Path) -> None:
    runner = built(Shows)
    loaders = {"valid/a": loader(Still(), 8, shuffle=False)}
    plain(runner, Still(), [Visualize(tmp_path, every)], until=8, loaders=loaders).fit()
    names = ("picture.png", "samples_text.txt", "weights.json")
    assert files(tmp_path) == [f"{step}/{name}" for step in steps for name in names]
    if steps:
        assert (tmp_path / "8" / "samples_text.txt").read_text() == "at 8"
        assert runner.modes == (False, False, 8)


def test_on_request_and_from_training_data_without_a_validation_set(tmp_path: Path) -> None:
    runner = built(Shows)
    plain(runner, Still(), [Asks(2, "visualize"), Visualize(tmp_path)], until=4).fit()
    assert {name.split("/")[0] for name in files(tmp_path)} == {"2"}
    assert runner.modes == (False, False, 4)


def test_a_package_that_is_gone_is_not_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hook = Visualize(tmp_path / "gone" / "media", 2)
    assert plain(built(Shows), Still(), [hook], until=4).fit() == "finished"
    assert capsys.readouterr().out.count(str(tmp_path / "gone")) == 1
    assert list(tmp_path.iterdir()) == []


def test_training_is_the_same_with_and_without_it(tmp_path: Path) -> None:
    states = []
    for hooks in ([], [Visualize(tmp_path, 1)]):
        runner = built(Shows)
        plain(runner, Points(), hooks, until=4).fit()
        states.append(bits([dict(runner.state_dict()), seeding.rng_state()]))
    assert states[0] == states[1]


@pytest.mark.parametrize("wrong", ["raises", "no media", "no mapping"])
def test_a_picture_that_fails_is_reported_and_training_continues(
    wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Fails(MLP):
        def visualize(self, batch: Any) -> Any:
            if wrong == "raises":
                raise ZeroDivisionError("no picture")
            return {"x": object()} if wrong == "no media" else [1]

    runner = built(Fails)
    assert plain(runner, Still(), [Visualize(tmp_path, 2)], until=4).fit() == "finished"
    out, err = capsys.readouterr()
    assert len(re.findall(r"^visualize .*\bstep \d", out, re.M)) == 2
    assert ("Traceback" in err) == (wrong == "raises"), "of the user's own lines, if there are any"
    assert runner.training


@pytest.mark.parametrize("name", ["", ".x", "../x", "a\0b", "n" * 81, 3])
def test_a_name_that_no_file_can_have_is_reported_and_training_continues(
    name: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Shows(MLP):
        def visualize(self, batch: Any) -> Any:
            return {name: "x"}

    assert plain(built(Shows), Still(), [Visualize(tmp_path, 2)], until=2).fit() == "finished"
    err = capsys.readouterr().err
    assert "visualize()" in err and repr(name) in err
    assert files(tmp_path) == []


def test_a_runner_that_shows_nothing_leaves_nothing(tmp_path: Path) -> None:
    plain(built(MLP), Still(), [Visualize(tmp_path, 1)], until=2).fit()
    assert files(tmp_path) == []


# ---- the first samples ---------------------------------------------------------------------------------


class Recording(MLP):
    """Shows the samples that it is given."""

    def build(self) -> None:
        super().build()
        self.seen: list[Any] = []

    def visualize(self, batch: Any) -> Any:
        self.seen.append(batch[0].clone())
        return {"samples": roost.Media("matrix", batch[0])}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(("size", "samples"), [(4, 10), (8, 3), (26, 26), (5, 40)])
def test_shows_the_first_samples_whatever_the_batches_are(
    size: int, samples: int, workers: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a set that moves its samples by chance, and of an order by chance: always the same."""
    runner, collated = built(Recording), []

    def collate(drawn: list[Any]) -> Any:
        collated.append(len(drawn))
        return torch.utils.data.default_collate(drawn)

    options: dict[str, Any] = {"num_workers": workers, "collate": collate if not workers else None}
    loaders = {"valid": loader(Points(), size, shuffle=True, **options), "valid/b": loader(Still(), 2)}
    plain(runner, Points(), [Visualize(tmp_path, 2, samples=samples)], until=6, loaders=loaders).fit()
    has = min(samples, 26)
    assert [len(one) for one in runner.seen] == [has] * 3
    assert torch.equal(runner.seen[0], runner.seen[2])
    assert workers or collated == [has] * 3, "by the set's own collate"
    assert np.load(tmp_path / "2" / "samples.npy").tolist() == runner.seen[0].tolist()
    assert (tmp_path / "2" / "samples.png").exists()
    said = capsys.readouterr().out.splitlines()
    about = [line for line in said if "visualize_samples" in line]
    assert len(about) == (samples == 40) and all("40" in line and "26 samples" in line for line in about)


def test_the_training_set_where_there_is_no_validation(tmp_path: Path) -> None:
    runner = built(Recording)
    plain(runner, Still(), [Visualize(tmp_path, 2, samples=6)], until=4).fit()
    assert all(torch.equal(one, Still().x[:6]) for one in runner.seen) and len(runner.seen) == 2


class Flow(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        still = Still()
        return iter([still[index] for index in range(26)])


@pytest.mark.parametrize("samples", [3, 10])
@pytest.mark.parametrize("kind", ["items", "items by a worker", "batches", "loader"])
def test_a_stream_gives_its_first(kind: str, samples: int, tmp_path: Path) -> None:
    if kind == "loader":
        stream: Any = ExternalLoader(torch.utils.data.DataLoader(Still(), 4), name="valid")
    elif kind == "batches":
        batches = [
            torch.utils.data.default_collate([Still()[i + j] for j in range(2)]) for i in range(0, 26, 2)
        ]
        stream = Stream(Whole(batches), batch_size=None, name="valid")
    else:
        stream = Stream(Flow(), batch_size=4, num_workers=int("worker" in kind), name="valid")
    runner = built(Recording)
    plain(
        runner, Points(), [Visualize(tmp_path, 2, samples=samples)], until=4, loaders={"valid": stream}
    ).fit()
    assert all(torch.equal(one, Still().x[:samples]) for one in runner.seen) and len(runner.seen) == 2


class Whole(torch.utils.data.IterableDataset[Any]):
    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


def test_training_goes_on_exactly_where_its_own_stream_was_looked_at(tmp_path: Path) -> None:
    made = []
    for hooks in ([], [Visualize(tmp_path, 2, samples=3)]):
        runner = built(Recording)
        loaders = {"train": Stream(Flow(), batch_size=4, num_batches=7)}
        plain(runner, Still(), hooks, until=9, loaders=loaders).fit()
        made.append(bits([dict(runner.state_dict()), seeding.rng_state()]))
    assert made[0] == made[1]


def test_training_is_the_same_with_and_without_samples(tmp_path: Path) -> None:
    states = []
    for hooks in ([], [Visualize(tmp_path, 1, samples=5)]):
        runner = built(Shows)
        plain(runner, Points(), hooks, until=4, loaders={"valid": loader(Points(), 3)}).fit()
        states.append(bits([dict(runner.state_dict()), seeding.rng_state()]))
    assert states[0] == states[1]


def test_a_failure_is_reported_with_the_lines_of_the_project(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Fails(MLP):
        def visualize(self, batch: Any) -> Any:
            return {"x": torch.zeros(2) @ torch.zeros(3)}

    plain(built(Fails), Still(), [Visualize(tmp_path, 1)], until=1).fit()
    err = capsys.readouterr().err
    assert "torch.zeros(2) @ torch.zeros(3)" in err and "RuntimeError" in err
    assert "hooks/visualize.py" not in err


class FailsOnOne(MLP):
    ranks: Ranks

    def visualize(self, batch: Any) -> Any:
        if self.ranks.rank == 1:
            raise KeyError("no")
        return {}


@pytest.mark.parametrize("is_sharded", [False, True])
def test_a_failure_on_one_rank_ends_it_where_others_may_wait_for_its_weights(
    tmp_path: Path, is_sharded: bool
) -> None:
    def work(ranks: Ranks) -> str:
        runner = built(FailsOnOne)
        runner.ranks = ranks
        if is_sharded:
            ShardedRunner(runner, ranks)
        stepper = Stepper(torch.optim.SGD(runner.parameters(), lr=0.1), ranks=ranks)
        trainer = Trainer(runner, {"train": loader(Still())}, stepper, until=1, ranks=ranks)
        with silent(), contextlib.redirect_stderr(io.StringIO()):
            try:
                Visualize(tmp_path, 1).on_step(trainer)
            except KeyError:
                return "ends"
        return "goes on"

    assert team(2, work) == ["goes on", "ends" if is_sharded else "goes on"]


def test_two_of_one_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Fails(MLP):
        def visualize(self, batch: Any) -> Any:
            return {"a/b": "one", "a_b": "two"}

    plain(built(Fails), Still(), [Visualize(tmp_path, 1)], until=1).fit()
    err = capsys.readouterr().err
    assert "visualize()" in err and "a_b.txt" in err
    assert "Traceback" not in err, "no line of it is the user's"
    assert files(tmp_path) == []


def test_a_full_disk_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "media").write_text("a file")
    assert plain(built(Shows), Still(), [Visualize(tmp_path / "media", 1)], until=3).fit() == "finished"
    out, err = capsys.readouterr()
    assert out.count(str(tmp_path / "media")) == 1 and "visualize" not in out and "Traceback" not in err


def test_a_stop_while_samples_are_read_is_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The session that goes on does it first."""

    class Stops(Still):
        trainer: Any = None

        def __getitem__(self, index: int) -> Any:
            if self.trainer is not None:
                self.trainer.request_stop("test")
                raise Interrupted
            return super().__getitem__(index)

    for session in (1, 2):
        valid = Stops()
        loaders = {"valid": loader(valid, 8, shuffle=False)}
        hooks = [Visualize(tmp_path / "media", 2, samples=3), Save("100")]
        checkpoints = Checkpoints(tmp_path / "c")
        trainer = plain(built(Recording), Still(), hooks, until=3, loaders=loaders, checkpoints=checkpoints)
        valid.trainer = trainer if session == 1 else None
        assert trainer.fit() == ("test" if session == 1 else "finished")
        assert files(tmp_path / "media") == ([] if session == 1 else [
            "2/samples.npy", "2/samples.png", "3/samples.npy", "3/samples.png"
        ])  # fmt: skip
    assert "visualize" not in capsys.readouterr().out
