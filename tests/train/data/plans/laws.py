"""What must hold of every plan, whatever it does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from hypothesis import settings

from roost.train.data.plans.batch_plan import Draw, Draws, Plan, is_padding
from roost.train.data.plans.rank_shards import ShardedPlan

EPOCHS = 3

few = settings(deadline=None, max_examples=40)


def parts_of(draws: Draws) -> dict[str, Draw]:
    return {"": draws} if isinstance(draws, Draw) else dict(draws)


def drawn(batches: Iterable[Draws]) -> Iterator[tuple[str, int, int]]:
    """(set, index, turn) of each sample."""
    for draws in batches:
        for name, (indices, turn) in parts_of(draws).items():
            turns = [turn] * len(indices) if isinstance(turn, int) else turn
            yield from ((name, *pair) for pair in zip(indices, turns, strict=True))


def indices_of(plan: Plan, epoch: int) -> list[int]:
    return [index for _, index, _ in drawn(plan.batches(epoch))]


def hold(make: Callable[[], Plan], *, starts: Iterable[int] = (0, 1, 4, 1000)) -> None:
    """The laws of every plan, held by what ``make`` gives: each time an equal one."""
    one = make()
    epochs = [list(make().batches(epoch)) for epoch in range(EPOCHS)]
    assert [len(batches) for batches in epochs] == [one.num_batches] * EPOCHS
    assert one.num_batches > 0 and one.describe()
    for epoch in (1, 0, 2, 2, 0):  # whatever was asked before
        for start in {*starts, one.num_batches - 1, one.num_batches}:
            assert list(one.batches(epoch, start)) == epochs[epoch][start:]
    plain = [number for _, *pair in drawn(epochs[1]) for number in pair]
    assert {type(number) for number in plain} == {int} and min(plain) >= 0
    assert max(index for _, index, _ in drawn(epochs[1])) < one.num_samples
    for world in (1, 2, 3):
        _shares_are_the_whole(make, epochs[1], world)


def _shares_are_the_whole(make: Callable[[], Plan], batches: list[Draws], world: int) -> None:
    ranks = [list(ShardedPlan(make(), rank, world).batches(1)) for rank in range(world)]
    for whole, *shares in zip(batches, *ranks, strict=True):
        for name, draw in parts_of(whole).items():
            parts = [parts_of(share)[name] for share in shares if not is_padding(share)]
            sizes = [len(part.indices) for part in parts]
            assert max(sizes) - min(sizes) <= 1
            assert list(drawn(parts)) == list(drawn([draw]))


def no_drawing_twice(plan: Plan) -> None:
    """No sample has the same turn twice, so it is never augmented in the same way."""
    found = [one for epoch in range(EPOCHS) for one in drawn(plan.batches(epoch))]
    assert len(set(found)) == len(found)
