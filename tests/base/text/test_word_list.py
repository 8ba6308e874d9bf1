from __future__ import annotations

from roost.base.text.word_list import listed
from tests.messages import Messages


def test_the_first_of_many_names(messages: Messages) -> None:
    assert listed([]) == "" and listed(["a"]) == "a"
    assert listed("abc", 2) == "a, b, c", "one name is as short as `and 1 more`"
    assert listed("abcdef", 2).startswith("a, b ") and "4" in listed("abcdef", 2)
    nine = listed([str(number) for number in range(9)])
    messages.check(nine)
    assert nine.startswith("0, 1, 2, 3 ") and "5" in nine
