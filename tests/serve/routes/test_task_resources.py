from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from roost.base.errors import UsageError
from roost.base.interval import parse_duration
from roost.devices.resource_request import TaskOptions
from roost.serve.routes import task_resources
from roost.serve.routes.task_resources import ResourceParameters


def test_parameters_are_the_options_of_a_task_and_nothing_else() -> None:
    assert ResourceParameters.__struct_fields__ == TaskOptions.__struct_fields__
    assert ResourceParameters.__struct_defaults__ == TaskOptions.__struct_defaults__
    assert task_resources.time_limit_override(ResourceParameters()) == []
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"cards": 1}, ResourceParameters)


@pytest.mark.parametrize("seconds", [5e-324, 1e-6, 0.1, 1.0, 86_400.0, 123_456.75, 1_000_000.0, 1e9])
def test_a_time_limit_of_any_length_arrives(seconds: float) -> None:
    (override,) = task_resources.time_limit_override(ResourceParameters(time_limit=seconds))
    name, _, value = override.partition("=")
    assert name == "roost.limits.wall_time" and parse_duration(value, setting=name) == max(seconds, 1e-6)


def test_a_path_begins_at_the_root() -> None:
    assert task_resources.absolute_path("/a/b", "config") == Path("/a/b")
    for text in ("a", "./a", "../a", "~/a"):
        with pytest.raises(UsageError) as caught:
            task_resources.absolute_path(text, "config")
        assert caught.value.setting == "config"
