from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from roost.base.errors import UsageError
from roost.cli.options.resource_options import take_task_options, task_options
from roost.devices.resource_request import TaskOptions


def parsed(*arguments: str) -> tuple[TaskOptions, tuple[str, ...]]:
    found: list[dict[str, Any]] = []

    @click.command()
    @task_options
    def command(**options: Any) -> None:
        found.append(options)

    done = CliRunner().invoke(command, arguments, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    taken = take_task_options(found[0])
    assert not found[0]
    return taken


def test_without_options() -> None:
    assert parsed() == (TaskOptions(), ())


def test_every_field_has_its_option() -> None:
    arguments = (
        "--gpus 2 -m 20GB --whole --strategy ddp --priority -3 --after a --after b --after-any c --begin +2h "
        "--time-limit 90s --opportunistic --retry 3 --max-parallel 4"
    )
    options, overrides = parsed(*arguments.split())
    assert options == TaskOptions(
        gpus=2,
        memory_mb=20480,
        whole=True,
        strategy="ddp",
        priority=-3,
        after=("a", "b"),
        after_any=("c",),
        begin="+2h",
        time_limit=90.0,
        opportunistic=True,
        retries=3,
        max_parallel=4,
    )
    assert overrides == ("roost.limits.wall_time=90s",)
    assert parsed("-CPU", "--cpus", "2") == (TaskOptions(gpus=0, cpus=2), ())


@pytest.mark.parametrize(
    "arguments",
    [("--gpus", "-1"), ("--cpus", "0"), ("--retry", "1001"), ("--max-parallel", "0")],
)
def test_limits_are_those_of_the_fields(arguments: tuple[str, ...]) -> None:
    with pytest.raises(click.BadParameter):
        parsed(*arguments)


@pytest.mark.parametrize(
    ("arguments", "setting"),
    [(("-CPU", "--gpus", "1"), None), (("-m", "5"), "-m"), (("--devices", "2"), "--devices")],
)
def test_what_is_refused(arguments: tuple[str, ...], setting: str | None) -> None:
    with pytest.raises(UsageError) as refused:
        parsed(*arguments)
    assert refused.value.setting == setting
