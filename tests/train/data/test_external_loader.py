"""Loaders that make batches by themselves: repeatable, and a run in pieces is the run."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler

from roost.base.errors import CheckpointError, ConfigError, ContractError
from roost.train.data.external_loader import ExternalLoader, is_external_loader
from roost.train.step import seeding
from tests.messages import Messages
from tests.train.data.sets import Numbers, Stateful, drawn, in_pieces, saved, take, whole
from tests.train.parts import bits
from tests.waiting import wait_for

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
stateful_dataloader = pytest.importorskip("torchdata.stateful_dataloader")
nodes = pytest.importorskip("torchdata.nodes")

LENGTH = 4


class Points(torch.utils.data.Dataset[Tensor]):
    """(4,) its index, with what it draws."""

    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> Tensor:
        return torch.cat([torch.tensor([float(index)]), drawn()])


class Still(Points):
    """Draws nothing."""

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor([float(index)])


def plain(**options: Any) -> ExternalLoader:
    return ExternalLoader(
        DataLoader(Points(), 3, **{"shuffle": True, **options}), seed=3, name="the training set"
    )


def stateful(dataset: Any = None, length: int | None = None, **options: Any) -> ExternalLoader:
    given = dataset or Points()
    options = options if isinstance(given, Numbers) else {"shuffle": True, **options}
    with seeding.isolated(1):  # as a run builds its data: its sampler draws a seed when it is made
        loader = stateful_dataloader.StatefulDataLoader(given, 3, **options)
    return ExternalLoader(loader, num_batches=length, seed=3, name="the training set")


def node() -> Any:
    points = Points()
    return nodes.Batcher(nodes.MapStyleWrapper(points, RandomSampler(points)), 3, drop_last=False)


def of_nodes(wrap: bool = False) -> ExternalLoader:
    batches = nodes.Mapper(node(), torch.stack)
    return ExternalLoader(nodes.Loader(batches) if wrap else batches, num_batches=LENGTH, seed=3)


class Homemade:
    """A loader of the user with a state, from which it resumes."""

    batch_size = 2

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[Tensor]:
        while self.at < 5:
            self.at += 1
            yield drawn() + self.at
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


def homemade() -> ExternalLoader:
    return ExternalLoader(Homemade(), num_batches=LENGTH, seed=3)


MAKERS = {
    "plain": plain,
    "in order": lambda: plain(shuffle=False),
    "stateful": stateful,
    "stateful iterable": lambda: stateful(Stateful(), LENGTH),
    "stateless iterable": lambda: stateful(Numbers(), LENGTH),
    "nodes": of_nodes,
    "a loader of nodes": lambda: of_nodes(wrap=True),
    "homemade": homemade,
}


def test_what_is_a_loader() -> None:
    loaders = [DataLoader(Points()), node(), nodes.Loader(node()), Homemade()]
    assert all(map(is_external_loader, loaders))
    assert not any(map(is_external_loader, [Points(), Numbers(), [torch.zeros(3)], (one for one in [1])]))


@pytest.mark.parametrize("kind", MAKERS)
def test_a_resume_at_every_position(kind: str) -> None:
    """Begun anew after each batch, and once at each position; over three passes and their edges."""
    make, number = MAKERS[kind], 13
    reference = whole(make, number)
    assert in_pieces(make, [1] * number) == reference
    for position in range(number + 1):
        assert in_pieces(make, [position, number - position]) == reference, position
    assert len(set(map(str, reference))) == number, "each batch draws its own"


@pytest.mark.parametrize(
    "make",
    [
        lambda: stateful(Still(), num_workers=2),
        lambda: stateful(Still(), num_workers=1, persistent_workers=True),
        lambda: stateful(Still(), num_workers=2, snapshot_every_n_steps=3),
        lambda: plain(num_workers=2),
    ],
)
def test_a_resume_with_workers(make: Any) -> None:
    """Around the edge of the pass, and within it."""
    reference = whole(make, 9)
    assert in_pieces(make, [3, 1, 1, 4]) == reference
    assert whole(make, 9) == reference


def test_epochs_and_their_order(messages: Messages) -> None:
    batches = take(plain(), 8)
    assert [batch.ends_epoch for batch in batches] == [False, False, False, True] * 2
    assert [batch.num_samples for batch in batches] == [3, 3, 3, 2] * 2
    first, second = (torch.cat([b.value[:, 0] for b in batches[at : at + 4]]).tolist() for at in (0, 4))
    assert sorted(first) == sorted(second) == list(range(11)) and first != second
    assert len(plain().excerpt([range(2)])) == 2
    words = plain().describe()
    assert "DataLoader" in words and "4 batches" in words
    messages.check(words)


@pytest.mark.parametrize("kind", MAKERS)
def test_an_evaluation_is_always_the_same_and_leaves_the_training_where_it_was(kind: str) -> None:
    make = MAKERS[kind]
    reference, one = whole(make, 7), make()
    evaluated = [bits([tuple(batch) for batch in one.once()])]
    batches, found = one.epochs(), []
    for _ in range(7):
        found.append(bits(tuple(next(batches))))
        evaluated.append(bits([tuple(batch) for batch in one.once()]))
    assert found == reference
    assert all(each == evaluated[0] for each in evaluated)


def test_workers_do_not_persist(capsys: pytest.CaptureFixture[str]) -> None:
    """A pass could be neither repeated nor come back to: here with an evaluation between its batches."""

    def make() -> ExternalLoader:
        return plain(num_workers=1, persistent_workers=True)

    one, reference = make(), whole(make, 3)
    with closing(one.epochs()) as batches:
        found = [bits(tuple(next(batches)))]
        assert len(list(one.once())) == 4
        found += [bits(tuple(next(batches))) for _ in range(2)]
    assert found == reference
    assert in_pieces(make, [5, 1]) == whole(make, 6)
    assert "the training set: persistent_workers " in capsys.readouterr().out
    one.close()


def test_loaders_with_a_generator_of_their_own() -> None:
    """Also one that draws from it all the time."""

    def make() -> ExternalLoader:
        points, generator = Points(), torch.Generator().manual_seed(7)
        sampler = RandomSampler(points, replacement=True, num_samples=40, generator=generator)
        return ExternalLoader(DataLoader(points, 3, sampler=sampler, generator=generator), seed=3)

    reference, one = whole(make, 16), make()
    assert in_pieces(make, [3, 1, 10, 2]) == reference
    batches, found = one.epochs(), []
    for _ in range(16):
        found.append(bits(tuple(next(batches))))
        next(iter(one.once()))
    assert found == reference


@pytest.mark.parametrize("kind", MAKERS)
def test_drawing_leaves_the_generators_of_training_alone(kind: str) -> None:
    seeding.seed_all(1)
    one = MAKERS[kind]()
    before = bits(seeding.rng_state())
    take(one, 5)
    list(one.once())
    assert bits(seeding.rng_state()) == before


def test_an_epoch_is_epochs_to_the_samplers() -> None:
    class Epochs(RandomSampler):
        def set_epoch(self, epoch: int) -> None:
            epochs.append(epoch)

    epochs: list[int] = []
    take(plain(shuffle=False, sampler=Epochs(Points())), 9)
    assert epochs == [0, 1, 2]


def test_what_goes_on_without_a_state_is_named(
    capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    for make, kind in (
        (plain, " DataLoader "),
        (lambda: stateful(num_workers=2), " StatefulDataLoader "),
        (stateful, ""),
    ):
        one, other = make(), make()
        assert one.inexact_reasons() == []
        take(one, 3)
        other.load_state_dict(saved(one))
        assert [kind in why for why in other.inexact_reasons()] == ([True] if kind else [])
        for why in other.inexact_reasons():
            messages.check(why)
        take(other, 1, 0, 3)
        out = capsys.readouterr().out
        assert bool(out) == (make is plain)
        if out:
            assert "the training set" in out and "3 batches" in out
            messages.check(out)
        one.close()
        other.close()


def test_a_position_before_or_after_the_state_is_reached_too() -> None:
    for make in (plain, stateful, homemade, of_nodes):
        reference, one = whole(make, 12), make()
        for position in (4, 9, 2, 2, 10, 0):
            batches = take(one, 2, *divmod(position, LENGTH))
            assert [bits(tuple(batch)) for batch in batches] == reference[position : position + 2], position


def processes() -> list[int]:
    """Of this one's children."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(pid) for pid in file.read().split()]


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}])
@pytest.mark.parametrize("make", [plain, stateful])
def test_workers_end_and_signals_are_not_theirs(make: Any, options: dict[str, Any]) -> None:
    before = set(processes())
    one = make(num_workers=1, **options)
    batches = one.epochs()
    next(batches)
    (pid,) = set(processes()) - before
    os.kill(pid, signal.SIGINT)
    next(batches)
    batches.close()
    one.close()
    wait_for(lambda: set(processes()) <= before)
    assert len(take(one, 2)) == 2, "they are started again"
    one.close()


def test_empty_batches() -> None:
    one = ExternalLoader(DataLoader(Still(), 3, collate_fn=lambda items: None), seed=3)
    assert [(b.value, b.num_samples) for b in take(one, 2)] == [(None, 0)] * 2


# --- bad input --------------------------------------------------------------------------------------------


def test_a_loader_without_a_length(messages: Messages) -> None:
    one = ExternalLoader(DataLoader(Numbers(), 3), name="the training set")
    with pytest.raises(ConfigError) as refused:
        len(one)
    assert refused.value.setting == "data.steps_per_epoch"
    assert "the training set" in str(refused.value)
    messages.check(refused.value)
    assert sum(batch.num_samples for batch in one.once()) == 11
    with pytest.raises(ConfigError) as empty:
        ExternalLoader(DataLoader(Still(), 12, drop_last=True), name="the training set")
    assert all(fact in str(empty.value) for fact in ("the training set", "'DataLoader'"))
    messages.check(empty.value)


def test_a_pass_that_gives_nothing(messages: Messages) -> None:
    one = ExternalLoader(DataLoader(Numbers(0), 3), num_batches=3, name="the training set")
    with pytest.raises(ContractError) as refused:
        take(one, 1)
    assert all(fact in str(refused.value) for fact in ("pass 0", "the training set"))
    messages.check(refused.value)
    with pytest.raises(ContractError, match="pass 0 of the training set"):
        list(one.once())


def test_a_batch_that_raises_names_itself(messages: Messages) -> None:
    class Broken(Still):
        def __getitem__(self, index: int) -> Tensor:
            if index == 7 and random.random() < 2:
                raise ValueError("cannot decode")
            return super().__getitem__(index)

    one = ExternalLoader(DataLoader(Broken(), 3), name="the training set")
    with pytest.raises(ValueError, match="cannot decode") as caught:
        take(one, 4)
    (note,) = caught.value.__notes__
    assert "batch 2 of pass 0 of the training set" in note
    messages.check(note)
    assert saved(one)["position"] == 2


def test_another_loader_than_the_one_of_the_state(messages: Messages) -> None:
    one, other = stateful(), plain()
    take(one, 2)
    other.load_state_dict(saved(one))
    with pytest.raises(CheckpointError) as refused:
        take(other, 1, 0, 2)
    assert all(fact in str(refused.value) for fact in ("DataLoader", "load_state_dict"))
    messages.check(refused.value)
    short = ExternalLoader(DataLoader(Still(), 11), num_batches=4, name="the training set")
    take(one := plain(), 3)
    short.load_state_dict(saved(one))
    with pytest.raises(ContractError) as short_of:
        take(short, 1, 0, 3)
    assert all(fact in str(short_of.value) for fact in ("pass 0", "1", "3"))
    messages.check(short_of.value)
