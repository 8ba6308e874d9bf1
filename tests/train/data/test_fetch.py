from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from roost.base.errors import ContractError
from roost.train.data import fetch
from roost.train.data.fetch import BatchFetcher, MultiSetFetcher
from roost.train.data.loader import Loader
from roost.train.data.plans.batch_plan import BatchPlan, Draw
from roost.train.data.stream import Stream
from roost.train.step import seeding
from tests.messages import Messages
from tests.train.data.samples import Broken, Odd, WithGenerator
from tests.train.parts import Pictures, Points, Still, bits


def test_arrays_and_sets_that_draw_nothing_are_not_seeded() -> None:
    class Reads(Still):
        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            assert random.getstate() == state, "seeded for nothing"
            return super().__getitem__(index)

    state = random.getstate()
    by_sample = BatchFetcher(Reads())(Draw([3, 1, 4], 0))
    arrays = BatchFetcher(TensorDataset(Still().x, Still().y))
    assert not arrays.draws_randomness and arrays.is_in_memory
    assert bits(arrays(Draw([3, 1, 4], 0))) == bits(by_sample)
    assert BatchFetcher(TensorDataset(Still().x), collate=len)(Draw([1, 2], 0)) == 2


def test_no_samples_make_no_batch() -> None:
    assert BatchFetcher(Points())(Draw([], 0)) is None


def test_a_set_that_gives_whole_batches_is_asked_for_them() -> None:
    class Whole(Still):
        def __getitems__(self, indices: list[int]) -> list[tuple[Tensor, Tensor]]:
            asked.append(indices)
            return [self[index] for index in indices]

    asked: list[list[int]] = []
    batch = BatchFetcher(Whole())(Draw([5, 7], 0))
    assert asked == [[5, 7]] and torch.equal(batch[0], Still().x[[5, 7]])


@pytest.mark.parametrize("kind", [Points, Pictures, WithGenerator])
def test_what_is_drawn_is_of_seed_turn_and_index(kind: type[Points]) -> None:
    fetch = BatchFetcher(kind(), seed=3)
    first = fetch(Draw([1, 2, 1], [0, 0, 5]))
    assert bits(first) == bits(fetch(Draw([1, 2, 1], [0, 0, 5]))), "again"
    assert bits([part[:1] for part in first]) == bits(fetch(Draw([1], 0))), "whatever it is joined with"
    assert bits([part[2:] for part in first]) == bits(fetch(Draw([1], 5))), "each with its own turn"
    many = list(range(8))
    assert bits(fetch(Draw(many, 0))) != bits(fetch(Draw(many, 5)))
    assert bits(fetch(Draw(many, 0))) != bits(BatchFetcher(kind(), seed=4)(Draw(many, 0)))


def test_several_sets_by_name() -> None:
    fetch = MultiSetFetcher({"a": BatchFetcher(Still()), "b": BatchFetcher(Points(), seed=3)})
    assert fetch.draws_randomness and not fetch.is_in_memory and not fetch.ignores_seeding()
    read: list[int] = []
    fetch.report_samples_to(read.append)
    found = fetch({"b": Draw([2], 1), "a": Draw([0, 1], 0)})
    assert list(found) == ["b", "a"] and read == [2, 0, 1]
    assert bits(found["b"]) == bits(BatchFetcher(Points(), seed=3)(Draw([2], 1)))


# --- what the set does wrong ------------------------------------------------------------------------------


def test_a_sample_that_raises_names_itself_and_its_set(messages: Messages) -> None:
    with pytest.raises(ValueError, match="cannot decode") as caught:
        BatchFetcher(Broken(), name="the test set")(Draw([3, 7], 0))
    (note,) = caught.value.__notes__
    assert "sample 7 of the test set (Broken)" in note
    messages.check(note)
    with pytest.raises(ValueError, match="cannot decode") as caught:
        BatchFetcher(Broken())(Draw([7], 0))
    (note,) = caught.value.__notes__
    assert "sample 7 of Broken" in note


def test_a_stop_iteration_does_not_shorten_the_batch(messages: Messages) -> None:
    class Ends(Still):
        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            return next(iter(()))  # type: ignore[call-overload, no-any-return]

    with pytest.raises(RuntimeError) as refused:
        BatchFetcher(Ends())(Draw([0, 1], 0))
    assert all(fact in str(refused.value) for fact in ("sample 0", "Ends", "StopIteration"))
    messages.check(refused.value)


class Shrinks(Still):
    """Loses samples, or has fewer than it says."""

    def __init__(self, says: int, has: int) -> None:
        super().__init__()
        self.says, self.has = says, has

    def __len__(self) -> int:
        return self.says

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index >= self.has:
            raise IndexError("list index out of range")
        return super().__getitem__(index)


def test_a_sample_that_is_gone_is_named_with_both_lengths(messages: Messages) -> None:
    dataset = Shrinks(24, 24)
    fetch = BatchFetcher(dataset, name="the training set")
    dataset.says = dataset.has = 20
    with pytest.raises(ContractError) as caught:
        fetch(Draw([19, 22], 0))
    assert all(fact in str(caught.value) for fact in ("22", "the training set", "Shrinks", "20", "24"))
    messages.check(caught.value)
    assert isinstance(caught.value.__cause__, IndexError)


def test_an_index_beyond_the_set(messages: Messages) -> None:
    with pytest.raises(ContractError) as refused:
        BatchFetcher(Shrinks(20, 20))(Draw([1000], 0))
    assert all(fact in str(refused.value) for fact in ("1,000", "Shrinks", "20"))
    messages.check(refused.value)


def test_a_set_with_fewer_samples_than_it_says() -> None:
    """Or whose own tables are too short: that is its own error, as it is."""
    with pytest.raises(IndexError, match="list index out of range") as caught:
        BatchFetcher(Shrinks(20, 10))(Draw([15], 0))
    (note,) = caught.value.__notes__
    assert "sample 15 of Shrinks" in note


@pytest.mark.parametrize("kind", ["none", "shapes", "keys", "kinds", "lengths", "objects"])
def test_samples_that_cannot_be_joined(kind: str, messages: Messages) -> None:
    with pytest.raises(ContractError) as caught:
        BatchFetcher(Odd(kind), name="the test set")(Draw([0, 1], 0))
    assert "Odd" in caught.value.message and "the test set" in caught.value.message
    assert "\n" not in str(caught.value) and caught.value.fix
    torchs = str(caught.value.__cause__).partition("\n")[0]
    messages.check(str(caught.value).replace(torchs, "<torch's>"))
    if kind == "none":
        assert "(NoneType)" in caught.value.message


@pytest.mark.parametrize(
    ("dataset", "ignores"),
    [(Points(), False), (Still(), False), (WithGenerator(), False), (Odd("objects"), False)],
)
def test_one_sample_drawn_twice_shows_whether_seeding_works(dataset: Any, ignores: bool) -> None:
    before = bits(seeding.rng_state())
    assert BatchFetcher(dataset).ignores_seeding() == ignores
    assert bits(seeding.rng_state()) == before


@pytest.mark.parametrize(
    "generator", [torch.Generator(), np.random.default_rng(0), random.Random(0), random.SystemRandom()]
)
def test_a_set_with_a_generator_of_its_own_ignores_seeding(generator: Any) -> None:
    class Own(Still):
        draws_randomness = True

        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            if isinstance(generator, torch.Generator):
                return self.x[index] + torch.randn(6, generator=generator), self.y[index]
            return self.x[index] + float(generator.random()), self.y[index]

    assert BatchFetcher(Own()).ignores_seeding()


@pytest.mark.parametrize(
    ("samples", "facts"),
    [
        (
            [torch.zeros(2), torch.zeros(2), torch.zeros(3)],
            ("sample 7", "float32 (2,)", "sample 9", "float32 (3,)"),
        ),
        ([{"x": 1}, {"x": None}], ("sample 7", "{x: int}", "sample 8", "{x: NoneType}")),
        (
            [(np.zeros(1), 2), (np.zeros(3), 2)],
            ("sample 7", "(float64 (1,), int)", "sample 8", "(float64 (3,), int)"),
        ),
        ([object(), object()], ("7, 8",)),
    ],
)
def test_the_sample_that_is_not_like_the_first_is_named(
    samples: list[Any], facts: tuple[str, ...], messages: Messages
) -> None:
    class Given:
        draws_randomness = False

        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> Any:
            return samples[index - 7]

    with pytest.raises(ContractError) as caught:
        BatchFetcher(Given())(Draw(list(range(7, 7 + len(samples))), 0))
    (note,) = caught.value.__notes__
    assert all(fact in note for fact in facts)
    messages.check(note)


def test_an_own_collate_that_raises_comes_with_its_samples() -> None:
    def collate(samples: list[Any]) -> Any:
        raise KeyError("label")

    with pytest.raises(KeyError) as caught:
        BatchFetcher(list(range(20)), collate=collate)(Draw(list(range(12)), 0))
    (note,) = caught.value.__notes__
    assert note.endswith(" 0, 1, 2, 3, 4, 5, 6, 7, …")


NUMBERS = torch.randn(1 << 20, generator=torch.Generator().manual_seed(3))


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class Sums:
    """Samples that are computed: on two threads it is another sum."""

    draws_randomness = False

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        if index >= len(self):
            raise IndexError
        return (NUMBERS + index).sum()


class Items(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(Sums())


def test_the_threads_are_put_back() -> None:
    with pytest.raises(KeyError), fetch.single_thread():
        assert torch.get_num_threads() == 1
        raise KeyError
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    with fetch.single_thread():
        pass
    assert torch.get_num_threads() == 1


def test_what_is_computed_does_not_depend_on_who_fetches_it() -> None:
    with fetch.single_thread():
        wanted = torch.stack([(NUMBERS + index).sum() for index in range(2)])
    assert not torch.equal(wanted, torch.stack([Sums()[index] for index in range(2)])), (
        "the test sees nothing"
    )
    for workers in (0, 1):
        loader = Loader(Sums(), plan=BatchPlan(2, 2, shuffle=False), num_workers=workers)
        stream = Stream(Items(), batch_size=2, num_batches=1, num_workers=workers)
        for one in (loader, stream):
            with closing(one.epochs()) as batches:
                assert torch.equal(next(batches).value, wanted), (type(one).__name__, workers)
            one.close()
