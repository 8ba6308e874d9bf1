"""The words of reasons are those of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from roost.lab.policy import reason_codes

PAGE = Path(__file__).parents[3] / "docs" / "lab.md"


def test_the_table_of_the_page_has_each_word() -> None:
    (part,) = (part for part in PAGE.read_text().split("\n## ") if f"\n| `{reason_codes.HELD}` |" in part)
    rows = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
    told = [word for row in rows for word in re.findall("`([a-z]+)`", row)]
    assert sorted(told) == sorted(reason_codes.DISPLAYED_CODES) and len(set(told)) == len(told)


def test_every_constant_is_a_word_that_is_told_but_for_one() -> None:
    found = {value for value in vars(reason_codes).values() if isinstance(value, str) and value.islower()}
    assert {*reason_codes.DISPLAYED_CODES, reason_codes.CLOSED} == {
        one for one in found if value_is_word(one)
    }
    assert set(reason_codes.CAPACITY_CODES) < set(reason_codes.DISPLAYED_CODES)
    assert reason_codes.reason_code("cards: needs 2: none is free") == reason_codes.CARDS


def value_is_word(text: str) -> bool:
    return re.fullmatch("[a-z]+", text) is not None
