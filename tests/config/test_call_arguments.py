"""Arguments that fit a class, and others; the messages for whole specs are tested in test_objects.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import pytest

from roost.base.errors import ConfigError
from roost.config import call_arguments
from roost.config.call_arguments import SpecLocation
from tests.messages import Messages

PLACE = SpecLocation("made.it", lambda key: f"line of {key}")


class Made:
    def __init__(
        self,
        whole: int = 1,
        number: float = 0.5,
        flag: bool = False,
        text: str = "a",
        pair: tuple[float, float] = (0.1, 0.2),
        many: tuple[int, ...] = (),
        maybe: int | None = None,
        either: int | float = 1,
        choice: Literal["up", "down"] = "up",
        items: Iterable[int] = (),
        names: list[str] | str = "a",
        function: Callable[[int], float] | None = None,
        parts: Sequence[Made] = (),
        wrong: int = "auto",  # type: ignore[assignment]
        free=None,  # type: ignore[no-untyped-def]
        anything: Any = None,
    ) -> None: ...


GOOD = [
    ("whole", 3, 3),
    ("whole", 1e3, 1000),
    ("whole", [1.0, 2], [1, 2]),
    ("number", 3, 3),
    ("number", [0.1, 3], [0.1, 3]),
    ("flag", True, True),
    ("pair", [0.9, 1], (0.9, 1)),
    ("many", [1, 2.0, 3], (1, 2, 3)),
    ("maybe", None, None),
    ("maybe", 2.0, 2),
    ("either", 2.0, 2.0),
    ("choice", "down", "down"),
    ("items", [1, 2], [1, 2]),
    ("names", ["a"], ["a"]),
    ("function", abs, abs),
    ("wrong", "auto", "auto"),
    ("free", "x", "x"),
    ("anything", {"a": 1}, {"a": 1}),
]


@pytest.mark.parametrize(("name", "value", "wanted"), GOOD)
def test_what_fits_comes_as_the_class_wants_it(name: str, value: object, wanted: object) -> None:
    (found,) = call_arguments.convert_types(Made, {name: value}, PLACE).values()
    assert found == wanted and type(found) is type(wanted)


BAD: list[tuple[str, object]] = [
    ("whole", 2.5),
    ("whole", "3"),
    ("whole", True),
    ("whole", None),
    ("number", "1e-3"),
    ("number", False),
    ("number", {"a": 1}),
    ("number", [0.1, "a"]),
    ("flag", "yes"),
    ("flag", 1),
    ("text", 3),
    ("pair", "0.9, 0.99"),
    ("pair", [0.9]),
    ("pair", [0.9, "0.99"]),
    ("pair", 0.9),
    ("many", ["a"]),
    ("maybe", "none"),
    ("choice", "left"),
    ("items", 5),
    ("items", "123"),
    ("names", 3),
    ("function", "abs"),
    ("parts", [3]),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_what_does_not_fit_is_named(name: str, value: object, messages: Messages) -> None:
    with pytest.raises(ConfigError) as caught:
        call_arguments.convert_types(Made, {"text": "b", name: value}, PLACE)
    said = str(caught.value)
    messages.check(caught.value)
    assert (caught.value.setting, caught.value.where) == (f"made.it.{name}", f"line of made.it.{name}")
    assert repr(value) in said and "whole=1" in said and "number=0.5" in said
    assert caught.value.fix is not None
    if value in ("3", "1e-3", "123"):
        assert str(value) in caught.value.fix


def test_annotations_that_only_a_type_checker_knows_are_passed_over() -> None:
    def made(a: NotThere, b: int) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert call_arguments.convert_types(made, {"a": 1, "b": "x"}, PLACE) == {"a": 1, "b": "x"}
    assert call_arguments.convert_types(max, {"a": 1}, PLACE) == {"a": 1}, "in C, without a signature"
    call_arguments.check_names("max", max, {"a": 1}, {}, PLACE)


def test_names(messages: Messages) -> None:
    def open_one(a: int, **others: int) -> None: ...

    call_arguments.check_names("f", open_one, {"a": 1, "b": 2}, {"c": 3}, PLACE)
    with pytest.raises(ConfigError) as refused:
        call_arguments.check_names("f", open_one, {"b": 2}, {}, PLACE)
    messages.check(refused.value)
    assert refused.value.setting == "made.it.class"
    assert all(fact in str(refused.value) for fact in ("'a'", "line of made.it.class"))
    assert (
        call_arguments.accepts(open_one, "a")
        and not call_arguments.accepts(open_one, "b")
        and not call_arguments.accepts(max, "a")
    )


def test_the_culprit_is_the_one_without_which_it_works() -> None:
    def attempt(spec: dict[str, Any]) -> None:
        if spec.get("a", 1) < 0 or spec["b"] == 0:
            raise ValueError

    assert call_arguments.find_bad_argument({"class": "c", "a": -1, "b": 1}, attempt) == "a"
    assert call_arguments.find_bad_argument({"class": "c", "a": 1, "b": 0}, attempt) == "b", (
        "it is needed: 1 in its place"
    )
    assert call_arguments.find_bad_argument({"class": "c", "a": -1, "b": 0}, attempt) is None
    assert call_arguments.find_bad_argument({"class": "c", "b": 0}, attempt) == "b"
    assert call_arguments.find_bad_argument({"class": "c"}, attempt) is None
