"""The options of a task, made from the fields of `TaskOptions`: their limits, defaults and descriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click
import msgspec

from roost.base.errors import UsageError
from roost.base.text.byte_sizes import parse_memory
from roost.cli.options.rank_options import (
    overrides_of_hydra,
    parse_time_limit,
    strategy_options,
    take_strategy,
)
from roost.devices.resource_request import (
    MIN_CARD_MEMORY_MB,
    MIN_HOST_MEMORY_MB,
    OPTIONS_OF_OTHER_NAMES,
    TaskOptions,
)

F = TypeVar("F", bound=Callable[..., Any])

_SHARED_WITH_RUN = ("strategy", "time_limit")
"""The fields whose options `strategy_options` adds."""
_MEMORY_OPTIONS = {"memory_mb": MIN_CARD_MEMORY_MB, "host_memory_mb": MIN_HOST_MEMORY_MB}
"""The fields that hold a size of memory, with the smallest one."""
_METAVARS = {
    "memory_mb": "MB",
    "host_memory_mb": "MB",
    "after": "TASK",
    "after_any": "TASK",
    "begin": "TIME",
    "max_parallel": "K",
}
"""The placeholders of values in the help, where they are not N."""
_LIMITED_BY_MACHINE = ("gpus", "cpus")
"""A larger number than the machine has is refused later, with the number that it has."""


def task_options(command: F) -> F:
    """Adds the options to a command, which reads them by `take_task_options`."""
    schema = msgspec.json.schema(TaskOptions)["$defs"][TaskOptions.__name__]["properties"]
    made = {name: _option(name, one) for name, one in schema.items() if name not in _SHARED_WITH_RUN}
    short = click.option("-CPU", "cpu", is_flag=True, help="Short for --gpus 0.")
    devices = click.option("--devices", hidden=True, expose_value=False, callback=_refuse_devices)
    about_machine = [made.pop(name) for name in ("cpus", "host_memory_mb", "memory_mb", "whole")]
    first = [made.pop("gpus"), short, devices, *about_machine, strategy_options]
    for option in reversed([*first, *made.values()]):
        command = option(command)
    return command


def _option(name: str, schema: Mapping[str, Any]) -> Callable[[F], F]:
    """Returns the option for a field.

    Args:
        name: The name of the field.
        schema: Its JSON schema; of a field that may be None, the schema of the other type is its first one.
    """
    one = schema.get("anyOf", [schema])[0]
    option = OPTIONS_OF_OTHER_NAMES.get(name, f"--{name.replace('_', '-')}")
    text, metavar = one["description"], _METAVARS.get(name, "N")
    if one["type"] == "boolean":
        return click.option(option, name, is_flag=True, help=text)
    if one["type"] == "array":
        return click.option(option, name, multiple=True, metavar=metavar, help=text)
    if name in _MEMORY_OPTIONS:
        return click.option(option, name, metavar=metavar, help=f"{text} 20GB is understood, too.")
    if name == "priority":  # whose limits the operation checks, as for `roost priority`
        return click.option(option, name, type=int, default=schema["default"], metavar=metavar, help=text)
    if one["type"] == "integer":
        limits = click.IntRange(one["minimum"], None if name in _LIMITED_BY_MACHINE else one["maximum"])
        return click.option(option, name, type=limits, default=schema["default"], metavar=metavar, help=text)
    return click.option(option, name, metavar=metavar, help=text)


def _refuse_devices(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Refuses ``--devices``: a task requests a number of cards, and the lab chooses which."""
    if value is not None:
        fix = "write --gpus N; on the CPU: -CPU devices=N"
        what = "is not for submit: the lab chooses the cards"
        raise UsageError(what, setting="--devices", received=value, fix=fix)


def take_task_options(options: dict[str, Any]) -> tuple[TaskOptions, tuple[str, ...]]:
    """Removes the options from those of a command.

    Returns:
        The options of the task, and the overrides of a training's settings.

    Raises:
        UsageError: Options contradict each other, or a text is no duration or size.
    """
    limit, cpu = options.pop("time_limit"), options.pop("cpu")
    own = (name for name in TaskOptions.__struct_fields__ if name not in _SHARED_WITH_RUN)
    values = {name: options.pop(name) for name in own}
    values["strategy"] = take_strategy(options, device="cpu" if cpu else None)
    if cpu and values["gpus"]:
        raise UsageError(
            "-CPU is short for --gpus 0", received=f"--gpus {values['gpus']}", fix="leave out one"
        )
    if cpu:
        values["gpus"] = 0
    if "=" in (values["memory_mb"] or ""):  # -m of Hydra
        raise overrides_of_hydra(values["memory_mb"])
    for name, least_mb in _MEMORY_OPTIONS.items():
        if "=" in (values[name] or ""):
            raise UsageError(
                "is not a memory size",
                setting=OPTIONS_OF_OTHER_NAMES[name],
                received=values[name],
                fix=f"leave it out: several values make a sweep, `roost submit CONFIG {values[name]}`",
            )
        if values[name] is not None:
            values[name] = parse_memory(values[name], setting=OPTIONS_OF_OTHER_NAMES[name], min_mb=least_mb)
    seconds = parse_time_limit(limit) if limit is not None else None
    found = TaskOptions(time_limit=seconds, **values)
    return found, () if limit is None else (f"roost.limits.wall_time={limit}",)
