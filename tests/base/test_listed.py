from __future__ import annotations

from roost.base.listed import listed


def test_the_first_of_many_names() -> None:
    assert listed([]) == "" and listed(["a"]) == "a"
    assert listed("abc", 2) == "a, b, c", "one name is as short as `and 1 more`"
    assert listed("abcdef", 2) == "a, b and 4 more"
    assert listed([str(number) for number in range(9)]) == "0, 1, 2, 3 and 5 more"
