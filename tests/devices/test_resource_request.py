"""The options of a task and its resource request: one declaration for all surfaces."""

from __future__ import annotations

from typing import get_args, get_type_hints

import msgspec
import pytest

from roost.api.client_methods import ResourceArguments
from roost.config.settings import Settings
from roost.devices.resource_request import ResourceRequest, Strategy, TaskOptions


def test_every_option_has_a_description() -> None:
    fields = msgspec.json.schema(TaskOptions)["$defs"]["TaskOptions"]["properties"]
    assert all(one.get("anyOf", [one])[0]["description"] for one in fields.values())


def test_without_options_the_settings_decide() -> None:
    assert TaskOptions() == TaskOptions(gpus=None, priority=0, after=(), begin=None, retries=0)
    assert TaskOptions().need == ResourceRequest()


def test_the_request_has_each_option_about_the_machine() -> None:
    options = TaskOptions(gpus=2, memory_mb=8000, whole=True, time_limit=90.5, opportunistic=True)
    assert options.need == ResourceRequest(
        cards=2, memory_mb=8000, whole=True, time_limit=90.5, opportunistic=True
    )
    assert TaskOptions(gpus=0, cpus=3).need == ResourceRequest(cores=3)


def test_the_client_has_the_same_names() -> None:
    assert tuple(get_type_hints(ResourceArguments)) == TaskOptions.__struct_fields__


def test_the_strategies_are_those_of_the_settings() -> None:
    (of_settings, _) = get_args(get_type_hints(Settings)["strategy"])
    assert get_args(of_settings) == get_args(get_args(Strategy)[0])


@pytest.mark.parametrize(
    "given",
    [
        {"gpus": -1},
        {"gpus": 4097},
        {"cpus": 0},
        {"memory_mb": 0},
        {"priority": 1_000_001},
        {"after": [""]},
        {"begin": "x" * 65},
        {"time_limit": 0.0},
        {"strategy": "dp"},
        {"retries": 1001},
        {"max_parallel": 0},
    ],
)
def test_limits(given: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(given, TaskOptions)
