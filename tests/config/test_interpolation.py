"""References in settings: their values, unresolved ones, and refused ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import ConfigError
from roost.config.interpolation import LATE_NAMES, fill_late, find_references, resolve
from tests.messages import Messages


def refusal(values: dict[str, Any], **context: object) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(values, context, where={"a": "config.yaml:3", "b.c": "config.yaml:5"}.get)
    assert caught.value.exit_code == 4
    return str(caught.value)


@pytest.mark.parametrize("value", [3, 1e-3, True, None, "text", [1, {"x": 2}], {"y": [1]}, {}])
def test_a_whole_reference_keeps_the_type(value: object) -> None:
    resolved = resolve({"a": "${b.c}", "b": {"c": value}}, {})
    assert resolved["a"] == value
    assert type(resolved["a"]) is type(value)


def test_inside_a_text_values_are_formatted() -> None:
    values = {"a": "x-${b}-${c}-${d}/${ e }", "b": 1, "c": 1e-3, "d": True, "e": "t"}
    assert resolve(values, {})["a"] == "x-1-0.001-True/t"


def test_references_lead_on_to_references() -> None:
    values = {"a": "${b}", "b": "${c.d}", "c": {"d": "<${e.0}>"}, "e": ["${f}"], "f": 5}
    assert resolve(values, {}) == {"a": "<5>", "b": "<5>", "c": {"d": "<5>"}, "e": [5], "f": 5}


def test_lists_and_sections_are_resolved_inside() -> None:
    values = {"a": [{"x": "${b}"}, ["${b}"]], "b": 2, "copy": "${a}"}
    resolved = resolve(values, {})
    assert resolved["a"] == resolved["copy"] == [{"x": 2}, [2]]
    assert resolved["a"] is not resolved["copy"]


def test_the_context(tmp_path: Path) -> None:
    values = {"a": "${project}/data", "b": "${package}", "project": "mine"}
    resolved = resolve(values, {"project": tmp_path, "package": "/p"})
    assert resolved == {"a": f"{tmp_path}/data", "b": "/p", "project": "mine"}


def test_the_environment(monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    monkeypatch.setenv("ROOST_TEST", "010")
    monkeypatch.delenv("ROOST_NONE", raising=False)
    assert resolve({"a": "${env:ROOST_TEST}", "b": "<${env:ROOST_TEST}>"}, {}) == {"a": "010", "b": "<010>"}
    message = refusal({"a": "${env:ROOST_NONE}"})
    messages.check(message)
    assert "ROOST_NONE" in message and "config.yaml:3" in message
    assert "export ROOST_NONE=" in message


def test_late_names_stay_until_they_are_known() -> None:
    values = {"T": "${total_steps}", "u": "${T}", "t": "${b}-${steps_per_epoch}", "b": 2}
    waiting = {"T": "${total_steps}", "u": "${total_steps}", "t": "2-${steps_per_epoch}", "b": 2}
    assert resolve(values, {}) == waiting
    known = {"total_steps": 100, "steps_per_epoch": 10}
    assert resolve(values, known) == {"T": 100, "u": 100, "t": "2-10", "b": 2}
    assert fill_late(waiting, known) == {"T": 100, "u": 100, "t": "2-10", "b": 2}
    assert fill_late(waiting, {"total_steps": 100}) == {**waiting, "T": 100, "u": 100}


def test_what_is_still_waiting() -> None:
    values = {"a": ["x-${total_steps}"], "b": {"c": "${steps_per_epoch}"}, "d": "$${total_steps}", "e": 1}
    assert list(find_references(values, LATE_NAMES)) == [("a.0", "total_steps"), ("b.c", "steps_per_epoch")]


def test_without_late_names_they_are_unknown(messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve({"a": "${total_steps}"}, {}, late=frozenset())
    messages.check(refused.value)
    assert refused.value.setting == "a" and "${total_steps}" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$${b}", "${b}"),
        ("$${b}-${b}", "${b}-1"),
        ("$${", "${"),
        ("$$${b}", "$${b}"),
        ("$5 $ {b} $$", "$5 $ {b} $$"),
        ("{b}", "{b}"),
        ("$${a${b}}", "${a1}"),
        ("$${total_steps}", "$${total_steps}"),
    ],
)
def test_escapes(text: str, expected: str) -> None:
    assert resolve({"a": text, "b": 1}, {})["a"] == expected


@given(st.text(alphabet="ab${}", max_size=12))
def test_resolving_in_two_passes_is_resolving_in_one(text: str) -> None:
    values = {"x": text.replace("a", "total_steps"), "b": 7}
    context = {"total_steps": 100}
    try:
        at_once: object = resolve(values, context)
    except ConfigError:
        with pytest.raises(ConfigError):
            resolve(values, {})
        return
    assert fill_late(resolve(values, {}), context) == at_once


@given(st.text())
def test_texts_without_references_stay(text: str) -> None:
    plain = text.replace("${", "$ {")
    assert resolve({"a": plain}, {}) == {"a": plain}


@pytest.mark.parametrize("text", ["${b", "x ${", "${}", "${ }", "${a.${b}}"])
def test_malformed_references(text: str, messages: Messages) -> None:
    message = refusal({"a": text, "b": 1})
    assert message.startswith("a: ") and repr(text) in message and "config.yaml:3" in message
    messages.check(message)
    assert "$${" in message


def test_unknown_references_name_the_nearest(messages: Messages) -> None:
    message = refusal({"a": "${modle.width}", "model": {"width": 1}})
    messages.check(message)
    assert "${modle.width}" in message and "config.yaml:3" in message
    assert "'model.width'" in message
    message = refusal({"a": "${total_step}"})
    messages.check(message)
    assert "'total_steps'" in message
    message = refusal({"a": "${projct}"}, project="/p")
    messages.check(message)
    assert "'project'" in message
    message = refusal({"a": "${b.5}", "b": [1]})
    messages.check(message)
    assert "${b.5}" in message
    message = refusal({"b": {"c": "${q}"}})
    messages.check(message)
    assert "${q}" in message


def test_cycles_show_their_chain(messages: Messages) -> None:
    message = refusal({"a": "x${b.c}", "b": {"c": "${a}"}})
    messages.check(message)
    assert "a -> b.c -> a" in message and "config.yaml:3" in message
    message = refusal({"a": "${a}"})
    messages.check(message)
    assert "a -> a" in message
    message = refusal({"b": {"c": "${b}"}})
    messages.check(message)
    assert "b.c -> b.c" in message and "config.yaml:5" in message
    assert "a.0 -> a.0" in refusal({"a": ["${a}"]})


def test_a_section_cannot_stand_inside_a_text(messages: Messages) -> None:
    message = refusal({"a": "x ${b}", "b": {"c": 1}})
    messages.check(message)
    assert "${b}" in message and "config.yaml:3" in message
    message = refusal({"a": "x ${b}", "b": [1]})
    messages.check(message)
    assert "${b}" in message


def test_references_cannot_multiply(messages: Messages) -> None:
    texts = {f"t{i}": f"${{t{i + 1}}}" * 10 for i in range(9)} | {"t9": "x" * 1000}
    messages.check(refusal(texts))
    lists: dict[str, Any] = {f"l{i}": [f"${{l{i + 1}}}"] * 100 for i in range(9)} | {"l9": 1}
    messages.check(refusal(lists))
    chain: dict[str, Any] = {f"c{i}": f"${{c{i + 1}}}" for i in range(5000)} | {"c5000": 1}
    message = refusal(chain)
    messages.check(message)
    assert "64" in message


def test_the_given_values_stay_untouched() -> None:
    values = {"a": ["${b}"], "b": {"c": "${env:HOME}"}}
    before = repr(values)
    resolve(values, {})
    fill_late(values, {"b": 1})
    assert repr(values) == before
