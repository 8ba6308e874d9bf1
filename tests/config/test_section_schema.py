"""Reading sections, on a small struct; roost's own settings are tested in test_settings.py."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from msgspec import Meta, Struct, field

from roost.base.errors import ConfigError
from roost.config import section_schema
from tests.messages import Messages


class Wheel(Struct, frozen=True, kw_only=True):
    size: Annotated[int, Meta(ge=1, description="inches")] = 28
    class_: Annotated[str, Meta(description="its class")] = field(name="class")
    arguments: dict[str, Any] = {}


class Bicycle(Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="what it is called", extra={"fix": "give a word"})]
    front: Wheel = Wheel(class_="plain")
    spare: Wheel | None = None
    wheels: Annotated[dict[str, Wheel], Meta(description="by name")] = {}
    stops: list[Wheel] = []
    colours: Annotated[dict[str, Annotated[int, Meta(ge=0)]], Meta(description="by part")] = {}


def read(values: dict[str, Any], *, is_open: bool = False) -> Bicycle:
    return section_schema.read_section(Bicycle, values, where=lambda key: f"line of {key}", is_open=is_open)


def test_reads_sections_names_lists_and_arguments() -> None:
    read_in = read(
        {
            "name": "a",
            "front": {"class": "x", "spokes": 32},
            "wheels": {"left": {"class": "y", "size": 20.0}},
            "stops": [{"class": "z"}],
            "spare": None,
        }
    )
    assert read_in.front == Wheel(class_="x", arguments={"spokes": 32})
    assert read_in.wheels["left"].size == 20
    assert read_in.stops == [Wheel(class_="z")]
    assert read_in.spare is None


@pytest.mark.parametrize(
    ("values", "setting", "facts"),
    [
        ({}, "name", []),
        ({"name": 3}, "name", ["line of name"]),
        ({"name": "a", "colours": {"bell": -1}}, "colours", []),
        ({"name": "a", "wheel": {}}, None, ["'wheels'"]),
        ({"name": "a", "wheels": {"left": {"class": "y", "size": 0}}}, "wheels.left.size", []),
        ({"name": "a", "stops": {"class": "z"}}, "stops", []),
        ({"name": "a", "front": 3}, "front", []),
    ],
)
def test_says_what_is_wrong_and_where(
    values: dict[str, Any], setting: str | None, facts: list[str], messages: Messages
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(values)
    messages.check(caught.value)
    assert caught.value.setting == setting and all(fact in str(caught.value) for fact in facts)


def test_an_open_section_passes_over_what_is_not_its_own() -> None:
    assert read({"name": "a", "mine": 1}, is_open=True) == read({"name": "a"})


def test_keys_defaults_and_help(messages: Messages) -> None:
    values = {"name": "a", "wheels": {"left": {}}}
    assert list(section_schema.known_keys(Bicycle, values)) == [
        "name", "front", "front.size", "front.class", "spare", "spare.size", "spare.class",
        "wheels", "wheels.left", "wheels.left.size", "wheels.left.class", "stops", "colours",
    ]  # fmt: skip
    assert section_schema.defaults(Bicycle, values) == {
        "front": {"size": 28},
        "wheels": {"left": {"size": 28}},
    }
    assert section_schema.describe(Bicycle, "wheels.left.size") == "inches"
    messages.check(section_schema.describe(Bicycle, "front.spokes"))
    assert section_schema.describe(Bicycle, "mine") is None
