"""References in settings: what they become, what waits, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import ConfigError
from roost.config.interpolation import LATE, fill, resolve, waiting


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


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_TEST", "010")
    monkeypatch.delenv("ROOST_NONE", raising=False)
    assert resolve({"a": "${env:ROOST_TEST}", "b": "<${env:ROOST_TEST}>"}, {}) == {"a": "010", "b": "<010>"}
    message = refusal({"a": "${env:ROOST_NONE}"})
    assert "a: the environment has no variable ROOST_NONE (at config.yaml:3)" in message
    assert "export ROOST_NONE=" in message


def test_late_names_stay_until_they_are_known() -> None:
    values = {"T": "${total_steps}", "u": "${T}", "t": "${b}-${steps_per_epoch}", "b": 2}
    waiting = {"T": "${total_steps}", "u": "${total_steps}", "t": "2-${steps_per_epoch}", "b": 2}
    assert resolve(values, {}) == waiting
    known = {"total_steps": 100, "steps_per_epoch": 10}
    assert resolve(values, known) == {"T": 100, "u": 100, "t": "2-10", "b": 2}
    assert fill(waiting, known) == {"T": 100, "u": 100, "t": "2-10", "b": 2}
    assert fill(waiting, {"total_steps": 100}) == {**waiting, "T": 100, "u": 100}


def test_what_is_still_waiting() -> None:
    values = {"a": ["x-${total_steps}"], "b": {"c": "${steps_per_epoch}"}, "d": "$${total_steps}", "e": 1}
    assert list(waiting(values, LATE)) == [("a.0", "total_steps"), ("b.c", "steps_per_epoch")]
    assert list(waiting(values, {"steps_per_epoch"}, "o")) == [("o.b.c", "steps_per_epoch")]


def test_without_late_names_they_are_unknown() -> None:
    with pytest.raises(ConfigError, match=r"there is no setting \$\{total_steps\}"):
        resolve({"a": "${total_steps}"}, {}, late=frozenset())


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
    assert fill(resolve(values, {}), context) == at_once


@given(st.text())
def test_texts_without_references_stay(text: str) -> None:
    plain = text.replace("${", "$ {")
    assert resolve({"a": plain}, {}) == {"a": plain}


@pytest.mark.parametrize("text", ["${b", "x ${", "${}", "${ }", "${a.${b}}"])
def test_malformed_references(text: str) -> None:
    message = refusal({"a": text, "b": 1})
    assert f"a: a reference is malformed; received {text!r} (at config.yaml:3)" in message
    assert "$${ for a plain ${" in message


def test_unknown_references_name_the_nearest() -> None:
    message = refusal({"a": "${modle.width}", "model": {"width": 1}})
    assert "a: there is no setting ${modle.width} to refer to (at config.yaml:3)" in message
    assert "did you mean 'model.width'?" in message
    assert "did you mean 'total_steps'?" in refusal({"a": "${total_step}"})
    assert "did you mean 'project'?" in refusal({"a": "${projct}"}, project="/p")
    assert "there is no setting ${b.5}" in refusal({"a": "${b.5}", "b": [1]})
    assert "there is no setting ${q}" in refusal({"b": {"c": "${q}"}})


def test_cycles_show_their_chain() -> None:
    assert "settings refer to each other: a -> b.c -> a (at config.yaml:3)" in refusal(
        {"a": "x${b.c}", "b": {"c": "${a}"}}
    )
    assert "settings refer to each other: a -> a" in refusal({"a": "${a}"})
    assert "settings refer to each other: b.c -> b.c (at config.yaml:5)" in refusal({"b": {"c": "${b}"}})
    assert "a.0 -> a.0" in refusal({"a": ["${a}"]})


def test_a_section_cannot_stand_inside_a_text() -> None:
    message = refusal({"a": "x ${b}", "b": {"c": 1}})
    assert "a: ${b} is a section, which cannot stand inside a text (at config.yaml:3)" in message
    assert "${b} is a list" in refusal({"a": "x ${b}", "b": [1]})


def test_references_cannot_multiply() -> None:
    texts = {f"t{i}": f"${{t{i + 1}}}" * 10 for i in range(9)} | {"t9": "x" * 1000}
    assert "the text grows too long" in refusal(texts)
    lists: dict[str, Any] = {f"l{i}": [f"${{l{i + 1}}}"] * 100 for i in range(9)} | {"l9": 1}
    assert "references repeat too much" in refusal(lists)
    chain: dict[str, Any] = {f"c{i}": f"${{c{i + 1}}}" for i in range(5000)} | {"c5000": 1}
    assert "more than 64 references lead on to each other" in refusal(chain)


def test_the_given_values_stay_untouched() -> None:
    values = {"a": ["${b}"], "b": {"c": "${env:HOME}"}}
    before = repr(values)
    resolve(values, {})
    fill(values, {"b": 1})
    assert repr(values) == before
