from __future__ import annotations

from roost.base.text.word_list import join_names
from tests.messages import Messages


def test_the_first_of_many_names(messages: Messages) -> None:
    assert join_names([]) == "" and join_names(["a"]) == "a"
    assert join_names("abc", 2) == "a, b, c", "one name is as short as `and 1 more`"
    assert join_names("abcdef", 2).startswith("a, b ") and "4" in join_names("abcdef", 2)
    nine = join_names([str(number) for number in range(9)])
    messages.check(nine)
    assert nine.startswith("0, 1, 2, 3 ") and "5" in nine
