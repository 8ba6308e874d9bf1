from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from roost.serve.http import request_body
from roost.serve.http.error_response import HttpError
from roost.serve.http.route import RequestParameters
from roost.serve.routes.machine import ChangeDevices
from roost.serve.routes.runs import SubmitCommand
from tests.messages import Messages
from tests.serve.test_attacks import MALFORMED

_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=4)
    ),
    max_leaves=10,
)


class Wanted(RequestParameters, frozen=True, kw_only=True):
    count: int = 0
    names: tuple[str, ...] = ()
    cursor: Annotated[str, Meta(pattern="^[0-9]$")] = "0"
    state: tuple[Literal["running", "failed"], ...] = ()
    needed: str


@given(st.dictionaries(st.text("abc"), _values))
def test_an_unambiguous_body_is_parsed(value: dict[str, Any]) -> None:
    assert request_body.parse_json_object(json.dumps(value).encode()) == value


@given(st.binary(max_size=200) | st.text('{}[]":,0123eE-+.\\ntrufals ').map(str.encode))
def test_other_bodies_are_refused_with_a_message(data: bytes) -> None:
    try:
        found = request_body.parse_json_object(data)
    except HttpError as refused:
        assert (refused.status, refused.problem.code) == (400, "malformed")
    else:
        assert isinstance(found, dict)


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed(what: str) -> None:
    with pytest.raises(HttpError) as caught:
        request_body.parse_json_object(MALFORMED[what])
    assert caught.value.status == 400


def test_the_field_at_fault_is_named() -> None:
    for value, strict, field in [
        ({"needed": "x", "cuont": 1}, True, "cuont"),
        ({"count": 1}, True, "needed"),
        ({"count": "1", "needed": "x"}, True, "count"),
        ({"count": "x", "needed": "x"}, False, "count"),
        ({"names": ["a", 1], "needed": "x"}, True, "names[1]"),
    ]:
        with pytest.raises(HttpError) as caught:
            request_body.convert_parameters(Wanted, value, strict=strict)
        assert (caught.value.status, caught.value.problem.field) == (422, field)
    assert request_body.convert_parameters(Wanted, {"count": "1", "needed": "x"}, strict=False) == Wanted(
        count=1, needed="x"
    )


@pytest.mark.parametrize(
    ("value", "what", "fix"),
    [
        ({"cuont": 1}, "", "count, names, cursor, state"),
        ({"cursor": "x"}, "cursor", ""),
        ({"state": ["done"]}, "Invalid enum value 'done'", "running, failed"),
        ({"count": "1"}, "Expected `int`, got `str`", None),
        ({"names": "a"}, "Expected `array`, got `str`", ""),
        ({}, "", None),
    ],
)
def test_a_problem_has_a_fix_where_the_message_does_not_imply_it(
    value: dict[str, Any], what: str, fix: str | None, messages: Messages
) -> None:
    with pytest.raises(HttpError) as caught:
        request_body.convert_parameters(
            Wanted, {"needed": "x"} | value if value else {}, strict=True, path_parameters=["needed"]
        )
    found = caught.value.problem
    assert what in found.message
    assert (found.fix is None) == (fix is None) and (fix or "") in (found.fix or "")
    messages.check(found)


@pytest.mark.parametrize("command", [[], "python train.py", [1], None, {"program": "python"}, "missing"])
def test_a_wrong_command_is_answered_with_an_example(command: object, messages: Messages) -> None:
    given = {"folder": "/x"} | ({} if command == "missing" else {"command": command})
    with pytest.raises(HttpError) as caught:
        request_body.convert_parameters(SubmitCommand, given, strict=True)
    assert '["python", "train.py"' in str(caught.value.problem.fix)
    assert str(caught.value.problem.field).startswith("command")
    messages.check(caught.value.problem)


def test_a_fix_names_number_and_words_where_both_are_allowed(messages: Messages) -> None:
    with pytest.raises(HttpError) as caught:
        request_body.convert_parameters(ChangeDevices, {"most_per_card": 0}, strict=True)
    assert "any" in str(caught.value.problem.fix)
    messages.check(caught.value.problem)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("null", "null"),
        ("[1]", "array"),
        ('"x"', "string"),
        ("1.5", "number"),
        ("true", "true"),
    ],
)
def test_a_body_that_is_not_an_object_is_named_in_json_terms(
    text: str, said: str, messages: Messages
) -> None:
    with pytest.raises(HttpError, match=said) as caught:
        request_body.parse_json_object(text.encode())
    messages.check(caught.value)


@pytest.mark.parametrize("text", [b"a=%ff", b"a=\xc3\xa9", b"%e2%82=1", b"a=%ed%a0%80"])
def test_a_query_that_is_not_text_is_refused(text: bytes, messages: Messages) -> None:
    with pytest.raises(HttpError) as caught:
        request_body.parse_query(text)
    assert caught.value.status == 400
    messages.check(caught.value)
    assert request_body.parse_query(b"a=%C3%A9&a=&b=x+y&c") == [
        ("a", "\xe9"),
        ("a", ""),
        ("b", "x y"),
        ("c", ""),
    ]


def test_a_query_is_read_like_a_body(messages: Messages) -> None:
    pairs = [("names", "a"), ("names", "b"), ("needed", "x")]
    assert request_body.query_parameters(pairs, frozenset({"names"})) == {"names": ["a", "b"], "needed": "x"}
    for wrong in ([("a", "1"), ("a", "2")], [("a", "\0")], [("\ud800", "a")]):
        with pytest.raises(HttpError) as caught:
            request_body.query_parameters(wrong, frozenset())
        messages.check(caught.value)


@pytest.mark.parametrize("text", ["", " 1", "1 ", "+1", "1.0", "1e3", "0x1", "1_0", "١", "9" * 21, "--1"])
def test_a_whole_number_is_written_as_one(text: str) -> None:
    with pytest.raises(HttpError) as caught:
        request_body.require_integers({"limit": text}, frozenset({"limit"}))
    assert caught.value.problem.field == "limit"
    request_body.require_integers({"limit": "-12", "other": text}, frozenset({"limit", "offset"}))


def test_names_of_a_path_hold_no_nul() -> None:
    with pytest.raises(HttpError, match="NUL"):
        request_body.require_text({"run": "a\0b"})


def test_the_schema_forbids_what_it_does_not_know() -> None:
    assert msgspec.json.schema(Wanted)["$defs"]["Wanted"]["additionalProperties"] is False
