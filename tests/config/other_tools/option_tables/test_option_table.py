"""The defaults of other trainers as values, and the rows of a table by their names."""

from __future__ import annotations

import pytest

from roost.config.other_tools.option_tables import cornernet_options, speechain_options
from roost.config.other_tools.option_tables.option_table import Group, Option, by_name


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5.0", 5.0),
        ("true", True),
        ("none", None),
        ("{}", {}),
        ("-1", -1),
        ("./data", "./data"),
        ("off", None),
    ],
)
def test_a_default_is_a_value(text: str, value: object) -> None:
    assert Option("a", text).initial == value


def test_a_default_in_words_has_its_value_beside_it() -> None:
    assert Option("a", "0: ten an epoch", value=0).initial == 0


def test_the_first_option_of_a_name_counts() -> None:
    first, other = Option("a", "1"), Option("a", "2")
    assert by_name([Group("x", [first]), Group("y", [other])]) == {"a": first}


def test_no_default_of_the_trainers_is_a_sentence() -> None:
    for group in (*speechain_options.RUNNER_GROUPS, *cornernet_options.GROUPS):
        for option in group.options:
            assert not isinstance(option.initial, str) or " " not in option.initial, option.name
