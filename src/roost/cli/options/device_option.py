"""`--device`, and its short form `-CPU`, of the commands that start a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from roost.base.errors import UsageError
from roost.base.text.word_list import join_names
from roost.devices import device_types

F = TypeVar("F", bound=Callable[..., Any])


class _DeviceType(click.Choice[str]):
    """The value of ``--device``; a number is an error that suggests ``--devices`` if the command has it."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value[:1].isdecimal() and ctx is not None and any(p.name == "devices" for p in ctx.command.params):
            raise UsageError(
                f"must be one of {join_names(device_types.REQUESTABLE)}",
                setting="--device",
                received=value,
                fix=f"write --devices {value}",
            )
        return super().convert(value, param, ctx)


def device_options(otherwise: str, *, verb: str = "train") -> Callable[[F], F]:
    """Adds ``--device`` and ``-CPU`` to a command, which reads them by `take_device`.

    Args:
        otherwise: The default, for the help.
        verb: The work on the device, for the help.
    """

    def add(command: F) -> F:
        short = click.option("-CPU", "cpu", is_flag=True, help="Short for --device cpu.")
        return click.option(
            "--device",
            type=_DeviceType(device_types.REQUESTABLE),
            help=f"Where to {verb}; auto: on the GPU if there is one. Default: {otherwise}.",
        )(short(command))

    return add


def take_device(options: dict[str, Any]) -> str | None:
    """Removes ``cpu`` and ``device`` from a command's options and returns the requested device, or None.

    Raises:
        UsageError: The two contradict each other.
    """
    cpu, device = options.pop("cpu"), options.pop("device")
    if cpu and device not in (None, "cpu"):
        raise UsageError("-CPU is short for --device cpu", received=f"--device {device}", fix="leave out one")
    return "cpu" if cpu else device
