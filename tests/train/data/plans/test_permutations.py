from __future__ import annotations

from dataclasses import dataclass, field

from roost.train.data.plans.permutations import cache_latest, generator


@dataclass(frozen=True)
class Squares:
    """Remembers what it was asked to compute."""

    asked: list[int] = field(default_factory=list, compare=False)

    @cache_latest
    def square(self, number: int) -> int:
        self.asked.append(number)
        return number**2

    @cache_latest
    def cube(self, number: int) -> int:
        self.asked.append(number)
        return number**3


def test_the_newest_is_computed_once() -> None:
    one = Squares()
    assert [one.square(number) for number in (2, 2, 3, 2)] == [4, 4, 9, 4]
    assert one.asked == [2, 3, 2]


def test_each_method_of_each_object_keeps_its_own() -> None:
    one, other = Squares(), Squares()
    assert (one.square(2), one.cube(2), other.square(2), one.square(2)) == (4, 8, 4, 4)
    assert (one.asked, other.asked) == ([2, 2], [2])
    assert one == other


def test_the_numbers_stay_what_they_are() -> None:
    assert generator(3, "order", 1).permutation(8).tolist() == [2, 1, 4, 3, 5, 6, 0, 7]
