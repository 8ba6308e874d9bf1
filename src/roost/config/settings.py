"""The settings that roost names (DESIGN, section 4): their types, ranges, defaults and one line of help.

Every other key at the top level is the user's. In an optimizer, a parameter group and a scheduler every
other key is an argument of the class.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct, field

from roost.base.errors import ConfigError
from roost.base.interval import Interval, parse_duration
from roost.base.suggest import nearest
from roost.config import conflicts, sections, synonyms
from roost.config.sections import Where as Where

_Positive = Annotated[int, Meta(ge=1)]
_Natural = Annotated[int, Meta(ge=0)]
_Threads = Annotated[int, Meta(ge=1, le=1024)]
_Workers = Annotated[int, Meta(ge=0, le=256)]
_Prefetch = Annotated[int, Meta(ge=1, le=1024)]
_Limit = _Positive | Annotated[float, Meta(gt=0, le=1)] | None
_ALL = "give a number of batches (10), a share of them (0.1), or null for all"
_Patterns = str | list[str]


def _about(text: str, *, fix: str | None = None) -> Meta:
    """Its line of help, and what to do about a value that it does not take, where that is not plain."""
    return Meta(description=text, extra={"fix": fix})


class SplitSettings(Struct, frozen=True, kw_only=True):
    """``data.valid`` and ``data.test``: what differs from training."""

    batch_size: Annotated[
        _Positive | None, _about("samples a batch; as in training if max_tokens is left out, too")
    ] = None
    max_tokens: Annotated[
        _Positive | None, _about("most tokens a batch; as in training if batch_size is left out, too")
    ] = None
    num_workers: Annotated[
        _Workers | Literal["auto"] | None, _about("loader processes; that of training if left out")
    ] = None


class MixSettings(Struct, frozen=True, kw_only=True):
    """``data.mix``: how several training sets become batches."""

    mode: Annotated[
        Literal["min_size", "max_size_cycle", "sequential", "weighted"],
        _about("the first two: a batch of each set a time; the others: of one"),
    ] = "min_size"
    weights: Annotated[
        dict[str, Annotated[float, Meta(ge=0)]],
        _about("share of each set in mode weighted"),
    ] = {}
    batch_sizes: Annotated[
        dict[str, _Positive], _about("samples a batch of each set; data.batch_size if left out")
    ] = {}


BATCH_SIZE = 32
"""Samples a batch where nothing else limits one."""


class DataSettings(Struct, frozen=True, kw_only=True):
    """``data``: how samples become batches."""

    batch_size: Annotated[
        _Positive | None, _about("samples a micro-batch; if left out 32, with max_tokens any number")
    ] = None
    num_workers: Annotated[_Workers | Literal["auto"], _about("loader processes; 0 loads inline")] = "auto"
    shuffle: Annotated[bool, _about("whether each epoch has its own order")] = True
    drop_last: Annotated[bool, _about("whether a last batch that is not full is left out")] = False
    weighted: Annotated[bool, _about("whether samples are drawn by the set's weights, with replacement")] = (
        False
    )
    sort_by_length: Annotated[
        Literal["ascending", "descending"] | None,
        _about("order of the samples by the set's lengths", fix="ascending draws the shortest first"),
    ] = None
    max_tokens: Annotated[_Positive | None, _about("most tokens a micro-batch, by the set's lengths")] = None
    count_padding: Annotated[bool, _about("with max_tokens, whether padding counts as tokens")] = True
    steps_per_epoch: Annotated[_Positive | None, _about("steps an epoch, however large the set is")] = None
    limit_train_batches: Annotated[
        _Limit, _about("an epoch's first so many micro-batches, or share", fix=_ALL)
    ] = None
    limit_valid_batches: Annotated[
        _Limit, _about("a validation's first so many batches, or share", fix=_ALL)
    ] = None
    limit_test_batches: Annotated[_Limit, _about("a test's first so many batches, or share", fix=_ALL)] = None
    mix: Annotated[MixSettings | None, _about("how several training sets become batches")] = None
    prefetch: Annotated[_Prefetch, _about("batches each loader process is ahead")] = 2
    loader_timeout: Annotated[
        Annotated[float, Meta(gt=0)] | str,
        _about("silence after which a loader process hangs; seconds or 10min"),
    ] = 300
    valid: Annotated[SplitSettings, _about("what differs in validation")] = SplitSettings()
    test: Annotated[SplitSettings, _about("what differs in the test")] = SplitSettings()


class GroupSettings(Struct, frozen=True, kw_only=True):
    """One entry of ``optimizers.<name>.groups``: parameters with arguments of their own."""

    params: Annotated[_Patterns, _about("globs over parameter names; the first group that matches wins")]
    lr_scale: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        _about("learning rate times this; that of the optimizer if left out"),
    ] = None
    arguments: dict[str, Any] = {}


class SchedulerSettings(Struct, frozen=True, kw_only=True):
    """``optimizers.<name>.scheduler``; ``arguments`` may still hold ``${total_steps}``."""

    class_: Annotated[str, _about("path of the scheduler's class")] = field(name="class")
    unit: Annotated[Literal["step", "epoch", "validation"], _about("what the scheduler counts")] = "step"
    warmup_steps: Annotated[_Natural, _about("steps of linear warm-up before it")] = 0
    monitor: Annotated[str | None, _about("value it looks at, such as valid/loss")] = None
    arguments: dict[str, Any] = {}


class OptimizerSettings(Struct, frozen=True, kw_only=True):
    """One entry of ``optimizers``."""

    class_: Annotated[str, _about("path of the optimizer's class")] = field(name="class")
    params: Annotated[_Patterns, _about("globs over the names of the parameters it trains")] = "*"
    groups: Annotated[list[GroupSettings], _about("parameters with arguments of their own")] = []
    max_grad_norm: Annotated[
        Annotated[float, Meta(gt=0)] | None, _about("norm to which gradients are clipped")
    ] = None
    grad_norm_type: Annotated[Annotated[float, Meta(gt=0)], _about("p of the norm")] = 2.0
    fused: Annotated[bool | Literal["auto"], _about("whether one kernel does the whole step")] = "auto"
    every_n_steps: Annotated[_Positive, _about("it moves in every n-th step only")] = 1
    lr_scale: Annotated[
        Annotated[float, Meta(gt=0)], _about("learning rate times this, whatever the scheduler says")
    ] = 1.0
    scheduler: Annotated[SchedulerSettings | None, _about("changes the learning rate")] = None
    arguments: dict[str, Any] = {}


class BestSettings(Struct, frozen=True, kw_only=True):
    """One entry of ``checkpoint.best``."""

    monitor: Annotated[str, _about("recorded value that decides, such as valid/loss")]
    mode: Annotated[Literal["min", "max"], _about("whether small or large values are good")]
    top_k: Annotated[_Positive, _about("checkpoints kept")] = 1


class CheckpointSettings(Struct, frozen=True, kw_only=True):
    """``checkpoint``: when to save and what to keep."""

    every: Annotated[
        str | int | Annotated[list[str | int], Meta(min_length=1)], _about("when to save; one or several")
    ] = "1ep"
    fast: Annotated[_Natural, _about("newest checkpoints kept")] = 2
    slow: Annotated[_Natural, _about("checkpoints kept of every slow_every-th save")] = 0
    slow_every: Annotated[_Positive, _about("scheduled saves between two of the slow track")] = 100
    held: Annotated[_Natural, _about("checkpoints kept of those a hook asked to hold")] = 1
    best: Annotated[list[BestSettings], _about("checkpoints kept for a recorded value")] = []


class EarlyStoppingSettings(Struct, frozen=True, kw_only=True):
    """``early_stopping``: ends a run that no longer gets better."""

    monitor: Annotated[str, _about("recorded value that decides, such as valid/loss")]
    mode: Annotated[Literal["min", "max"], _about("whether small or large values are good")] = "min"
    patience: Annotated[_Positive, _about("validations without improvement before the stop")] = 3
    min_delta: Annotated[Annotated[float, Meta(ge=0)], _about("least change that is an improvement")] = 0.0


class LimitSettings(Struct, frozen=True, kw_only=True):
    """``limits``: what a session may use, held by its supervisor."""

    wall_time: Annotated[
        str | None, _about("time after which a session saves and ends, such as 11h30min")
    ] = None
    grace: Annotated[str, _about("time to save in, once a limit was reached; then it is killed")] = "60s"
    stall_timeout: Annotated[
        str | None, _about("time without a step or output after which all stacks are kept; null: never")
    ] = "30min"
    on_stall: Annotated[Literal["report", "end"], _about("whether a stalled run is ended, too")] = "report"
    output_mb: Annotated[_Positive, _about("of more output only the first and the last half are kept")] = 200
    core_mb: Annotated[_Natural, _about("largest core dump")] = 0


class StateSettings(Struct, frozen=True, kw_only=True):
    """What roost reads of every config: where its package goes, and what that one keeps."""

    save_root: Annotated[str, _about("folder that takes the packages")] = "runs"
    description: Annotated[str | None, _about("a few words about the run")] = None
    checkpoint: Annotated[CheckpointSettings, _about("when to save, what to keep")] = CheckpointSettings()


S = TypeVar("S", bound=StateSettings)


class Settings(StateSettings, frozen=True, kw_only=True):
    """Everything roost itself reads of a config that trains."""

    runner: Annotated[str, _about("the Runner class, as Model/Runner.py:Runner")]
    dataset: Annotated[str, _about("the Dataset class, as Dataset/Dataset.py:Dataset")]
    hooks: Annotated[list[str], _about("your own Hook classes, as Hooks.py:Rules")] = []
    seed: Annotated[Annotated[int, Meta(ge=0, le=2**63 - 1)], _about("seed of all randomness")] = 0
    threads: Annotated[_Threads | Literal["auto"], _about("CPU threads of one process")] = "auto"
    max_epochs: Annotated[_Positive | None, _about("epochs after which the run ends")] = None
    max_steps: Annotated[_Positive | None, _about("optimizer steps after which the run ends")] = None
    max_time: Annotated[str | None, _about("time after which the run ends, such as 1h30min")] = None
    precision: Annotated[Literal[32, "bf16", "fp16"], _about("numbers of forward and backward")] = 32
    evaluation_precision: Annotated[
        Literal[32, "bf16", "fp16"] | None, _about("numbers of validation and test; precision if left out")
    ] = None
    step_mode: Annotated[
        Literal["eager", "compile", "dry", "no_optim"],
        _about("how a step is taken; dry only loads, no_optim moves no weight"),
    ] = "eager"
    compile_dynamic: Annotated[
        bool, _about("with step_mode: compile, one kernel for all shapes of batches")
    ] = False
    on_non_finite: Annotated[
        Literal["stop", "skip", "rollback"], _about("what a loss or gradient of NaN or infinity does")
    ] = "stop"
    on_step_error: Annotated[
        Literal["raise", "skip"], _about("what an error in a step does, out of memory included")
    ] = "raise"
    max_skipped_steps: Annotated[_Natural, _about("steps that may be skipped before the run fails")] = 100
    determinism: Annotated[
        Literal["off", "seeded", "strict"], _about("off: fastest; strict: the same bits on a GPU, too")
    ] = "seeded"
    gradient_accumulation_steps: Annotated[_Positive, _about("micro-batches of one step")] = 1
    validate_every: Annotated[str | int, _about("when to validate: 500 steps, 2ep, 10/ep, 10min")] = "1ep"
    log_every: Annotated[str | int, _about("when to record a row: 500 steps, 2ep, 10/ep, 10min")] = "10/ep"
    visualize_every: Annotated[str | int | None, _about("when to call Runner.visualize")] = None
    test_at_end: Annotated[
        Literal["best", "last", "none"], _about("checkpoint that is tested at the end")
    ] = "best"
    data: Annotated[DataSettings, _about("how samples become batches")] = DataSettings()
    optimizers: Annotated[dict[str, OptimizerSettings], _about("optimizers by name")] = {}
    early_stopping: Annotated[EarlyStoppingSettings | None, _about("ends a run that got no better")] = None
    limits: Annotated[LimitSettings, _about("what a session may use")] = LimitSettings()


def typed(values: Mapping[str, Any], *, where: Where = lambda key: None) -> Settings:
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
    settings = _read(Settings, values, where)
    _refuse_misplaced(values, where)
    if all(limit is None for limit in (settings.max_epochs, settings.max_steps, settings.max_time)):
        _refuse_endless(values, where)
    _check(settings, where)
    return settings


def typed_state(values: Mapping[str, Any], *, where: Where = lambda key: None) -> StateSettings:
    """What roost reads of a config that trains nothing; every other key is the user's.

    Raises:
        ConfigError: A key is nearly one of roost's, or has the wrong type or range.
    """
    return _read(StateSettings, values, where)


def _read(struct: type[S], values: Mapping[str, Any], where: Where) -> S:
    known = [*sections.parts(struct), "include"]
    for key in values:
        if key not in known:
            _refuse_near_miss(key, known, where)
    settings = sections.read(struct, values, where=where, is_open=True)
    every = settings.checkpoint.every
    named = (
        {f"checkpoint.every.{i}": one for i, one in enumerate(every)}
        if isinstance(every, list)
        else {"checkpoint.every": every}
    )
    for key, one in named.items():
        _interval(one, key, where)
    return settings


def describe(key: str) -> str | None:
    """One line of help for a dotted key, or None if it is the user's."""
    return sections.describe(Settings, key)


def allowed(key: str) -> str | None:
    """What a dotted key takes, in the words of the messages, or None if it is the user's."""
    return sections.allowed(Settings, key)


def known_keys(values: Mapping[str, Any]) -> Iterator[str]:
    """Every dotted key that roost names, given the names that ``values`` holds (those of optimizers)."""
    yield from sections.known(Settings, values)


def defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """What roost assumes for the settings that ``values`` may leave out, of those that are not empty.

    A section that is optional has defaults only where ``values`` holds that section.
    """
    return sections.defaults(Settings, values)


def _refuse_near_miss(key: str, names: Sequence[str], where: Where) -> None:
    if "." in key and key.split(".")[0] in names:
        section, rest = key.split(".", 1)
        fix = f"write it nested, `{section}: {{{rest}: ...}}`"
        raise ConfigError(f"the key {key!r} has a dot in it", where=where(key), fix=fix)
    long = [name for name in names if len(name) > 8]
    meant = nearest(key, names, within=1) or nearest(key, long, within=2)
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
        if (ours := synonyms.of_data(key)) is not None and ours not in inside:
            raise ConfigError(
                f"there is no setting {key!r} at the top",
                where=where(key),
                fix=f"write it as `data: {{{ours}: ...}}`; a key of your own needs another name",
            )


def _refuse_endless(values: Mapping[str, Any], where: Where) -> None:
    limits = ("max_epochs", "max_steps", "max_time")
    for key in values:
        if (meant := synonyms.name(key, limits)) is not None:
            fix = f"did you mean {meant!r}? {key!r} is a key of your own"
            raise ConfigError("nothing ends the run", where=where(key), fix=fix)
    raise ConfigError("nothing ends the run", fix="set max_epochs, max_steps or max_time")


def _check(settings: Settings, where: Where) -> None:
    conflicts.check(settings, where)
    for key in ("validate_every", "log_every", "visualize_every"):
        if (value := getattr(settings, key)) is not None:
            _interval(value, key, where)
    limits = settings.limits
    durations = {
        "data.loader_timeout": settings.data.loader_timeout,
        "max_time": settings.max_time,
        "limits.wall_time": limits.wall_time,
        "limits.grace": limits.grace,
        "limits.stall_timeout": limits.stall_timeout,
    }
    for key, value in durations.items():
        if isinstance(value, str):
            _syntax(functools.partial(parse_duration, value, setting=key), value, key, where)


def _interval(value: str | int, key: str, where: Where) -> None:
    _syntax(functools.partial(Interval.parse, value, setting=key), value, key, where)


def _syntax(parse: Callable[[], object], value: object, key: str, where: Where) -> None:
    try:
        parse()
    except ConfigError as error:
        raise ConfigError(
            error.message, setting=key, received=value, where=where(key), fix=error.fix
        ) from None
