"""`--devices`, `-DDP` and the other options about the processes of a training, of the commands that start a
session."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from roost.base.errors import ConfigError, UsageError
from roost.base.strategy import StrategyName

if TYPE_CHECKING:
    from roost.config.run_settings import Devices
    from roost.operations.sessions.rank_layout import RankRequest

F = TypeVar("F", bound=Callable[..., Any])

_STRATEGY = (
    click.option(
        "--strategy", type=click.Choice(get_args(StrategyName)), help="How the processes share the work."
    ),
    click.option("-DDP", "ddp", is_flag=True, help="Short for --strategy ddp: one process per GPU."),
    click.option(
        "-FSDP",
        "fsdp",
        is_flag=True,
        help="Short for --strategy fsdp: each process holds a shard of the model.",
    ),
    click.option(
        "-mc",
        "several_cards",
        is_flag=True,
        help="Short for --strategy single: several GPUs for one process.",
    ),
)
_TIME_LIMIT = click.option(
    "--time-limit",
    metavar="TIME",
    help="Save and stop within this time, e.g. 11h30m; short for limits.wall_time.",
)
CARD_MEMORY = click.option(
    "-m",
    "memory",
    metavar="MB",
    help="Memory that it takes of each card: 8000, or 8GB; others can share the card.",
)
"""To be read by `take_card_memory`."""
_OPTIONS = (
    click.option(
        "--devices",
        metavar="2|0,2|auto",
        help="How many GPUs, or which ones; one process per GPU. With -CPU: how many processes.",
    ),
    *_STRATEGY,
    CARD_MEMORY,
    click.option("--cpus", type=click.IntRange(1), metavar="N", help="CPU cores for the run; default: all."),
    click.option(
        "--host-memory",
        metavar="MB",
        help="Memory of this machine for all processes of the run: 8000, or 8GB; with more it ends.",
    ),
    click.option("--num-nodes", type=click.IntRange(1), default=1, help="How many machines train together."),
    click.option(
        "--rendezvous",
        metavar="HOST:PORT",
        help="Address of the first machine; use roost join on the others.",
    ),
    click.option(
        "--restart",
        type=click.IntRange(0),
        default=0,
        metavar="N",
        help="After a failure, resume from the last checkpoint, at most N times in a row; one machine only.",
    ),
    _TIME_LIMIT,
)


def ranks_options(command: F) -> F:
    """Adds all of them to a command, which reads them by `take_ranks` and `take_time_limit`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def strategy_options(command: F) -> F:
    """Adds the strategy and the time limit only; the command reads them by `take_strategy` and
    `take_time_limit`."""
    for option in reversed((*_STRATEGY, _TIME_LIMIT)):
        command = option(command)
    return command


def take_ranks(options: dict[str, Any], *, device: str | None) -> RankRequest:
    """Removes all but ``--time-limit`` from a command's options and returns them as a request.

    Raises:
        UsageError: Options contradict each other.
    """
    from roost.operations.sessions.rank_layout import RankRequest

    strategy = take_strategy(options, device=device)
    return RankRequest(
        memory_mb=take_card_memory(options, device=device),
        devices=_parse_devices(options.pop("devices")),
        strategy=strategy,
        num_nodes=options.pop("num_nodes"),
        cores=options.pop("cpus"),
        host_memory_mb=_parse_host_memory(options.pop("host_memory")),
        rendezvous=options.pop("rendezvous"),
        restart=options.pop("restart"),
    )


def take_card_memory(options: dict[str, Any], *, device: str | None) -> int | None:
    """Removes ``-m`` from a command's options and returns it in MB; None if it was not given.

    Raises:
        UsageError: It is no size, or the device is the CPU.
    """
    text: str | None = options.pop("memory")
    if text is None:
        return None
    if "=" in text:
        raise overrides_of_hydra(text)
    if device == "cpu":
        fix = "leave out one; --host-memory limits the memory of the machine"
        raise UsageError("-m is the memory of a card, and -CPU uses none", received=f"-m {text}", fix=fix)
    from roost.base.text.byte_sizes import parse_memory
    from roost.devices.resource_request import MIN_CARD_MEMORY_MB

    return parse_memory(text, setting="-m", min_mb=MIN_CARD_MEMORY_MB)


def overrides_of_hydra(text: str) -> UsageError:
    """Returns the error for overrides after ``-m``, which makes a sweep in Hydra."""
    fix = f"leave out -m: several values are a sweep: `roost submit CONFIG {text}`"
    return UsageError("is the memory of a card here", setting="-m", received=text, fix=fix)


def _parse_host_memory(text: str | None) -> int | None:
    from roost.base.text.byte_sizes import parse_memory
    from roost.devices.resource_request import MIN_HOST_MEMORY_MB

    return None if text is None else parse_memory(text, setting="--host-memory", min_mb=MIN_HOST_MEMORY_MB)


def take_strategy(options: dict[str, Any], *, device: str | None) -> str | None:
    """Removes the strategy from a command's options and returns it; None if none was given.

    Raises:
        UsageError: Options contradict each other.
    """
    given = {
        "-DDP": "ddp" if options.pop("ddp") else None,
        "-FSDP": "fsdp" if options.pop("fsdp") else None,
        "-mc": "single" if options.pop("several_cards") else None,
        "--strategy": options.pop("strategy"),
    }
    named = {option: strategy for option, strategy in given.items() if strategy is not None}
    if len(set(named.values())) > 1:
        raise UsageError(
            f"{' and '.join(named)} are several strategies: {', '.join(named.values())}", fix="leave out one"
        )
    if given["-mc"] and device == "cpu":
        raise UsageError("-mc gives one process several GPUs, and -CPU uses no GPU", fix="leave out one")
    return next(iter(named.values()), None)


def take_time_limit(options: dict[str, Any]) -> tuple[str, ...]:
    """Removes ``--time-limit`` from a command's options and returns it as an override of its setting."""
    limit = options.pop("time_limit")
    return () if limit is None else (f"roost.limits.wall_time={limit}",)


def parse_time_limit(text: str) -> float:
    """Returns the seconds of a ``--time-limit``.

    Raises:
        UsageError: The text is no duration.
    """
    from roost.base.interval import parse_duration

    try:
        return parse_duration(text, setting="--time-limit")
    except ConfigError as error:
        raise UsageError(error.message, setting="--time-limit", received=text, fix=error.fix) from None


def _parse_devices(text: str | None) -> Devices | None:
    """``2`` is a number of devices, ``0,2`` are two given devices, and ``0,`` is the first one."""
    if text is None or text == "auto":
        return text  # type: ignore[return-value]
    parts = [part.strip() for part in text.removesuffix(",").split(",")]
    if text == "0":
        fix = "write `0,` for the first GPU, or 1 for one GPU"
        problem = "is the number of devices and must be at least 1"
        raise UsageError(problem, setting="--devices", received=text, fix=fix)
    if not all(part.isdecimal() and part.isascii() for part in parts):
        raise UsageError(
            "is neither a number of devices nor a list of them",
            setting="--devices",
            received=text,
            fix="write 2 for two devices, `0,2` for these two, `0,` for the first, or auto for all",
        )
    if "," in text:
        return [int(part) for part in parts]
    from roost.config.run_settings import MAX_DEVICES

    if int(text) > MAX_DEVICES:
        fix = f"request at most {MAX_DEVICES}"
        raise UsageError("are too many", setting="--devices", received=int(text), fix=fix)
    return int(text)
