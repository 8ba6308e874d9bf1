from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import default_collate

from roost.train.step.loss import Window
from roost.train.step.stepper import Stepper
from roost.train.step.timing import DATA, TO_DEVICE
from roost.train.step.windows import Windows
from roost.train.trainer import Trainer
from tests.train.parts import MLP, STEPS_PER_EPOCH, Points, Still, built, loader, plain


def trainer(accumulation: int, dataset: Any = None, runner: type[MLP] = MLP) -> Trainer:
    made = built(runner)
    stepper = Stepper(torch.optim.SGD(made.parameters(), lr=0.1), accumulation=accumulation)
    return plain(made, dataset if dataset is not None else Still(), stepper=stepper)


def windows_of(trainer: Trainer) -> Windows:
    return Windows(trainer.loaders["train"], trainer.runner.to_device, trainer.stepper, trainer.progress)


def drawn(windows: Windows, trainer: Trainer, count: int) -> list[tuple[list[int], int, bool]]:
    found = []
    for _ in range(count):
        window, samples, num_batches, _, last, _ = windows.draw()
        found.append(([len(batch[0]) for batch in window], samples, last))
        trainer.progress.advance(num_batches, samples, last)
    return found


def test_one_batch_for_each_step() -> None:
    one = trainer(1)
    found = drawn(windows_of(one), one, STEPS_PER_EPOCH + 1)
    assert found == [*[([4], 4, False)] * 6, ([2], 2, True), ([4], 4, False)]


@pytest.mark.parametrize(
    ("accumulation", "epoch"),
    [
        (3, [([4, 4, 4], 12, False), ([4, 4, 4], 12, False), ([2], 2, True)]),
        (4, [([4, 4, 4, 4], 16, False), ([4, 4, 2], 10, True)]),
        (9, [([4, 4, 4, 4, 4, 4, 2], 26, True)]),
    ],
)
def test_the_last_one_of_an_epoch_may_be_short(accumulation: int, epoch: Any) -> None:
    one = trainer(accumulation)
    assert one.steps_per_epoch == len(epoch)
    windows = windows_of(one)
    assert drawn(windows, one, 2 * len(epoch)) == [*epoch, *epoch]
    assert one.progress.epoch == 2 and one.progress.batch == 0
    windows.close()


def test_each_window_knows_its_samples_and_is_another_list() -> None:
    one = trainer(3)
    windows = windows_of(one)
    first, second = windows.draw()[0], windows.draw()[0]
    assert isinstance(first, Window) and first.num_samples == [4, 4, 4] and first is not second
    windows.close()


@pytest.mark.parametrize("accumulation", [1, 3])
def test_from_anywhere_the_same_batches(accumulation: int) -> None:
    whole = trainer(accumulation)
    windows = windows_of(whole)
    wanted = []
    for _ in range(5):
        window, samples, num_batches, _, last, _ = windows.draw()
        wanted.append([x.tolist() for x, _ in window])
        whole.progress.advance(num_batches, samples, last)
    for begin in range(5):
        other = trainer(accumulation)
        for window in wanted[:begin]:
            ends = other.progress.batch + len(window) == len(other.loaders["train"])
            other.progress.advance(len(window), 4 * len(window), ends)
        drawing = windows_of(other)
        assert [x.tolist() for x, _ in drawing.draw()[0]] == wanted[begin]
        drawing.close()


class Fails(Points):
    """Whose third drawn batch cannot be read, once."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 9

    def __getitem__(self, index: int) -> Any:
        self.left -= 1
        if self.left == 0:
            raise OSError("a sector of the disk")
        return super().__getitem__(index)


def test_after_an_error_it_begins_at_where_the_trainer_is() -> None:
    """A caller that skips the window advances the progress; otherwise it is drawn again."""
    again, passed = (trainer(2, Fails()) for _ in range(2))
    found = []
    for one in (again, passed):
        windows = windows_of(one)
        _, samples, num_batches, _, last, _ = windows.draw()
        one.progress.advance(num_batches, samples, last)
        with pytest.raises(OSError, match="a sector"):
            windows.draw()
        if one is passed:
            assert windows_of(one).placeholder() == ([], 0, 2, 0, False, 0)
            one.progress.advance(2, 0, False)
        found.append(windows.draw()[0])
        windows.close()
    straight = trainer(2)
    windows = windows_of(straight)
    labels = [[y.tolist() for _, y in windows.draw()[0]] for _ in range(3)]
    assert [y.tolist() for _, y in found[0]] == labels[1]
    assert [y.tolist() for _, y in found[1]] == labels[2]
    windows.close()


def test_a_window_that_could_not_be_drawn_ends_where_it_would_have() -> None:
    one = trainer(3)
    one.progress.batch = 6
    assert windows_of(one).placeholder() == ([], 0, 1, 0, True, 0)
    one.progress.batch = 3
    assert windows_of(one).placeholder() == ([], 0, 3, 0, False, 0)


class Gaps:
    """A collate that finds nothing in some batches: those of which it has seen the number."""

    def __init__(self, empty: set[int]) -> None:
        self.empty, self.number = empty, -1

    def __call__(self, samples: list[Any]) -> Any:
        self.number += 1
        return None if self.number in self.empty else default_collate(samples)


@pytest.mark.parametrize(
    ("accumulation", "empty", "found"),
    [
        (1, {0, 6}, [([], 0, 1, 1, False), *[([4], 4, 1, 0, False)] * 5, ([], 0, 1, 1, True)]),
        (3, {1, 6}, [([4, 4], 8, 3, 1, False), ([4, 4, 4], 12, 3, 0, False), ([], 0, 1, 1, True)]),
        (3, {3, 4, 5}, [([4, 4, 4], 12, 3, 0, False), ([], 0, 3, 3, False), ([2], 2, 1, 0, True)]),
    ],
)
def test_empty_batches_count_as_batches(accumulation: int, empty: set[int], found: Any) -> None:
    """So a step is where it would be, whatever the collate leaves out."""
    one = trainer(accumulation)
    one.loaders = {"train": loader(Still(), collate=Gaps(empty))}
    windows = windows_of(one)
    for expected in found:
        window, *rest, _ = windows.draw()
        assert ([len(batch[0]) for batch in window], *rest) == expected
    windows.close()


class Moves(MLP):
    """Cannot move every batch."""

    def to_device(self, batch: Any) -> Any:
        if len(batch[0]) == 2:
            raise RuntimeError("no room on the device")
        return [value + 0 for value in batch]


def test_batches_are_moved_and_both_are_timed() -> None:
    one = trainer(1, runner=Moves)
    windows, spent = windows_of(one), one.stepper.timing.spent
    for _ in range(6):
        assert isinstance(windows.draw()[0][0], list)
    assert spent[DATA] > 0 and spent[TO_DEVICE] > 0
    with pytest.raises(RuntimeError, match="no room"):
        windows.draw()
    windows.close()
    windows.close()
