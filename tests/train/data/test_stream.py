"""Streams: the order, the randomness, and a run in pieces, which is the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice
from threading import Lock
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

import roost
from roost.base.errors import CheckpointError, ConfigError, ContractError
from roost.train.data.stream import Stream
from roost.train.step import seeding
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.data.sets import Numbers, Stateful, Walked, drawn, in_pieces, saved, take, whole
from tests.train.parts import MLP, Still, bits, built, loader, plain

KINDS = [Numbers, Stateful, Walked]
LENGTH = 3
"""Batches of an epoch here: passes have 4, or 4 with two workers, so that the edges fall anywhere."""


def stream(dataset: Any, num_workers: int = 0, **options: Any) -> Stream:
    given = {"batch_size": 3, "num_batches": LENGTH, "seed": 3, **options}
    return Stream(dataset, num_workers=num_workers, **given)


def numbers(batches: list[Any]) -> list[list[int]]:
    """The numbers of the items of each batch."""
    return [batch.value[:, 0].int().tolist() for batch in batches]


# --- order ------------------------------------------------------------------------------------------------


def test_pass_after_pass_and_an_epoch_is_so_many_batches() -> None:
    batches = take(stream(Numbers()), 9)
    assert [batch.ends_epoch for batch in batches] == [False, False, True] * 3
    assert [batch.num_samples for batch in batches] == [3, 3, 3, 2] * 2 + [3]
    first, second = ([*chain(*numbers(batches[at : at + 4]))] for at in (0, 4))
    assert sorted(first) == sorted(second) == list(range(11)) and first != second, "set_epoch was called"


def test_a_short_batch_is_left_out_on_demand() -> None:
    assert [batch.num_samples for batch in take(stream(Numbers(), drop_last=True), 6)] == [3] * 6


def test_workers_take_turns_with_their_shares() -> None:
    """11 items are 6 and 5: two batches each."""
    batches = take(stream(Numbers(), 2), 8)
    assert [batch.num_samples for batch in batches] == [3, 3, 3, 2] * 2
    shares = Numbers().numbers()[0::2], Numbers().numbers()[1::2]
    assert numbers(batches[:4]) == [shares[0][:3], shares[1][:3], shares[0][3:], shares[1][3:]]


class Uneven(Numbers):
    """The second worker has nearly nothing."""

    def numbers(self) -> list[int]:
        info = get_worker_info()
        assert info is not None
        return [100] if info.id else list(range(7))


def test_a_worker_that_has_ended_is_passed_over() -> None:
    batches = take(stream(Uneven(), 2), 8)
    assert numbers(batches) == [[0, 1, 2], [100], [3, 4, 5], [6]] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_one_worker_gives_what_none_gives(kind: type[Numbers]) -> None:
    assert whole(lambda: stream(kind(), 1), 9) == whole(lambda: stream(kind(), 0), 9)


def test_each_item_is_a_batch_without_a_batch_size() -> None:
    batches = take(stream(Numbers(), batch_size=None), 2)
    assert [batch.value.shape for batch in batches] == [(4,), (4,)]
    assert [batch.num_samples for batch in batches] == [4, 4], "the leading dimension"


def test_the_length_follows_from_the_set() -> None:
    class Long(Numbers):
        def __len__(self) -> int:
            return 11

    assert len(stream(Long(), num_batches=None)) == 4
    assert len(stream(Long(), num_batches=None, drop_last=True)) == 3
    assert len(stream(Long(), num_batches=7)) == 7
    assert len(stream(Long(), num_batches=7).excerpt([range(2), range(4, 5)])) == 3


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_an_evaluation_is_one_pass_and_always_the_same(kind: type[Numbers], num_workers: int) -> None:
    evaluating = stream(kind(), num_workers, num_batches=None)
    first, second = (list(evaluating.once()) for _ in range(2))
    assert sorted(chain(*numbers(first))) == list(range(11))
    assert bits([tuple(one) for one in first]) == bits([tuple(one) for one in second])
    limited = stream(kind(), num_workers, num_batches=2)
    assert bits([one.value for one in limited.once()]) == bits([one.value for one in first[:2]])
    assert [one.ends_epoch for one in limited.once()] == [False, True]
    evaluating.close()
    limited.close()


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_an_evaluation_of_the_training_set_leaves_the_training_where_it_was(
    kind: type[Numbers], num_workers: int
) -> None:
    reference, training = whole(lambda: stream(kind(), num_workers), 7), stream(kind(), num_workers)
    batches, found = training.epochs(), []
    for _ in range(7):
        found.append(bits(tuple(next(batches))))
        next(iter(training.once()))
    assert found == reference
    batches.close()
    training.close()


def test_describe(messages: Messages) -> None:
    words = stream(Numbers(), 2).describe()
    assert "3 a batch" in words and "2 workers" in words and "3 batches" in words
    messages.check(words)
    messages.check(stream(Numbers(), batch_size=None, num_batches=None).describe())


# --- randomness -------------------------------------------------------------------------------------------


def test_what_is_drawn_differs_between_items_passes_workers_ranks_and_seeds() -> None:
    class Same(Numbers):
        def numbers(self) -> list[int]:
            return [0] * 6

    def found(**options: Any) -> list[Tensor]:
        one = stream(Same(), **options)
        rows = torch.cat([batch.value[:, 1:] for batch in take(one, 8)])
        return list(rows)

    every = [
        *found(),
        *found(rank=1),
        *found(seed=4),
        *found(num_workers=2)[3:6],
        *found(num_workers=2)[9:12],
    ]
    for generator in range(3):
        assert len({float(one[generator]) for one in every}) == len(every) == 78
    assert torch.equal(torch.stack(found()), torch.stack(found()))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_drawing_leaves_the_generators_of_training_alone(num_workers: int) -> None:
    seeding.seed_all(1)
    before = bits(seeding.rng_state())
    one = stream(Numbers(), num_workers)
    take(one, 5)
    list(one.once())
    assert one.inexact_reasons() == []
    assert bits(seeding.rng_state()) == before
    one.close()


class Own(Numbers):
    """With a generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator()

    def item(self, number: int) -> Tensor:
        return torch.rand(2, generator=self.generator)


def test_a_set_with_a_generator_of_its_own_is_named(messages: Messages) -> None:
    own = Own()
    (why,) = stream(own, name="the training set").inexact_reasons()
    assert "the training set" in why and "generator" in why
    messages.check(why)
    assert torch.equal(own.generator.get_state(), torch.Generator().get_state()), "looked at elsewhere"
    for kind in KINDS:
        assert stream(kind()).inexact_reasons() == []
    own.draws_randomness = False
    assert stream(own).inexact_reasons() == []


# --- a run in pieces --------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"drop_last": True}, {"batch_size": None}, {"batch_size": 11}])
@pytest.mark.parametrize("kind", KINDS)
def test_a_resume_at_every_position(kind: type[Numbers], options: dict[str, Any]) -> None:
    """Begun anew after each batch, and once at each position; over three passes and their edges."""

    def make() -> Stream:
        return stream(kind(), **options)

    number = 30 if options.get("batch_size", 3) is None else 13
    reference = whole(make, number)
    assert in_pieces(make, [1] * number) == reference
    for position in range(number + 1):
        assert in_pieces(make, [position, number - position]) == reference


@pytest.mark.parametrize("kind", [*KINDS, Uneven])
def test_a_resume_at_every_position_with_two_workers(kind: type[Numbers]) -> None:
    def make() -> Stream:
        return stream(kind(), 2)

    reference = whole(make, 10)
    assert in_pieces(make, [1] * 6 + [4]) == reference
    assert in_pieces(make, [3, 5, 2]) == reference


def test_the_state_is_that_of_the_batch_given_though_the_next_one_is_pinned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Tensor, "pin_memory", Tensor.clone)
    reference = whole(lambda: stream(Stateful(), 2), 10)
    assert in_pieces(lambda: stream(Stateful(), 2, pin_memory=True), [3, 5, 2]) == reference


def test_what_has_no_state_is_drawn_and_dropped_and_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    for kind, dropped in ((Numbers, 6), (Stateful, 0)):
        state, again = None, kind()
        first = stream(kind(), name="the training set")
        batches = first.epochs()
        list(islice(batches, 2))
        state = saved(first)
        second = stream(again, name="the training set")
        second.load_state_dict(state)
        take(second, 1, 0, 2)
        assert len(again.log) == dropped + 3
        out = capsys.readouterr().out
        assert out.count("\n") == bool(dropped)
        assert not dropped or ("the training set" in out and f"{dropped} items" in out)


def test_how_far_the_dropping_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each turn drops for no time here, which is one item."""
    monkeypatch.setattr("roost.train.data.workers.stream_shard._SKIP_SECONDS", 0.0)
    monkeypatch.setattr("roost.train.data.workers.stream_order._REPORT_SECONDS", 0.0)
    assert in_pieces(lambda: stream(Numbers()), [3, 3]) == whole(lambda: stream(Numbers()), 6)
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("the set: ") for line in lines[1:])
    assert [int(line.split()[2]) for line in lines[1:]] == list(range(8, 0, -1))


def test_the_number_of_workers_is_that_with_which_the_run_began(capsys: pytest.CaptureFixture[str]) -> None:
    for begun_with, then, goes_on_with in ((2, 0, 2), (1, 2, 1), (0, 1, 1), (1, 0, 0)):
        counts = iter([begun_with, then, then])
        reference = whole(lambda n=begun_with: stream(Numbers(), n), 8)  # type: ignore[misc]
        assert in_pieces(lambda: stream(Numbers(), next(counts)), [3, 2, 3]) == reference  # noqa: B023
        one = stream(Numbers(), begun_with)
        two = stream(Numbers(), then)
        state = one.state_dict() if not take(one, 1) else saved(one)
        capsys.readouterr()
        two.load_state_dict(state)
        assert two.num_workers == goes_on_with
        assert bool(capsys.readouterr().out) == (max(1, begun_with) != max(1, then))


def test_a_position_before_or_after_the_state_is_reached_too() -> None:
    """Steps whose window could not be drawn are passed over; an evaluation begins at the beginning."""
    for kind in KINDS:
        reference = whole(lambda kind=kind: stream(kind()), 12)  # type: ignore[misc]
        one = stream(kind())
        for position in (4, 9, 2, 2, 10, 0):
            batches = take(one, 2, *divmod(position, LENGTH))
            assert [bits(tuple(batch)) for batch in batches] == reference[position : position + 2], position


def test_an_epoch_of_another_length_goes_on_at_the_same_item() -> None:
    one = stream(Stateful())
    reference = [bits(batch.value) for batch in take(stream(Stateful()), 8)]
    take(one, 4)
    two = stream(Stateful(), num_batches=5)
    two.load_state_dict(saved(one))
    assert [bits(batch.value) for batch in take(two, 4, 0, 1)] == reference[4:]


def test_a_state_of_a_set_that_has_none_any_more(messages: Messages) -> None:
    one, two = stream(Stateful(), name="the training set"), stream(Numbers(), name="the training set")
    take(one, 2)
    two.load_state_dict(saved(one))
    with pytest.raises(CheckpointError) as refused:
        take(two, 1, 0, 2)
    assert all(fact in str(refused.value) for fact in ("Numbers", "load_state_dict"))
    messages.check(refused.value)


def test_a_set_that_has_become_shorter(messages: Messages) -> None:
    one, two = stream(Numbers()), stream(Numbers(4))
    take(one, 3)
    two.load_state_dict(saved(one))
    with pytest.raises(ContractError) as refused:
        take(two, 1, 1, 0)
    assert all(fact in str(refused.value) for fact in ("4 items", "pass 0", "9"))
    messages.check(refused.value)


# --- bad input --------------------------------------------------------------------------------------------


class Broken(Numbers):
    """Item 4 of each worker fails, as often as said."""

    def __init__(self, times: int = 1000) -> None:
        super().__init__()
        self.times = times

    def __iter__(self) -> Iterator[Tensor]:
        for at, item in enumerate(super().__iter__()):
            if at == 4 and self.times:
                self.times -= 1
                raise ValueError("cannot decode")
            yield item


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_item_that_raises_names_itself(num_workers: int, messages: Messages) -> None:
    one = stream(Broken(), num_workers, name="the training set")
    with pytest.raises(ValueError, match="cannot decode") as caught:
        take(one, 7)
    (note,) = [note for note in caught.value.__notes__ if "item 4 of pass 0" in note]
    assert "the training set (Broken)" in note and "worker 0" in note
    messages.check(note)
    assert saved(one)["position"] == (2 if num_workers else 1)
    one.close()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_after_an_error_that_does_not_come_again_the_run_goes_on_exactly(num_workers: int) -> None:
    class Once(Broken):
        """Fails in the first process only."""

        def __init__(self) -> None:
            super().__init__(0)

    reference = whole(lambda: stream(Once(), num_workers), 8)
    one = stream(Broken(1), num_workers)
    with pytest.raises(ValueError, match="cannot decode"):
        take(one, 8)
    one.dataset.times = 0
    position = one.state_dict()["position"]
    found = [bits(tuple(batch)) for batch in take(one, 8 - position, *divmod(position, LENGTH))]
    assert found == reference[position:]
    one.close()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_items_that_cannot_be_joined(num_workers: int) -> None:
    class Growing(Numbers):
        def item(self, number: int) -> Tensor:
            return torch.zeros(number)

    one = stream(Growing(), num_workers, name="the training set")
    with pytest.raises(ContractError) as refused:
        take(one, 1)
    assert all(fact in str(refused.value) for fact in ("Growing", "Tensor", "the training set"))
    one.close()


class Leaves(Numbers):
    """Does not begin anew."""

    def __iter__(self) -> Iterator[Tensor]:
        while self.at < 4:
            self.at += 1
            yield self.item(self.at)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    ("dataset", "number"), [(Leaves, 1), (partial(Numbers, 0), 0)], ids=["leaves", "empty"]
)
def test_a_pass_that_gives_nothing(
    dataset: Callable[[], Numbers], number: int, num_workers: int, messages: Messages
) -> None:
    one = stream(dataset(), num_workers, name="the training set")
    with pytest.raises(ContractError) as refused:
        take(one, 6)
    assert f"pass {number} of the training set" in refused.value.message and refused.value.fix
    messages.check(refused.value)
    one.close()


def test_an_epoch_without_a_length(messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        len(stream(Numbers(), num_batches=None, name="the training set"))
    assert refused.value.setting == "data.steps_per_epoch"
    assert "the training set" in str(refused.value)
    with pytest.raises(ConfigError) as refused:
        stream(Sized(), num_batches=None, drop_last=True)
    assert refused.value.setting == "data.batch_size"
    assert "2" in str(refused.value)
    messages.check(refused.value)


class Sized(Numbers):
    def __len__(self) -> int:
        return 2


def test_what_can_be_gone_through_only_once(messages: Messages) -> None:
    with pytest.raises(ContractError) as refused:
        stream((torch.zeros(3) for _ in range(9)), name="the training set")
    assert all(fact in str(refused.value) for fact in ("the training set", "'generator'"))
    messages.check(refused.value)


class Opened:
    """Not plain data."""


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_state_that_cannot_be_saved_is_reported_at_the_first_batch(
    num_workers: int, messages: Messages
) -> None:
    class Holds(Stateful):
        def state_dict(self) -> dict[str, Any]:
            return {"file": Opened()}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            pass

    one = stream(Holds(), num_workers, name="the training set")
    with pytest.raises(ContractError) as refused:
        take(one, 1)
    assert all(fact in str(refused.value) for fact in ("the training set", "Opened", "'shares.0.set.file'"))
    messages.check(refused.value)
    one.close()


# --- empty batches ----------------------------------------------------------------------------------------


class Gaps(IterableDataset[Any]):
    """Whole batches, some of them empty."""

    def __iter__(self) -> Iterator[Any]:
        yield from [{"x": torch.ones(2, 3)}, None, [], (), {}, torch.zeros(0, 3), {"x": torch.zeros(0, 3)}]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_empty_batches_count_as_batches(num_workers: int) -> None:
    one = stream(Gaps(), num_workers, batch_size=None, num_batches=7)
    batches = take(one, 7 * (num_workers or 1))
    assert sum(batch.num_samples for batch in batches) == 2 * (num_workers or 1)
    assert [batch.value for batch in batches if not batch.num_samples] == [None] * 6 * (num_workers or 1)
    one.close()


def test_a_collate_that_leaves_nothing() -> None:
    batches = take(stream(Numbers(), collate=lambda items: None), 2)
    assert [(batch.value, batch.num_samples) for batch in batches] == [(None, 0)] * 2


# --- functions --------------------------------------------------------------------------------------------


def sample(state: dict[str, Any], index: int, augment: bool) -> tuple[Any, int]:
    """The manner of CornerNet's train.py: a cursor that wraps around, and a new order where it does."""
    if index == 0 and augment:
        order = torch.randperm(7)
        state["order"] = order.tolist()
    rows = torch.tensor(state["order"][index : index + 2], dtype=torch.float32)
    batch = {"xs": [rows, drawn()] if augment else [rows], "ys": []}
    return batch, (index + 2) % 8


def sampled(num_workers: int = 0, **options: Any) -> Stream:
    return stream(roost.Sampled(sample, {"order": list(range(7))}), num_workers, **options)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_whole_batches_of_a_function(num_workers: int) -> None:
    reference = whole(lambda: sampled(num_workers), 9)
    assert in_pieces(lambda: sampled(num_workers), [1] * 9) == reference
    one = sampled(num_workers)
    batches = take(one, 8)
    assert [batch.num_samples for batch in batches] == (
        [2, 2, 2, 1] * 2 if not num_workers else [2] * 6 + [1] * 2
    )
    first = torch.cat([batch.value["xs"][0] for batch in batches[:: num_workers or 1][:4]])
    assert sorted(first.tolist()) == list(range(7))
    one.close()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_evaluation_of_a_function_is_not_augmented_and_begins_at_0(num_workers: int) -> None:
    one = sampled(num_workers, num_batches=4)
    take(one, 3)
    for _ in range(2):
        rows = torch.cat([batch.value["xs"][0] for batch in one.once()])
        assert rows.tolist() == list(range(7)), "whatever the number of workers"
    one.close()


def test_a_function_has_no_end(messages: Messages) -> None:
    one = stream(roost.Sampled(sample, {}), num_batches=None, name="the validation set")
    with pytest.raises(ConfigError) as refused:
        next(one.once())
    assert refused.value.setting == "data.limit_valid_batches"
    assert "the validation set" in str(refused.value)
    messages.check(refused.value)
    with pytest.raises(ConfigError, match=r"data\.steps_per_epoch"):
        len(one)
    assert len(stream(roost.Sampled(sample, {}, length=4), num_batches=None)) == 4


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_set_whose_iter_gives_no_iterator(num_workers: int, messages: Messages) -> None:
    class Not(Numbers):
        def __iter__(self) -> Any:
            return 3

    one = stream(Not(), num_workers, name="the training set")
    with pytest.raises(ContractError) as refused:
        take(one, 1)
    assert all(fact in str(refused.value) for fact in ("the training set", "iter()", "yield"))
    messages.check(refused.value)
    one.close()


def test_a_length_that_is_refused_is_none_and_nothing_is_empty(messages: Messages) -> None:
    class Refuses(Numbers):
        def __len__(self) -> int:
            raise NotImplementedError

    class Empty(Numbers):
        def __len__(self) -> int:
            return 0

    assert stream(Refuses(), num_batches=None).num_batches is None
    with pytest.raises(ConfigError) as refused:
        stream(Empty(), num_batches=None)
    messages.check(refused.value)


def test_a_state_that_cannot_be_copied(messages: Messages) -> None:
    sampled = roost.Sampled(lambda state, index, augment: (torch.zeros(1), index), {"lock": Lock()})
    with pytest.raises(ContractError) as refused:
        stream(sampled, name="the training set")
    assert all(fact in str(refused.value) for fact in ("the training set", "lock"))
    messages.check(refused.value)


def test_an_evaluation_keeps_the_workers_with_which_the_run_began(capsys: pytest.CaptureFixture[str]) -> None:
    """They decide on its batches, and so on the last digits of its metrics."""

    def trainer(num_workers: int) -> Trainer:
        valid = Stream(Numbers(), batch_size=2, num_workers=num_workers, name="the validation set")
        return plain(built(MLP), Still(), loaders={"train": loader(Still()), "valid": valid})

    first, second = trainer(2), trainer(0)
    second.load_state_dict(first.state_dict())
    assert second.loaders["valid"].num_workers == 2
    out = capsys.readouterr().out
    assert "the validation set" in out and "2 workers" in out
