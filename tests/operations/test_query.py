"""The grammar of what is looked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import UsageError
from roost.operations.query import MOST_CHARACTERS, MOST_TERMS, Comparison, Key, Order, Word, parse


def test_all_kinds_of_terms() -> None:
    found = parse("status:running lr<1e-3 valid/accuracy>=0.9 Digits sort:-valid/accuracy sort:step")
    assert found.words == [Word("digits")]
    assert found.comparisons == [
        Comparison(Key("state", 1), ":", "running", None),
        Comparison(Key("lr", 16), "<", "1e-3", 0.001),
        Comparison(Key("valid/accuracy", 24), ">=", "0.9", 0.9),
    ]
    assert found.orders == [Order(Key("valid/accuracy", 57), True), Order(Key("step", 77), False)]
    assert parse("  ") == ([], [], [])


@pytest.mark.parametrize("operator", [":", "=", "!=", "<", "<=", ">", ">="])
def test_operators(operator: str) -> None:
    (found,) = parse(f"a.b{operator}-3").comparisons
    assert found == (Key("a.b", 1), operator, "-3", -3.0)
    assert parse("a==3").comparisons[0].operator == "="


def test_quotes_hold_spaces_and_operators() -> None:
    (found,) = parse("""description:"two words" 'a <b' """).comparisons
    assert found.text == "two words"
    assert parse("""description:"two words" 'a <b' """).words == [Word("a <b")]
    assert parse('"a:b"<3').comparisons == [Comparison(Key("a:b", 1), "<", "3", 3.0)]
    assert parse('description=""').comparisons[0].text == ""
    assert parse("it's").words == [Word("it's")]


def test_times() -> None:
    assert parse("seconds>1.5h").comparisons[0].number == 5400
    assert parse("seconds>90").comparisons[0].number == 90
    assert parse("started>=2026-11-21T12:00+00:00").comparisons[0].number == 1795262400


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("lr<", 4, "nothing stands after"),
        ("name: digits", 6, "nothing stands after"),
        ("lr < 3", 4, "write key<VALUE, without spaces"),
        ("<3", 1, "write key<3"),
        ("digits lr=<3", 10, "write lr<=3"),
        ("lr=>3", 3, "write lr>=3"),
        ("lr<>3", 3, "write lr!=3"),
        ("step<many", 6, "< compares numbers"),
        ("step<1_000", 6, "< compares numbers"),
        ("status:runing", 8, "did you mean 'running'?"),
        ("state=odd", 7, "succeeded"),
        ("sort:", 6, "write sort:key"),
        ("sort:-", 6, "write sort:key"),
        ('a name:"open', 8, "close it"),
        ('"a"b', 4, "put a space after it"),
        ('name:"a"=3', 9, "put a space after it"),
        ("seconds>1.5y", 9, "compares numbers"),
    ],
)
def test_what_means_nothing_is_told_with_its_place(text: str, place: int, said: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(text)
    assert f"query: character {place}: " in str(error.value) and said in str(error.value)


def test_bounds() -> None:
    with pytest.raises(UsageError, match="4097 characters"):
        parse("a" * (MOST_CHARACTERS + 1))
    parse("a " * MOST_TERMS)
    with pytest.raises(UsageError, match=f"at most {MOST_TERMS} terms"):
        parse("a " * (MOST_TERMS + 1))


@given(st.text(alphabet="ab1.-/<>=:!\"' \t\n\u00e9", max_size=40))
def test_any_text_is_a_query_or_a_mistake(text: str) -> None:
    try:
        found = parse(text)
    except UsageError:
        return
    assert all(text[key.place - 1 :].lstrip("\"'").startswith(key.name) for key in found.keys)
