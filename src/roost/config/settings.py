"""The settings that roost names (DESIGN, section 4): their types, ranges, defaults and one line of help.

Every other key at the top level is the user's. In an optimizer, a parameter group and a scheduler every
other key is an argument of the class.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct

from roost.base.errors import ConfigError
from roost.base.interval import Interval, parse_duration, parse_start, parse_steps
from roost.base.text.suggestions import closest_match
from roost.config import conflicts, section_schema, synonyms, user_options, yaml_project_checks
from roost.config.section_schema import Where as Where
from roost.config.sections.checkpoint import CheckpointSettings
from roost.config.sections.data import DataSettings
from roost.config.sections.field_types import HAS_UNIT, Every, Natural, Patterns, Positive, help_text
from roost.config.sections.init_from import InitSettings
from roost.config.sections.limits import LimitSettings
from roost.config.sections.mirrors import MirrorSettings
from roost.config.sections.monitoring import (
    AverageSettings,
    EarlyStoppingSettings,
    ProfileSettings,
    StatisticsSettings,
)
from roost.config.sections.optimizers import OptimizerSettings
from roost.config.sections.yaml_project import (
    DatasetSettings,
    ObjectSettings,
    OptionSettings,
    RunnerSettings,
)

_Threads = Annotated[int, Meta(ge=1, le=1024)]
MAX_DEVICES = 1024
Devices = Annotated[int, Meta(ge=1, le=MAX_DEVICES)] | Literal["auto"] | list[Natural]
"""How many GPUs, or which of those that are visible, counted from 0; of a CPU, how many processes."""


class StateSettings(Struct, frozen=True, kw_only=True):
    """What roost reads of every config: where its package goes, and what that one keeps."""

    save_root: Annotated[str, help_text("folder that takes the packages")] = "runs"
    description: Annotated[str | None, help_text("a few words about the run")] = None
    checkpoint: Annotated[CheckpointSettings, help_text("when to save, what to keep")] = CheckpointSettings()


S = TypeVar("S", bound=StateSettings)


class Settings(StateSettings, frozen=True, kw_only=True):
    """Everything roost itself reads of a config that trains."""

    runner: Annotated[
        str | RunnerSettings, help_text("the Runner class, as Runner.py:Runner, or what describes one")
    ]
    dataset: Annotated[
        str | DatasetSettings,
        help_text("the Dataset class, as Dataset.py:Dataset, or what describes one"),
    ]
    hooks: Annotated[
        list[str | ObjectSettings], help_text("your own Hook classes, as Hooks.py:Rules, or with arguments")
    ] = []
    options: Annotated[
        dict[str, OptionSettings], help_text("keys of yours, checked and shown by `roost run CONFIG --help`")
    ] = {}
    init_from: Annotated[
        str | InitSettings | list[str | InitSettings] | None, help_text("weights that the run begins with")
    ] = None
    freeze: Annotated[Patterns, help_text("globs over the names of parameters that are not trained")] = []
    seed: Annotated[Annotated[int, Meta(ge=0, le=2**63 - 1)], help_text("seed of all randomness")] = 0
    seed_mode: Annotated[
        Literal["per_rank", "same"], help_text("whether dropout and noise differ between ranks")
    ] = "per_rank"
    threads: Annotated[_Threads | Literal["auto"], help_text("CPU threads of one process")] = "auto"
    devices: Annotated[
        Devices,
        help_text(
            "GPUs of the run: how many, or which; on the CPU the number of processes",
            fix="write auto, 2, or [0, 2]",
        ),
    ] = "auto"
    strategy: Annotated[
        Literal["single", "ddp", "fsdp"] | None,
        help_text("one process, or one a device; left out: ddp with several devices, else single"),
    ] = None
    sync_batch_norm: Annotated[
        bool, help_text("whether batch norm takes its mean over all ranks' samples; on GPUs alone")
    ] = False
    rank_timeout: Annotated[
        str, help_text("time that one rank waits for another before the run fails", fix=HAS_UNIT)
    ] = "30min"
    max_epochs: Annotated[Positive | None, help_text("epochs after which the run ends")] = None
    max_steps: Annotated[Positive | None, help_text("optimizer steps after which the run ends")] = None
    max_time: Annotated[
        str | None, help_text("time after which the run ends, such as 1h30min", fix=HAS_UNIT)
    ] = None
    precision: Annotated[Literal[32, "bf16", "fp16"], help_text("numbers of forward and backward")] = 32
    evaluation_precision: Annotated[
        Literal[32, "bf16", "fp16"] | None, help_text("numbers of validation and test; precision if left out")
    ] = None
    step_mode: Annotated[
        Literal["eager", "compile", "dry", "no_optim"],
        help_text("how a step is taken; dry only loads, no_optim moves no weight"),
    ] = "eager"
    compile_dynamic: Annotated[
        bool, help_text("with step_mode: compile, one kernel for all shapes of batches")
    ] = False
    on_non_finite: Annotated[
        Literal["stop", "skip", "rollback"], help_text("what a loss or gradient of NaN or infinity does")
    ] = "stop"
    on_step_error: Annotated[
        Literal["raise", "skip"], help_text("what an error in a step does, out of memory included")
    ] = "raise"
    max_skipped_steps: Annotated[Natural, help_text("steps that may be skipped before the run fails")] = 100
    determinism: Annotated[
        Literal["off", "seeded", "strict"], help_text("off: fastest; strict: the same bits on a GPU, too")
    ] = "seeded"
    gradient_accumulation_steps: Annotated[Positive, help_text("micro-batches of one step")] = 1
    validate_every: Annotated[Every, help_text("when to validate: 500 steps, 2ep, 10/ep, 10min")] = "1ep"
    log_every: Annotated[Every, help_text("when to record a row: 500 steps, 2ep, 10/ep, 10min")] = "10/ep"
    visualize_every: Annotated[Every | None, help_text("when to call Runner.visualize")] = None
    visualize_samples: Annotated[
        Positive | None, help_text("first validation samples that it is given; the first batch if left out")
    ] = None
    test_at_end: Annotated[
        Literal["best", "last", "none"], help_text("checkpoint that is tested at the end")
    ] = "best"
    data: Annotated[DataSettings, help_text("how samples become batches")] = DataSettings()
    optimizers: Annotated[dict[str, OptimizerSettings], help_text("optimizers by name")] = {}
    early_stopping: Annotated[EarlyStoppingSettings | None, help_text("ends a run that got no better")] = None
    averages: Annotated[
        dict[str, AverageSettings], help_text("averaged weights by name, beside those that are trained")
    ] = {}
    statistics: Annotated[
        StatisticsSettings | None, help_text("sizes of gradients and weights in the rows, as stats/...")
    ] = None
    profile: Annotated[
        ProfileSettings | None, help_text("steps that torch's profiler looks at; kept in the package")
    ] = None
    mirrors: Annotated[MirrorSettings, help_text("where else rows and media go")] = MirrorSettings()
    limits: Annotated[LimitSettings, help_text("what a session may use")] = LimitSettings()


class _Options(Struct, frozen=True, kw_only=True):
    """The one section that is read even of a config that is not whole."""

    options: Annotated[dict[str, OptionSettings], help_text("keys of yours")] = {}


def parse_settings(values: Mapping[str, Any], *, where: Where = lambda key: None) -> Settings:
    """The settings of a merged config; keys at the top that roost does not name are passed over.

    Args:
        values: `Config.values`, interpolations resolved but for those that wait for the data.
        where: Where a dotted key was set, for messages (`Config.where`).

    Raises:
        ConfigError: A key is unknown or nearly one of roost's, is missing, has the wrong type or range, or
            nothing ends the run.
    """
    if values.get("step_mode") == "cudagraph":
        raise ConfigError(
            "is not there yet: nobody has run it on a GPU so far, and what was never run is not offered",
            setting="step_mode",
            received="cudagraph",
            where=where("step_mode"),
            fix="use eager or compile",
        )
    conflicts.refuse_backend(values, where)
    settings = _read(Settings, values, where)
    user_options.check(settings.options, values, setting_names(), where)
    _refuse_misplaced(values, where)
    if all(limit is None for limit in (settings.max_epochs, settings.max_steps, settings.max_time)):
        _refuse_endless(values, where)
    _check(settings, where)
    return settings


def parse_state_settings(values: Mapping[str, Any], *, where: Where = lambda key: None) -> StateSettings:
    """What roost reads of a config that trains nothing; every other key is the user's.

    Raises:
        ConfigError: A key is nearly one of roost's, or has the wrong type or range.
    """
    return _read(StateSettings, values, where)


def _read(struct: type[S], values: Mapping[str, Any], where: Where) -> S:
    known = [*section_schema.fields(struct), "include"]
    own = user_options.names(values)
    for key in values:
        if key not in known and key not in own:
            _refuse_near_miss(key, [*known, *own], where)
    settings = section_schema.read_section(struct, values, where=where, is_open=True)
    every = settings.checkpoint.every
    named = (
        {f"checkpoint.every.{i}": one for i, one in enumerate(every)}
        if isinstance(every, list)
        else {"checkpoint.every": every}
    )
    for key, one in named.items():
        _check_interval(one, key, where)
    return settings


def declared_options(
    values: Mapping[str, Any], *, where: Where = lambda key: None
) -> dict[str, OptionSettings]:
    """The options that a merged config declares.

    Raises:
        ConfigError: One is declared wrongly.
    """
    return section_schema.read_section(_Options, {"options": values.get("options")}, where=where).options


def setting_names() -> list[str]:
    """The keys at the top of a config that roost names."""
    return [*section_schema.fields(Settings), "include"]


def describe(key: str) -> str | None:
    """One line of help for a dotted key, or None if it is the user's."""
    return section_schema.describe(Settings, key)


def allowed_values(key: str) -> str | None:
    """What a dotted key takes, in the words of the messages, or None if it is the user's."""
    return section_schema.allowed_values(Settings, key)


def known_keys(values: Mapping[str, Any]) -> Iterator[str]:
    """Every dotted key that roost names, given the names that ``values`` holds (those of optimizers)."""
    yield from section_schema.known_keys(Settings, values)


def defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """What roost assumes for the settings that ``values`` may leave out, of those that are not empty.

    A section that is optional has defaults only where ``values`` holds that section.
    """
    return section_schema.defaults(Settings, values)


def _refuse_near_miss(key: str, names: Sequence[str], where: Where) -> None:
    if "." in key and key.split(".")[0] in names:
        section, rest = key.split(".", 1)
        fix = f"write it nested, `{section}: {{{rest}: ...}}`"
        raise ConfigError(f"the key {key!r} has a dot in it", where=where(key), fix=fix)
    long = [name for name in names if len(name) > 8]
    meant = closest_match(key, names, max_distance=1) or closest_match(key, long, max_distance=2)
    if meant is not None:
        raise ConfigError(
            f"there is no setting {key!r}",
            where=where(key),
            fix=f"did you mean {meant!r}? A key of your own needs a name less like it",
        )


def _refuse_misplaced(values: Mapping[str, Any], where: Where) -> None:
    """A setting of ``data`` at the top: nobody would read it. Where ``data`` has it too it is a value that is
    written once, and used there as ``${num_workers}``."""
    inside = values.get("data") or {}
    for key in values:
        if (ours := synonyms.data_setting(key)) is not None and ours not in inside:
            raise ConfigError(
                f"there is no setting {key!r} at the top",
                where=where(key),
                fix=f"write it as `data: {{{ours}: ...}}`; a key of your own needs another name",
            )


def _refuse_endless(values: Mapping[str, Any], where: Where) -> None:
    limits = ("max_epochs", "max_steps", "max_time")
    for key in values:
        if (meant := synonyms.find_setting(key, limits)) is not None:
            fix = f"did you mean {meant!r}? {key!r} is a key of your own"
            raise ConfigError("nothing ends the run", where=where(key), fix=fix)
    raise ConfigError("nothing ends the run", fix="set max_epochs, max_steps or max_time")


def _check(settings: Settings, where: Where) -> None:
    conflicts.check(settings, where)
    yaml_project_checks.check(settings, where)
    for key in ("validate_every", "log_every", "visualize_every"):
        if (value := getattr(settings, key)) is not None:
            _check_interval(value, key, where)
    _check_averages(settings.averages, where)
    if settings.statistics is not None:
        every = functools.partial(parse_steps, settings.statistics.every, setting="statistics.every")
        _check_syntax(every, settings.statistics.every, "statistics.every", where)
    limits = settings.limits
    durations = {
        "data.loader_timeout": settings.data.loader_timeout,
        "max_time": settings.max_time,
        "rank_timeout": settings.rank_timeout,
        "limits.wall_time": limits.wall_time,
        "limits.grace": limits.grace,
        "limits.stall_timeout": limits.stall_timeout,
    }
    for key, value in durations.items():
        if isinstance(value, str):
            _check_syntax(functools.partial(parse_duration, value, setting=key), value, key, where)


def _check_averages(averages: Mapping[str, AverageSettings], where: Where) -> None:
    for name, average in averages.items():
        key = f"averages.{name}"
        if not re.fullmatch(r"[\w-]+", name):
            raise ConfigError(
                "is no name of an average: it becomes part of names such as valid/ema/loss",
                setting=key,
                where=where(key),
                fix="take letters, digits, _ and - alone",
            )
        _check_interval(average.every, f"{key}.every", where)
        start = functools.partial(parse_start, average.start, setting=f"{key}.start")
        _check_syntax(start, average.start, f"{key}.start", where)
        if average.method == "swa" and average.decay != AverageSettings().decay:
            raise ConfigError(
                "is for method: ema alone; with swa all weights count the same",
                setting=f"{key}.decay",
                received=average.decay,
                where=where(f"{key}.decay"),
                fix="leave it out, or set method: ema",
            )


def _check_interval(value: str | int, key: str, where: Where) -> None:
    _check_syntax(functools.partial(Interval.parse, value, setting=key), value, key, where)


def _check_syntax(parse: Callable[[], object], value: object, key: str, where: Where) -> None:
    try:
        parse()
    except ConfigError as error:
        raise ConfigError(
            error.message, setting=key, received=value, where=where(key), fix=error.fix
        ) from None
