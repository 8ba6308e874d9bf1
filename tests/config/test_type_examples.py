"""Fixes for settings of the wrong type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import pytest
from msgspec import NODEFAULT, Meta, Struct

from roost.base.errors import ConfigError
from roost.config import section_schema, type_examples
from roost.config.settings import Settings
from tests.messages import Messages


class Section(Struct, frozen=True):
    x: int = 1


@pytest.mark.parametrize(
    ("kind", "default", "received", "said"),
    [
        (Annotated[int, Meta(ge=1)] | None, None, "ten", "10"),
        (Annotated[int, Meta(ge=1)] | None, None, "5", "5"),
        (Annotated[int, Meta(ge=1, le=3)], 2, 0, "2"),
        (Annotated[int, Meta(ge=0, le=5)], NODEFAULT, -1, "1"),
        (Annotated[float, Meta(gt=0, le=1)], NODEFAULT, 2, "0.1"),
        (bool, False, "perhaps", "false"),
        (Literal["min", "max"], NODEFAULT, "least", "min"),
        (str, "1ep", 3.5, "1ep"),
        (str | None, None, 2024, "'2024'"),
        (str | None, None, True, "NAME"),
        (str, NODEFAULT, ["a"], "NAME"),
        (str | list[str] | None, None, {"a": 1}, "NAME"),
        (list[Annotated[int, Meta(ge=0)]], [], "a", "[10]"),
        (Sequence[float], NODEFAULT, "a", "[0.1]"),
        (tuple[float, int], NODEFAULT, 3, "[0.1,10]"),
        (dict[str, bool], {}, 3, '{"NAME":true}'),
        (Section, Section(), 3, None),
    ],
)
def test_what_would_be_right(
    kind: Any, default: Any, received: object, said: str | None, messages: Messages
) -> None:
    found = type_examples.suggest_value(kind, default, received)
    messages.check(found)
    assert found is None if said is None else found is not None and said in found


def plain_settings(struct: type[Struct], key: str = "") -> dict[str, Any]:
    """All that take something else than a section, by a key, as one would write it down."""
    found = {}
    for name, part in section_schema.fields(struct).items():
        if part.form == "plain" and part.has_plain:
            found[f"{key}{name}"] = part
        elif part.struct is not None:
            inner = {"one": "", "named": "one.", "listed": "0."}[part.form]
            found |= plain_settings(part.struct, f"{key}{name}.{inner}")
    return found


def test_every_setting_of_roost_tells_what_would_be_right() -> None:
    found = plain_settings(Settings)
    assert len(found) > 80
    for key, part in found.items():
        for wrong in ({"a": object()}, object()):
            expected = section_schema.describe_type(part.kind)
            with_any = section_schema.describe_type(
                Any
            ) in expected or expected == section_schema.describe_type(Section)
            assert with_any or part.fix or type_examples.suggest_value(part.kind, part.default, wrong), key


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"max_epochs": "ten"}, "10"),
        ({"max_epochs": "5"}, "5"),
        ({"data": {"batch_size": 0}}, "10"),
        (
            {"checkpoint": {"best": {"monitor": "loss"}}},
            "",
        ),
        ({"optimizers": []}, ""),
        ({"devices": "both"}, "[0, 2]"),
        ({"step_mode": "comple"}, "'compile'"),
    ],
)
def test_a_type_error_says_how_to_mend_it(values: dict[str, Any], said: str, messages: Messages) -> None:
    required = {"runner": "a.B", "dataset": "a.C", **values}
    with pytest.raises(ConfigError) as caught:
        section_schema.read_section(Settings, required, where=lambda key: "here")
    messages.check(caught.value.fix)
    assert caught.value.fix is not None and said in caught.value.fix
