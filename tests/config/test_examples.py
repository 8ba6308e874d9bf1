"""How a setting of the wrong type is mended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import pytest
from msgspec import NODEFAULT, Meta, Struct

from roost.base.errors import ConfigError
from roost.config import examples, sections
from roost.config.settings import Settings


class Section(Struct, frozen=True):
    x: int = 1


@pytest.mark.parametrize(
    ("kind", "default", "received", "said"),
    [
        (Annotated[int, Meta(ge=1)] | None, None, "ten", "write for example 10"),
        (Annotated[int, Meta(ge=1)] | None, None, "5", "write 5 without quotes"),
        (Annotated[int, Meta(ge=1, le=3)], 2, 0, "write for example 2"),
        (Annotated[int, Meta(ge=0, le=5)], NODEFAULT, -1, "write for example 1"),
        (Annotated[float, Meta(gt=0, le=1)], NODEFAULT, 2, "write for example 0.1"),
        (bool, False, "perhaps", "write for example false"),
        (Literal["min", "max"], NODEFAULT, "least", "write for example min"),
        (str, "1ep", 3.5, "write for example 1ep"),
        (str | None, None, 2024, "write it in quotes: '2024'"),
        (str | None, None, True, "write for example NAME"),
        (str, NODEFAULT, ["a"], "write for example NAME"),
        (str | list[str] | None, None, {"a": 1}, "write for example NAME"),
        (list[Annotated[int, Meta(ge=0)]], [], "a", "write for example [10]"),
        (Sequence[float], NODEFAULT, "a", "write for example [0.1]"),
        (tuple[float, int], NODEFAULT, 3, "write for example [0.1,10]"),
        (dict[str, bool], {}, 3, 'write for example {"NAME":true}'),
        (Section, Section(), 3, None),
    ],
)
def test_what_would_be_right(kind: Any, default: Any, received: object, said: str | None) -> None:
    assert examples.mend(kind, default, received) == said


def plain_settings(struct: type[Struct], key: str = "") -> dict[str, Any]:
    """All that take something else than a section, by a key, as one would write it down."""
    found = {}
    for name, part in sections.parts(struct).items():
        if part.shape == "plain" and part.has_plain:
            found[f"{key}{name}"] = part
        elif part.struct is not None:
            inner = {"one": "", "named": "one.", "listed": "0."}[part.shape]
            found |= plain_settings(part.struct, f"{key}{name}.{inner}")
    return found


def test_every_setting_of_roost_tells_what_would_be_right() -> None:
    found = plain_settings(Settings)
    assert len(found) > 80
    for key, part in found.items():
        for wrong in ({"a": object()}, object()):
            with_any = (
                "anything" in sections.expected(part.kind) or sections.expected(part.kind) == "a section"
            )
            assert with_any or part.fix or examples.mend(part.kind, part.default, wrong), key


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"max_epochs": "ten"}, "write for example 10"),
        ({"max_epochs": "5"}, "write 5 without quotes"),
        ({"data": {"batch_size": 0}}, "write for example 10"),
        (
            {"checkpoint": {"best": {"monitor": "loss"}}},
            "write a list, each item with its keys",
        ),
        ({"optimizers": []}, "write a name, and its keys below it"),
        ({"devices": "both"}, "write auto, 2, or [0, 2]"),
        ({"step_mode": "comple"}, "did you mean 'compile'?"),
    ],
)
def test_a_type_error_says_how_to_mend_it(values: dict[str, Any], said: str) -> None:
    required = {"runner": "a.B", "dataset": "a.C", **values}
    with pytest.raises(ConfigError) as caught:
        sections.read(Settings, required, where=lambda key: "here")
    assert caught.value.fix == said
