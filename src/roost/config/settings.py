"""The settings of roost (DESIGN, section 4): types, ranges, defaults and one line of help each.

Every other key at the top level is the user's. In an optimizer, a parameter group and a scheduler every
other key is an argument of the class.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct

from roost.base.errors import ConfigError
from roost.base.interval import parse_start, parse_steps
from roost.base.text.suggestions import closest_match
from roost.config import conflicts, section_schema, user_options, yaml_project_checks
from roost.config.other_tools import synonyms
from roost.config.run_settings import (
    Checkpointing,
    Description,
    RunSettings,
    SaveRoot,
    check_duration,
    check_execution,
    check_interval,
    check_saves,
    check_syntax,
)
from roost.config.section_schema import Where as Where
from roost.config.sections.checkpoint import CheckpointSettings
from roost.config.sections.data import DataSettings
from roost.config.sections.field_types import Every, Natural, Patterns, Positive, help_text
from roost.config.sections.init_from import InitSettings
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
from roost.config.step_modes import STEP_MODES, StepMode
from roost.config.values import store_url

_Limit = Annotated[int, Meta(ge=1, le=10**12)]


class StateSettings(Struct, frozen=True, kw_only=True):
    """The settings of a config that does not train: the folder of its package, and the checkpoints that are
    kept."""

    save_root: SaveRoot = "runs"
    description: Description = None
    checkpoint: Checkpointing = CheckpointSettings()


S = TypeVar("S", bound=Struct)


class Settings(RunSettings, Struct, frozen=True, kw_only=True):
    """All settings of a config that trains a `Runner`."""

    runner: Annotated[
        str | RunnerSettings,
        help_text("the Runner class, such as Runner.py:Runner, or a section that describes one"),
    ]
    dataset: Annotated[
        str | DatasetSettings,
        help_text("the Dataset class, such as Dataset.py:Dataset, or a section that describes one"),
    ]
    hooks: Annotated[
        list[str | ObjectSettings],
        help_text("Hook classes of the project, such as Hooks.py:Rules, or with arguments"),
    ] = []
    project: Annotated[
        str | None, help_text("folder of the code, relative to this file; by default the nearest one")
    ] = None
    options: Annotated[
        dict[str, OptionSettings], help_text("your own keys, checked and shown by `roost run CONFIG --help`")
    ] = {}
    init_from: Annotated[
        str | InitSettings | list[str | InitSettings] | None, help_text("initial weights")
    ] = None
    freeze: Annotated[Patterns, help_text("globs over the names of the parameters that are not trained")] = []
    max_epochs: Annotated[_Limit | None, help_text("epochs after which the run ends")] = None
    max_steps: Annotated[_Limit | None, help_text("optimizer steps after which the run ends")] = None
    evaluation_precision: Annotated[
        Literal[32, "bf16", "fp16"] | None,
        help_text("precision of validation and test; by default that of precision"),
    ] = None
    step_mode: Annotated[
        StepMode,
        help_text("how a step is computed; dry: data loading only; no_optim: no optimizer step"),
    ] = "eager"
    compile_dynamic: Annotated[
        bool, help_text("with step_mode: compile, whether one kernel serves all batch shapes")
    ] = False
    on_non_finite: Annotated[
        Literal["stop", "skip", "rollback"],
        help_text("what to do about a loss or gradient that is NaN or infinite"),
    ] = "stop"
    on_step_error: Annotated[
        Literal["raise", "skip"],
        help_text("what to do about an error in a step or validation batch, out of memory included"),
    ] = "raise"
    max_skipped_steps: Annotated[
        Natural, help_text("steps and validation batches that may be skipped before the run fails")
    ] = 100
    gradient_accumulation_steps: Annotated[Positive, help_text("micro-batches of one step")] = 1
    validate_every: Annotated[
        Every, help_text("when to validate: 500 steps, 2ep, 10/ep, 10min, or never")
    ] = "1ep"
    visualize_every: Annotated[Every | None, help_text("when to call Runner.visualize")] = None
    visualize_samples: Annotated[
        Positive | None, help_text("number of validation samples for it; by default the first batch")
    ] = None
    test_at_end: Annotated[
        Literal["best", "last", "none"], help_text("checkpoint that is tested at the end of the run")
    ] = "best"
    data: Annotated[DataSettings, help_text("how samples become batches")] = DataSettings()
    optimizers: Annotated[dict[str, OptimizerSettings], help_text("optimizers by name")] = {}
    early_stopping: Annotated[
        EarlyStoppingSettings | None, help_text("ends a run that no longer improves")
    ] = None
    averages: Annotated[
        dict[str, AverageSettings], help_text("averages of the trained weights, by name")
    ] = {}
    statistics: Annotated[
        StatisticsSettings | None, help_text("norms of gradients and weights in the rows, as stats/...")
    ] = None
    profile: Annotated[
        ProfileSettings | None, help_text("some steps are traced and measured, for `roost profile`")
    ] = None

    @property
    def trains(self) -> bool:
        """Whether the run saves anything; a step mode may only measure."""
        return STEP_MODES[self.step_mode].trains


class _Options(Struct, frozen=True, kw_only=True):
    """The section that can be read even from an incomplete config."""

    options: Annotated[dict[str, OptionSettings], help_text("your own keys")] = {}


def parse_settings(values: Mapping[str, Any], *, where: Where = lambda key: None) -> Settings:
    """Returns the settings of a merged config; unknown keys at the top are the user's and are ignored.

    Args:
        values: `Config.values`, with interpolations resolved except those that depend on the data.
        where: Returns where a dotted key was set, for messages (`Config.where`).

    Raises:
        ConfigError: A key is unknown, similar to a setting of roost, missing, or of the wrong type or range,
            or no setting limits the length of the run.
    """
    conflicts.refuse_backend(values, where)
    store_url.refuse_credential_keys(values.get("remote"), setting="remote", where=where)
    settings = _read(Settings, values, where)
    user_options.check(settings.options, values, setting_names(), where)
    if all(limit is None for limit in (settings.max_epochs, settings.max_steps, settings.max_time)):
        _refuse_endless(values, where)
    _check(settings, where)
    return settings


def parse_state_settings(values: Mapping[str, Any], *, where: Where = lambda key: None) -> StateSettings:
    """Returns the settings of a config that does not train; every other key is the user's.

    Raises:
        ConfigError: A key is similar to a setting of roost, or has the wrong type or range.
    """
    settings = _read(StateSettings, values, where)
    check_saves(settings.checkpoint.every, "checkpoint.every", where)
    return settings


def _read(struct: type[S], values: Mapping[str, Any], where: Where) -> S:
    known = [*section_schema.fields(struct), "include"]
    own = user_options.names(values)
    for key in values:
        if key not in known and key not in own:
            _refuse_near_miss(key, [*known, *own], where)
    return section_schema.read_section(struct, values, where=where, is_open=True)


def declared_options(
    values: Mapping[str, Any], *, where: Where = lambda key: None
) -> dict[str, OptionSettings]:
    """Returns the options that a merged config declares.

    Raises:
        ConfigError: A declaration is not valid.
    """
    return section_schema.read_section(_Options, {"options": values.get("options")}, where=where).options


def setting_names() -> list[str]:
    """Returns the keys of roost at the top of a config."""
    return [*section_schema.fields(Settings), "include"]


def describe(key: str) -> str | None:
    """Returns one line of help for a dotted key; None for a key of the user."""
    return section_schema.describe(Settings, key)


def allowed_values(key: str) -> str | None:
    """Returns a description of the values of a dotted key; None for a key of the user."""
    return section_schema.allowed_values(Settings, key)


def accepts(key: str, value: Any) -> bool:
    """Whether a dotted key of roost can have this value, by its type; a section cannot have any."""
    return section_schema.accepts(Settings, key, value)


def is_section(key: str) -> bool:
    """Whether a dotted key of roost is a section, or names sections."""
    return section_schema.is_section(Settings, key)


def may_have(key: str) -> bool:
    """Whether a config may have a dotted key: one of the user's, one of roost, or an argument of a class."""
    return key.partition(".")[0] not in setting_names() or section_schema.may_have(Settings, key)


def known_keys(values: Mapping[str, Any]) -> Iterator[str]:
    """Yields every dotted key of roost, with the names that ``values`` has (for example of optimizers)."""
    yield from section_schema.known_keys(Settings, values)


def defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns roost's defaults of the settings that ``values`` may leave out, without empty ones.

    An optional section has defaults only if ``values`` has that section.
    """
    return section_schema.defaults(Settings, values)


def near_miss(key: str, names: Sequence[str]) -> str | None:
    """Returns the name of which a top-level key is a probable misspelling, so that it is refused as a key of
    the user; None if there is none."""
    long = [name for name in names if len(name) > 8]
    return closest_match(key, names, max_distance=1) or closest_match(key, long, max_distance=2)


def _refuse_near_miss(key: str, names: Sequence[str], where: Where) -> None:
    if "." in key and key.split(".")[0] in names:
        section, rest = key.split(".", 1)
        fix = f"write it nested, `{section}: {{{rest}: ...}}`"
        raise ConfigError(f"the key {key!r} has a dot in it", where=where(key), fix=fix)
    meant = near_miss(key, names)
    if meant is not None:
        raise ConfigError(
            f"there is no setting {key!r}",
            where=where(key),
            fix=f"did you mean {meant!r}? A key of your own needs a name less like it",
        )


def _refuse_endless(values: Mapping[str, Any], where: Where) -> None:
    limits = ("max_epochs", "max_steps", "max_time")
    for key in values:
        if (meant := synonyms.find_setting(key, limits)) is not None:
            fix = f"did you mean {meant!r}? {key!r} is a key of your own"
            raise ConfigError("no setting limits the length of the run", where=where(key), fix=fix)
    raise ConfigError("no setting limits the length of the run", fix="set max_epochs, max_steps or max_time")


def _check(settings: Settings, where: Where) -> None:
    check_saves(settings.checkpoint.every, "checkpoint.every", where)
    check_execution(settings, where)
    conflicts.check(settings, where)
    yaml_project_checks.check(settings, where)
    for key in ("validate_every", "visualize_every"):
        if (value := getattr(settings, key)) is not None:
            check_interval(value, key, where)
    _check_averages(settings.averages, where)
    if settings.statistics is not None:
        every = functools.partial(parse_steps, settings.statistics.every, setting="statistics.every")
        check_syntax(every, settings.statistics.every, "statistics.every", where)
    check_duration(settings.data.loader_timeout, "data.loader_timeout", where)


def _check_averages(averages: Mapping[str, AverageSettings], where: Where) -> None:
    for name, average in averages.items():
        key = f"averages.{name}"
        if not re.fullmatch(r"[\w-]+", name):
            raise ConfigError(
                "is not a name for an average: it becomes part of names such as valid/ema/loss",
                setting=key,
                where=where(key),
                fix="use only letters, digits, _ and -",
            )
        check_interval(average.every, f"{key}.every", where)
        if average.every == "never":
            raise ConfigError(
                "an average that is never updated has no weights",
                setting=f"{key}.every",
                received=average.every,
                where=where(f"{key}.every"),
                fix="remove the average, or write 1",
            )
        start = functools.partial(parse_start, average.start, setting=f"{key}.start")
        check_syntax(start, average.start, f"{key}.start", where)
        if average.method == "swa" and average.decay != AverageSettings().decay:
            raise ConfigError(
                "applies only to method: ema; with swa all weights count equally",
                setting=f"{key}.decay",
                received=average.decay,
                where=where(f"{key}.decay"),
                fix="remove it, or set method: ema",
            )
