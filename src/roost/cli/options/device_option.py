"""`--device`, and its short form `-CPU`, of the commands that start a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from roost.base.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])


class _DeviceType(click.Choice[str]):
    """Where to compute; a number of GPUs is asked for by another option, where there is one."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value[:1].isdecimal() and ctx is not None and any(p.name == "devices" for p in ctx.command.params):
            raise UsageError(
                "is auto, cpu or cuda", setting="--device", received=value, fix=f"write --devices {value}"
            )
        return super().convert(value, param, ctx)


def device_options(otherwise: str, *, verb: str = "train") -> Callable[[F], F]:
    """Adds both options to a command, which gets what was asked by `take_device`.

    Args:
        otherwise: What happens without them, for the help.
        verb: What happens on the device, likewise.
    """

    def add(command: F) -> F:
        short = click.option("-CPU", "cpu", is_flag=True, help="Short for --device cpu.")
        return click.option(
            "--device",
            type=_DeviceType(["auto", "cpu", "cuda"]),
            help=f"Where to {verb}; auto: on the GPU if there is one. Without it: {otherwise}.",
        )(short(command))

    return add


def take_device(options: dict[str, Any]) -> str | None:
    """Replaces ``cpu`` and ``device`` among a command's options by the device; None when none was asked for.

    Raises:
        UsageError: They contradict each other.
    """
    cpu, device = options.pop("cpu"), options.pop("device")
    if cpu and device not in (None, "cpu"):
        raise UsageError("-CPU is short for --device cpu", received=f"--device {device}", fix="leave out one")
    return "cpu" if cpu else device
