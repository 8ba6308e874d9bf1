"""The settings that runs of both contracts have: how a run is carried out, and what it keeps."""

from __future__ import annotations

import functools
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta, Struct

from roost.base.errors import ConfigError
from roost.base.interval import Interval, parse_duration
from roost.base.session_end.platform_limit import NO_LIMIT
from roost.base.strategy import StrategyName
from roost.config.section_schema import Where
from roost.config.sections.checkpoint import CheckpointSettings
from roost.config.sections.field_types import HAS_UNIT, Every, Natural, help_text
from roost.config.sections.limits import LimitSettings
from roost.config.sections.mirrors import MirrorSettings
from roost.config.sections.remote import RemoteSettings, parse_wait
from roost.config.sections.requirements import RequireSettings
from roost.config.values import store_url

MAX_DEVICES = 1024
Devices = Annotated[int, Meta(ge=1, le=MAX_DEVICES)] | Literal["auto"] | list[Natural]
"""The number of GPUs, or the indices of the visible GPUs, from 0; on the CPU, the number of processes."""
_Threads = Annotated[int, Meta(ge=1, le=1024)]
Description = Annotated[str | None, help_text("short description of the run")]
SaveRoot = Annotated[str, help_text("folder in which packages are made, relative to the project")]
Checkpointing = Annotated[CheckpointSettings, help_text("when to save and what to keep")]


class Contract(StrEnum):
    """The contract of a config: which of its keys are roost's."""

    NATIVE = "native"
    DLNEST = "dlnest"
    """DLNest's: every key is the user's, except those of the section ``roost``."""


class ExecutionSettings(Struct, frozen=True, kw_only=True):
    """How a run is carried out: its seed, devices, ranks, precision, time, rows and limits."""

    description: Description = None
    seed: Annotated[Annotated[int, Meta(ge=0, le=2**63 - 1)], help_text("seed of all random numbers")] = 0
    seed_mode: Annotated[
        Literal["per_rank", "same"], help_text("whether dropout and noise differ between ranks")
    ] = "per_rank"
    threads: Annotated[_Threads | Literal["auto"], help_text("CPU threads of one process")] = "auto"
    devices: Annotated[
        Devices,
        help_text(
            "GPUs of the run: their number or indices; on the CPU the number of processes",
            fix="write auto, 2, or [0, 2]",
        ),
    ] = "auto"
    strategy: Annotated[
        StrategyName | None,
        help_text("how ranks share the work; by default ddp with several devices, else single"),
    ] = None
    sync_batch_norm: Annotated[
        bool, help_text("whether batch norm uses the samples of all ranks; only on GPUs")
    ] = False
    rank_timeout: Annotated[
        str, help_text("longest time that a rank waits for another rank before the run fails", fix=HAS_UNIT)
    ] = "30min"
    max_time: Annotated[
        str | None, help_text("time after which the run ends, such as 1h30min", fix=HAS_UNIT)
    ] = None
    precision: Annotated[
        Literal[32, "bf16", "fp16"], help_text("precision of the forward and backward pass")
    ] = 32
    determinism: Annotated[
        Literal["off", "seeded", "strict"], help_text("off: fastest; strict: the same bits also on a GPU")
    ] = "seeded"
    log_every: Annotated[
        Every,
        help_text("when to record a row: 500 steps, 2ep, 10/ep, 10min, or never"),
    ] = "10/ep"
    mirrors: Annotated[MirrorSettings, help_text("other tools to which rows and media are copied")] = (
        MirrorSettings()
    )
    remote: Annotated[
        RemoteSettings | None, help_text("copy of the package in a store, kept up to date behind the run")
    ] = None
    limits: Annotated[LimitSettings, help_text("limits of a session")] = LimitSettings()
    require: Annotated[
        RequireSettings | None, help_text("what a session needs of the machine, checked before it starts")
    ] = None


class RunSettings(ExecutionSettings, frozen=True, kw_only=True):
    """The settings that every run has, whatever its contract: what operations and the worker ask for."""

    save_root: SaveRoot = "runs"
    checkpoint: Checkpointing = CheckpointSettings()

    @property
    def trains(self) -> bool:
        """Whether the run saves anything; a step mode may only measure."""
        return True

    def key(self, name: str) -> str:
        """Returns the dotted key of a field of `ExecutionSettings` in the config."""
        return name


def check_execution(settings: ExecutionSettings, where: Where, *, section: str = "") -> None:
    """Checks the values of `ExecutionSettings` whose types do not say all.

    Args:
        settings: The settings.
        where: Returns where a dotted key was set, for messages.
        section: The section that has the settings in the config; empty for the top.

    Raises:
        ConfigError: An interval or a duration is not one, or the devices are none.
    """
    outer = f"{section}." if section else ""
    check_interval(settings.log_every, f"{outer}log_every", where)
    limits = settings.limits
    durations = {
        "max_time": settings.max_time,
        "rank_timeout": settings.rank_timeout,
        "limits.wall_time": limits.wall_time,
        "limits.session_length": None if limits.session_length == NO_LIMIT else limits.session_length,
        "limits.grace": limits.grace,
        "limits.stall_timeout": limits.stall_timeout,
    }
    if settings.remote is not None:
        durations["remote.every"] = settings.remote.every
        wait = settings.remote.wait
        check_syntax(functools.partial(parse_wait, wait), wait, f"{outer}remote.wait", where)
        store_url.parse_url(
            settings.remote.url, setting=f"{outer}remote.url", where=where(f"{outer}remote.url")
        )
    for name, value in durations.items():
        check_duration(value, outer + name, where)
    devices = settings.devices
    if isinstance(devices, list) and (not devices or len(set(devices)) < len(devices)):
        raise ConfigError(
            "names no GPU" if not devices else "names a GPU twice",
            setting=f"{outer}devices",
            received=devices,
            where=where(f"{outer}devices"),
            fix="write auto, 2, or [0, 2]",
        )


def check_saves(every: Every | list[Every], key: str, where: Where) -> None:
    """Checks the intervals of ``checkpoint.every``.

    Raises:
        ConfigError: One is no interval.
    """
    if not isinstance(every, list):
        check_interval(every, key, where)
        return
    for number, one in enumerate(every):
        check_interval(one, f"{key}.{number}", where)


def check_interval(value: Every, key: str, where: Where) -> None:
    """Checks that the value of a key is an interval, such as ``500`` or ``10/ep``.

    Raises:
        ConfigError: It is not.
    """
    check_syntax(functools.partial(Interval.parse, value, setting=key), value, key, where)


def check_duration(value: str | float | None, key: str, where: Where) -> None:
    """Checks that the value of a key is a duration, if it is a text.

    Raises:
        ConfigError: It is not.
    """
    if isinstance(value, str):
        check_syntax(functools.partial(parse_duration, value, setting=key), value, key, where)


def check_syntax(parse: Callable[[], object], value: object, key: str, where: Where) -> None:
    """Calls ``parse``; its error gets the key's location.

    Raises:
        ConfigError: ``parse`` has raised one.
    """
    try:
        parse()
    except ConfigError as error:
        raise ConfigError(
            error.message, setting=key, received=value, where=where(key), fix=error.fix
        ) from None
