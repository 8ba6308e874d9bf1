from __future__ import annotations

import time
from pathlib import Path

import pytest

from roost.base.errors import NotFound, UsageError
from roost.base.interval import parse_duration
from roost.serve.routes import task_resources
from roost.serve.routes.task_resources import ResourceParameters


def test_parameters_have_defaults() -> None:
    found = task_resources.task_options(ResourceParameters())
    assert (found.need.cards, found.cards_from_settings, found.priority, found.after) == (0, True, 0, ())
    assert found.begin is None and task_resources.time_limit_override(ResourceParameters()) == []


@pytest.mark.parametrize("seconds", [5e-324, 1e-6, 0.1, 1.0, 86_400.0, 123_456.75, 1_000_000.0, 1e9])
def test_a_time_limit_of_any_length_arrives(seconds: float) -> None:
    (override,) = task_resources.time_limit_override(ResourceParameters(time_limit=seconds))
    name, _, value = override.partition("=")
    assert name == "limits.wall_time" and parse_duration(value, setting=name) == max(seconds, 1e-6)


def test_every_parameter_is_passed_on() -> None:
    asked = ResourceParameters(
        gpus=2,
        memory_mb=8000,
        priority=5,
        begin="+2h",
        time_limit=90.5,
        opportunistic=True,
        retries=3,
        max_parallel=4,
    )
    found = task_resources.task_options(asked)
    assert (found.need.cards, found.need.memory_mb, found.cards_from_settings) == (2, 8000, False)
    assert (found.priority, found.retries, found.most_parallel) == (5, 3, 4)
    assert found.need.opportunistic and found.need.time_limit == 90.5
    assert found.begin is not None and 7000 < found.begin - time.time() < 7300
    assert task_resources.time_limit_override(asked) == ["limits.wall_time=90.5s"]
    assert task_resources.task_options(ResourceParameters(gpus=0, cpus=3)).need.cores == 3
    with pytest.raises(NotFound, match="nowhere"):
        task_resources.task_options(ResourceParameters(after_any=("nowhere",)))


def test_nonsense_is_refused() -> None:
    with pytest.raises(UsageError):
        task_resources.task_options(ResourceParameters(begin="yesterday"))


def test_a_path_begins_at_the_root() -> None:
    assert task_resources.absolute_path("/a/b", "config") == Path("/a/b")
    for text in ("a", "./a", "../a", "~/a"):
        with pytest.raises(UsageError) as caught:
            task_resources.absolute_path(text, "config")
        assert caught.value.setting == "config"
