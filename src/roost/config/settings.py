"""The settings that roost names (DESIGN, section 4): their types, ranges, defaults and one line of help.

Every other key at the top level is the user's. In an optimizer, a parameter group and a scheduler every
other key is an argument of the class.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Meta, Struct, field

from roost.base.errors import ConfigError
from roost.base.interval import Interval, parse_duration
from roost.base.suggest import nearest, proposal

Where = Callable[[str], str | None]
"""Gives the place where a dotted key was set, such as ``config.yaml:12``."""

_Positive = Annotated[int, Meta(ge=1)]
_Natural = Annotated[int, Meta(ge=0)]
_Workers = Annotated[int, Meta(ge=0, le=256)]
_Patterns = str | list[str]


def _about(text: str) -> Meta:
    return Meta(description=text)


class SplitSettings(Struct, frozen=True, kw_only=True):
    """``data.valid`` and ``data.test``: what differs from training."""

    batch_size: Annotated[_Positive | None, _about("samples a batch; that of training if left out")] = None
    num_workers: Annotated[
        _Workers | Literal["auto"] | None, _about("loader processes; that of training if left out")
    ] = None


class DataSettings(Struct, frozen=True, kw_only=True):
    """``data``: how samples become batches."""

    batch_size: Annotated[_Positive, _about("samples a micro-batch")] = 32
    num_workers: Annotated[_Workers | Literal["auto"], _about("loader processes; 0 loads inline")] = "auto"
    shuffle: Annotated[bool, _about("whether each epoch has its own order")] = True
    drop_last: Annotated[bool, _about("whether a last batch that is not full is left out")] = False
    valid: Annotated[SplitSettings, _about("what differs in validation")] = SplitSettings()
    test: Annotated[SplitSettings, _about("what differs in the test")] = SplitSettings()


class GroupSettings(Struct, frozen=True, kw_only=True):
    """One entry of ``optimizers.<name>.groups``: parameters with arguments of their own."""

    params: Annotated[_Patterns, _about("globs over parameter names; the first group that matches wins")]
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


class Settings(Struct, frozen=True, kw_only=True):
    """Everything roost itself reads of a config."""

    runner: Annotated[str, _about("the Runner class, as Model/Runner.py:Runner")]
    dataset: Annotated[str, _about("the Dataset class, as Dataset/Dataset.py:Dataset")]
    hooks: Annotated[list[str], _about("your own Hook classes, as Hooks.py:Rules")] = []
    save_root: Annotated[str, _about("folder that takes the packages")] = "runs"
    seed: Annotated[Annotated[int, Meta(ge=0, le=2**63 - 1)], _about("seed of all randomness")] = 0
    threads: Annotated[_Positive | Literal["auto"], _about("CPU threads of one process")] = "auto"
    max_epochs: Annotated[_Positive | None, _about("epochs after which the run ends")] = None
    max_steps: Annotated[_Positive | None, _about("optimizer steps after which the run ends")] = None
    max_time: Annotated[str | None, _about("time after which the run ends, such as 1h30min")] = None
    precision: Annotated[Literal[32, "bf16", "fp16"], _about("numbers of forward and backward")] = 32
    gradient_accumulation_steps: Annotated[_Positive, _about("micro-batches of one step")] = 1
    validate_every: Annotated[str | int, _about("when to validate: 500 steps, 2ep, 10/ep, 10min")] = "1ep"
    log_every: Annotated[str | int, _about("when to record a row: 500 steps, 2ep, 10/ep, 10min")] = "10/ep"
    visualize_every: Annotated[str | int | None, _about("when to call Runner.visualize")] = None
    test_at_end: Annotated[
        Literal["best", "last", "none"], _about("checkpoint that is tested at the end")
    ] = "best"
    description: Annotated[str | None, _about("a few words about the run")] = None
    data: Annotated[DataSettings, _about("how samples become batches")] = DataSettings()
    optimizers: Annotated[dict[str, OptimizerSettings], _about("optimizers by name")] = {}
    checkpoint: Annotated[CheckpointSettings, _about("when to save, what to keep")] = CheckpointSettings()
    early_stopping: Annotated[EarlyStoppingSettings | None, _about("ends a run that got no better")] = None


def typed(values: Mapping[str, Any], *, where: Where = lambda key: None) -> Settings:
    """The settings of a merged config; keys at the top that roost does not name are passed over.

    Args:
        values: `Config.values`, interpolations resolved but for those that wait for the data.
        where: Where a dotted key was set, for messages (`Config.where`).

    Raises:
        ConfigError: A key is unknown or nearly one of roost's, is missing, has the wrong type or range, or
            nothing ends the run.
    """
    for key in values:
        if key not in _parts(Settings):
            _refuse_near_miss(key, where)
    settings: Settings = _section(Settings, values, "", where)
    _check(settings, where)
    return settings


def top_level_keys() -> tuple[str, ...]:
    """The keys at the top of a config that are roost's."""
    return tuple(_parts(Settings))


def describe(key: str) -> str | None:
    """One line of help for a dotted key, or None if it is the user's."""
    struct: type[Struct] | None = Settings
    text = None
    names = [name for name in key.split(".") if not name.isdigit()]
    while names:
        part = _parts(struct).get(names.pop(0)) if struct is not None else None
        if part is None:
            is_argument = struct is not None and _takes_arguments(struct)
            return "an argument of the class" if is_argument else None
        struct, text = part.struct, part.help
        if part.shape == "named" and names:
            names.pop(0)
    return text


def known_keys(values: Mapping[str, Any]) -> Iterator[str]:
    """Every dotted key that roost names, given the names that ``values`` holds (those of optimizers)."""
    yield from _known(Settings, values, "")


def defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """What roost assumes for the settings that ``values`` may leave out, of those that are not empty.

    A section that is optional has defaults only where ``values`` holds that section.
    """
    return _defaults(Settings, values)


# --- how the structs above are read -------------------------------------------------------------------


class _Part(NamedTuple):
    """One field of a struct."""

    name: str
    kind: Any
    shape: Literal["plain", "one", "named", "listed"]
    struct: type[Struct] | None
    optional: bool
    required: bool
    default: Any
    help: str | None


@functools.cache
def _parts(struct: type[Struct]) -> dict[str, _Part]:
    found = msgspec.structs.fields(struct)
    return {info.encode_name: _part(info) for info in found if info.name != "arguments"}


def _takes_arguments(struct: type[Struct]) -> bool:
    return "arguments" in struct.__struct_fields__


def _part(info: Any) -> _Part:
    metas = getattr(info.type, "__metadata__", ())
    kind = get_args(info.type)[0] if metas else info.type
    help = next((meta.description for meta in metas if meta.description), None)
    default = info.default if info.default_factory is NODEFAULT else info.default_factory()
    members = [member for member in _members(kind) if member is not type(None)]
    shape: Literal["plain", "one", "named", "listed"] = "plain"
    struct = members[0]
    if get_origin(struct) in (dict, list):
        shape = "named" if get_origin(struct) is dict else "listed"
        struct = get_args(struct)[-1]
    if not (isinstance(struct, type) and issubclass(struct, Struct)):
        shape, struct = "plain", None
    elif shape == "plain":
        shape = "one"
    optional = len(members) < len(_members(kind))
    return _Part(info.name, info.type, shape, struct, optional, info.required, default, help)


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _join(key: str, name: object) -> str:
    return f"{key}.{name}" if key else str(name)


def _section(struct: type[Struct], values: Any, key: str, where: Where) -> Any:
    if not isinstance(values, Mapping):
        raise ConfigError(
            "is a section", setting=key, received=values, where=where(key), fix="write its keys"
        )
    parts = _parts(struct)
    extra = {name: value for name, value in values.items() if name not in parts}
    if extra and struct is not Settings and not _takes_arguments(struct):
        _refuse_unknown(next(iter(extra)), key, parts, where)
    made = {}
    for name, part in parts.items():
        inner = _join(key, name)
        # `checkpoint:` with nothing below it is null in YAML, and means its defaults.
        is_empty = values.get(name) is None and (part.shape != "plain" or part.default == [])
        if name in values and not is_empty:
            made[part.name] = _value(part, values[name], inner, where)
        elif part.required:
            raise ConfigError("is missing", setting=inner, where=where(key), fix=f"give it: {part.help}")
    if _takes_arguments(struct):
        made["arguments"] = extra
    return struct(**made)


def _value(part: _Part, value: Any, key: str, where: Where) -> Any:
    if part.struct is None:
        return _plain(part.kind, value, key, where)
    if part.shape == "one":
        return _section(part.struct, value, key, where)
    wanted = dict if part.shape == "named" else list
    if not isinstance(value, wanted):
        what = "names, each with a section" if part.shape == "named" else "a list of sections"
        raise ConfigError(f"expected {what}", setting=key, received=value, where=where(key))
    items = value.items() if isinstance(value, dict) else enumerate(value)
    made = {name: _section(part.struct, item, _join(key, name), where) for name, item in items}
    return made if part.shape == "named" else list(made.values())


def _plain(kind: Any, value: Any, key: str, where: Where) -> Any:
    # `max_steps: 1e6` is a float in YAML, and what is meant is plain.
    is_whole = isinstance(value, float) and value.is_integer()
    for candidate in (value, int(value)) if is_whole else (value,):
        try:
            return msgspec.convert(candidate, kind)
        except msgspec.ValidationError:
            continue
    raise ConfigError(f"expected {_expected(kind)}", setting=key, received=value, where=where(key))


_NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", type(None): "null"}


def _expected(kind: Any) -> str:
    if metas := getattr(kind, "__metadata__", ()):
        signs = {"ge": ">=", "gt": ">", "le": "<=", "min_length": "with a length >="}
        bounds = [f" {sign} {limit}" for meta in metas for name, sign in signs.items()
                  if (limit := getattr(meta, name)) is not None]  # fmt: skip
        return _expected(get_args(kind)[0]) + " and".join(bounds)
    if get_origin(kind) is Literal:
        return " or ".join(repr(choice) for choice in get_args(kind))
    if get_origin(kind) is list:
        return f"a list, each {_expected(get_args(kind)[0])}"
    members = _members(kind)
    return " or ".join(map(_expected, members)) if len(members) > 1 else _NAMES.get(kind, str(kind))


def _refuse_unknown(name: str, key: str, known: Mapping[str, Any], where: Where) -> None:
    raise ConfigError(
        f"{key} has no setting {name!r}",
        where=where(_join(key, name)),
        fix=f"{proposal(name, known)}it knows {', '.join(known)}",
    )


def _refuse_near_miss(key: str, where: Where) -> None:
    names = [*top_level_keys(), "include"]
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


def _check(settings: Settings, where: Where) -> None:
    if all(limit is None for limit in (settings.max_epochs, settings.max_steps, settings.max_time)):
        raise ConfigError("nothing ends the run", fix="set max_epochs, max_steps or max_time")
    if settings.precision != 32:
        raise ConfigError(
            "is not built yet",
            setting="precision",
            received=settings.precision,
            where=where("precision"),
            fix="use 32",
        )
    every = settings.checkpoint.every
    intervals = {name: getattr(settings, name) for name in ("validate_every", "log_every", "visualize_every")}
    intervals |= (
        {f"checkpoint.every.{i}": one for i, one in enumerate(every)}
        if isinstance(every, list)
        else {"checkpoint.every": every}
    )
    for key, value in intervals.items():
        if value is not None:
            _syntax(functools.partial(Interval.parse, value, setting=key), value, key, where)
    if (limit := settings.max_time) is not None:
        _syntax(functools.partial(parse_duration, limit, setting="max_time"), limit, "max_time", where)


def _syntax(parse: Callable[[], object], value: object, key: str, where: Where) -> None:
    try:
        parse()
    except ConfigError as error:
        raise ConfigError(
            error.message, setting=key, received=value, where=where(key), fix=error.fix
        ) from None


def _known(struct: type[Struct], values: Any, key: str) -> Iterator[str]:
    given = values if isinstance(values, Mapping) else {}
    for name, part in _parts(struct).items():
        inner, value = _join(key, name), given.get(name)
        yield inner
        if part.struct is not None and part.shape == "one":
            yield from _known(part.struct, value, inner)
        elif part.struct is not None and part.shape == "named" and isinstance(value, Mapping):
            for own in value:
                yield _join(inner, own)
                yield from _known(part.struct, value[own], _join(inner, own))


def _defaults(struct: type[Struct], values: Any) -> dict[str, Any]:
    made: dict[str, Any] = {}
    given = values if isinstance(values, Mapping) else {}
    for name, part in _parts(struct).items():
        value = given.get(name)
        if part.struct is None:
            made[name] = None if part.required else part.default
        elif part.shape == "one" and (not part.optional or isinstance(value, Mapping)):
            made[name] = _defaults(part.struct, value)
        elif part.shape == "named" and isinstance(value, Mapping):
            made[name] = {own: _defaults(part.struct, item) for own, item in value.items()}
    return {name: value for name, value in made.items() if value is not None and value not in ([], {})}
