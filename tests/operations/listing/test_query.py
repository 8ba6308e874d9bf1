"""The grammar of what is looked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import UsageError
from roost.operations.listing.query import MAX_CHARACTERS, MAX_TERMS, Comparison, Key, SortKey, Word, parse
from tests.messages import Messages


def test_all_kinds_of_terms() -> None:
    found = parse("status:running lr<1e-3 valid/accuracy>=0.9 Digits sort:-valid/accuracy sort:step")
    assert found.words == [Word("digits")]
    assert found.comparisons == [
        Comparison(Key("state", 1), ":", "running", None),
        Comparison(Key("lr", 16), "<", "1e-3", 0.001),
        Comparison(Key("valid/accuracy", 24), ">=", "0.9", 0.9),
    ]
    assert found.sort_keys == [SortKey(Key("valid/accuracy", 57), True), SortKey(Key("step", 77), False)]
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
    ("text", "place", "fact"),
    [
        ("lr<", 4, "lr<VALUE"),
        ("name: digits", 6, "name:VALUE"),
        ("lr < 3", 4, "key<VALUE"),
        ("<3", 1, "key<3"),
        ("digits lr=<3", 10, "lr<=3"),
        ("lr=>3", 3, "lr>=3"),
        ("lr<>3", 3, "lr!=3"),
        ("step<many", 6, "'many'"),
        ("step<1_000", 6, "'1_000'"),
        ("status:runing", 8, "'running'"),
        ("state=odd", 7, "succeeded"),
        ("starred=yes", 9, "starred:true"),
        ("sort:", 6, "sort:key"),
        ("sort:-", 6, "sort:key"),
        ('a name:"open', 8, "'\"open'"),
        ('"a"b', 4, "'\"a\"b'"),
        ('name:"a"=3', 9, "'\"a\"='"),
        ("seconds>1.5y", 9, "'1.5y'"),
    ],
)
def test_what_means_nothing_is_told_with_its_place(
    text: str, place: int, fact: str, messages: Messages
) -> None:
    with pytest.raises(UsageError) as error:
        parse(text)
    assert error.value.setting == "query" and f" {place}: " in error.value.detail
    assert fact in str(error.value)
    messages.check(error.value)


def test_bounds(messages: Messages) -> None:
    with pytest.raises(UsageError) as refused:
        parse("a" * (MAX_CHARACTERS + 1))
    assert refused.value.setting == "query"
    assert all(fact in str(refused.value) for fact in ("4097", "4096"))
    messages.check(refused.value)
    parse("a " * MAX_TERMS)
    with pytest.raises(UsageError) as refused:
        parse("a " * (MAX_TERMS + 1))
    assert refused.value.setting == "query"
    assert f" {MAX_TERMS} " in str(refused.value)
    messages.check(refused.value)


@given(st.text(alphabet="ab1.-/<>=:!\"' \t\n\u00e9", max_size=40))
def test_any_text_is_a_query_or_a_mistake(text: str) -> None:
    try:
        found = parse(text)
    except UsageError:
        return
    assert all(
        text[key.position - 1 :].lstrip("\"'").startswith(key.name.lstrip("\"'")) for key in found.keys
    )
