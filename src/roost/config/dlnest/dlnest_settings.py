"""The settings of a config of DLNest's contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict

from roost.base.errors import ConfigError
from roost.base.text.suggestions import closest_match, did_you_mean
from roost.config import section_schema
from roost.config.dlnest.child_files import CHILDREN
from roost.config.run_settings import ExecutionSettings, RunSettings, check_execution, check_saves
from roost.config.section_schema import Where
from roost.config.sections.checkpoint import CheckpointSettings
from roost.config.sections.field_types import Every, Natural, Positive, help_text
from roost.config.sections.staging import Stage
from roost.config.values import store_url

SECTION = "roost"
"""The one key of a config whose value is roost's; all others are the user's."""
CHECKPOINTS = "checkpoint_args"


class SaveSettings(Struct, frozen=True, kw_only=True):
    """``roost.checkpoint``: saves in addition to those that the project's LifeCycle decides."""

    every: Annotated[
        Every | Annotated[list[Every], Meta(min_length=1)],
        help_text("when to save inside an epoch, in addition to needSaveModel; one interval or several"),
    ] = "30min"


class StagedDataSettings(Struct, frozen=True, kw_only=True):
    """``roost.data``: archives that the project's Dataset finds unpacked, by ROOST_STAGED."""

    stage: Stage = None


class RoostSection(ExecutionSettings, Struct, frozen=True, kw_only=True):
    """``roost``: how a run of DLNest's contract is carried out."""

    strategy: Annotated[
        Literal["single", "ddp"] | None,
        help_text("how ranks share the work; by default ddp with several devices, else single"),
    ] = None
    precision: Annotated[
        Literal[32, "bf16"], help_text("precision of runOneStep and validation; bf16: autocast")
    ] = 32
    checkpoint: Annotated[SaveSettings, help_text("saves in addition to those of the project")] = (
        SaveSettings()
    )
    data: Annotated[StagedDataSettings, help_text("archives that are unpacked before the project starts")] = (
        StagedDataSettings()
    )


class TrackSettings(Struct, frozen=True, kw_only=True):
    """``checkpoint_args``: the checkpoints that are kept, by the names of DLNest."""

    max_ckpt_in_slow_track: Annotated[Natural, help_text("checkpoints kept in the slow track")] = 0
    dilation_in_slow_track: Annotated[Positive, help_text("saves from one of them to the next")] = 100
    max_ckpt_in_fast_track: Annotated[Natural, help_text("newest checkpoints kept")] = 1
    max_ckpt_in_consistent_track: Annotated[Natural, help_text("checkpoints kept that are held")] = 1


_TRACKS = section_schema.fields(TrackSettings)


class _Keys(Struct, frozen=True, kw_only=True):
    """The keys of DLNest that roost reads."""

    save_root: Annotated[str, help_text("folder in which packages are made")] = "Saves"
    root_file_path: Annotated[str | None, help_text("folder of the project")] = None
    runner_file_path: Annotated[str | None, help_text("file of the Runner")] = None
    model_file_path: Annotated[str | None, help_text("the older name of runner_file_path")] = None
    runner_name: Annotated[str | None, help_text("name of the Runner class")] = None
    model_name: Annotated[str | None, help_text("the older name of runner_name")] = None
    dataset_file_path: Annotated[str, help_text("file of the Dataset")]
    dataset_name: Annotated[str, help_text("name of the Dataset class")]
    life_cycle_file_path: Annotated[str, help_text("file of the LifeCycle")]
    life_cycle_name: Annotated[str, help_text("name of the LifeCycle class")]
    other_file_paths: Annotated[list[str], help_text("further files and folders to copy")] = []
    checkpoint_args: Annotated[TrackSettings, help_text("checkpoints that are kept")] = TrackSettings()
    plugins: Annotated[list[str], help_text("plugins, by name or path")] = []
    plugins_config: Annotated[dict[str, Any], help_text("settings of the plugins, by name")] = {}


class DlnestSettings(RunSettings, Struct, frozen=True, kw_only=True):
    """All settings of DLNest's contract that roost reads."""

    root_file_path: str | None
    """The project's folder, as written."""
    runner_file_path: str
    """Also of a config that has ``model_file_path``; so are all paths: as written."""
    runner_name: str
    runner_key: Literal["runner", "model"]
    """The beginning of the keys that named the Runner."""
    dataset_file_path: str
    dataset_name: str
    life_cycle_file_path: str
    life_cycle_name: str
    other_file_paths: list[str]
    plugins: list[str]
    plugins_config: dict[str, Any]
    data: StagedDataSettings = StagedDataSettings()

    def key(self, name: str) -> str:
        """Returns the dotted key of a field of `ExecutionSettings` in the config."""
        return f"{SECTION}.{name}"


def parse_dlnest_settings(values: Mapping[str, Any], *, where: Where = lambda key: None) -> DlnestSettings:
    """Returns the settings of a merged config of DLNest's contract; every key that roost does not read
    is the user's.

    Args:
        values: `Config.values`, as written: nothing is interpolated.
        where: Returns where a dotted key was set, for messages (`Config.where`).

    Raises:
        ConfigError: A key of the contract is missing, or has the wrong type or range; or a key of ``roost``
            is unknown.
    """
    section = {} if values.get(SECTION) is None else values[SECTION]
    if isinstance(section, Mapping):
        store_url.refuse_credential_keys(section.get("remote"), setting=f"{SECTION}.remote", where=where)
    own = section_schema.read_section(RoostSection, section, key=SECTION, where=where)
    check_execution(own, where, section=SECTION)
    check_saves(own.checkpoint.every, f"{SECTION}.checkpoint.every", where)
    keys = _read_keys(values, where)
    kind: Literal["runner", "model"] = "model" if keys.runner_file_path is None else "runner"
    if (file := _first(keys.runner_file_path, keys.model_file_path)) is None:
        raise _missing("runner_file_path", values, where)
    if (name := _first(keys.runner_name, keys.model_name)) is None:
        raise _missing("runner_name", values, where)
    return DlnestSettings(
        **{name: value for name, value in asdict(own).items() if name != "checkpoint"},
        save_root=keys.save_root,
        checkpoint=_checkpoint_settings(keys.checkpoint_args, every=own.checkpoint.every),
        root_file_path=keys.root_file_path,
        runner_file_path=file,
        runner_name=name,
        runner_key=kind,
        dataset_file_path=keys.dataset_file_path,
        dataset_name=keys.dataset_name,
        life_cycle_file_path=keys.life_cycle_file_path,
        life_cycle_name=keys.life_cycle_name,
        other_file_paths=keys.other_file_paths,
        plugins=keys.plugins,
        plugins_config=keys.plugins_config,
    )


def parse_tracks(values: Mapping[str, Any], *, where: Where = lambda key: None) -> CheckpointSettings:
    """Returns which checkpoints a config keeps that need not name a project.

    Raises:
        ConfigError: A key of ``checkpoint_args`` has the wrong type or range.
    """
    given = {"checkpoint_args": values.get("checkpoint_args", {}), **_NO_PROJECT}
    return _checkpoint_settings(_read_keys(given, where).checkpoint_args, every=SaveSettings().every)


_NO_PROJECT = {f"{part}_{key}": "" for part in ("dataset", "life_cycle") for key in ("name", "file_path")}


def _checkpoint_settings(tracks: TrackSettings, *, every: str | int | list[str | int]) -> CheckpointSettings:
    return CheckpointSettings(
        every=every,
        fast=tracks.max_ckpt_in_fast_track,
        slow=tracks.max_ckpt_in_slow_track,
        slow_every=tracks.dilation_in_slow_track,
        held=tracks.max_ckpt_in_consistent_track,
        asynchronous=False,
    )


def _first(*values: str | None) -> str | None:
    return next((value for value in values if value is not None), None)


def _missing(key: str, values: Mapping[str, Any], where: Where) -> ConfigError:
    given = values.keys() - section_schema.fields(_Keys).keys()
    return section_schema.missing_key_error(key, _help(key), sorted(given), where)


def _read_keys(values: Mapping[str, Any], where: Where) -> _Keys:
    tracks = values.get(CHECKPOINTS)
    if isinstance(tracks, Mapping):  # other keys there are the user's
        tracks = {name: value for name, value in tracks.items() if name in _TRACKS}
        values = {**values, CHECKPOINTS: tracks}
    return section_schema.read_section(_Keys, values, where=where, is_open=True)


def defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the defaults of the section ``roost``; none of the user's keys."""
    return {SECTION: section_schema.defaults(RoostSection, values.get(SECTION))}


def all_defaults() -> dict[str, Any]:
    """Returns the defaults of the section ``roost``, and those of the contract's keys that roost reads."""
    return {**defaults({}), **section_schema.defaults(_Keys, {})}


def contract_keys() -> list[str]:
    """Returns every dotted key of the contract that roost reads."""
    return list(section_schema.known_keys(_Keys, {}))


def similar_key_notes(values: Mapping[str, Any], where: Where) -> list[str]:
    """Returns a note for each key of the user's that is nearly one of the contract which the config lacks:
    nothing else would show that ``max_ckpt_in_fast`` keeps no checkpoint."""
    notes = _similar_keys("", values, [*section_schema.fields(_Keys), CHILDREN], where, max_distance=2)
    tracks = values.get(CHECKPOINTS)
    if isinstance(tracks, Mapping):
        notes += _similar_keys(f"{CHECKPOINTS}.", tracks, [*_TRACKS], where)
    return notes


def _similar_keys(
    prefix: str,
    values: Mapping[str, Any],
    known: list[str],
    where: Where,
    *,
    max_distance: int | None = None,
) -> list[str]:
    missing, notes = [name for name in known if name not in values], []
    for name in values:
        if name in known or prefix + name == SECTION:
            continue
        if (meant := closest_match(name, missing, max_distance=max_distance)) is not None:
            place = f" ({location})" if (location := where(prefix + name)) else ""
            notes.append(f"{prefix}{name}{place} is a key of the project; did you mean {meant!r}?")
    return notes


def known_keys(values: Mapping[str, Any]) -> Iterator[str]:
    """Yields every dotted key of the section ``roost``."""
    yield SECTION
    yield from section_schema.known_keys(RoostSection, values.get(SECTION), key=SECTION)


def describe(key: str) -> str | None:
    """Returns one line of help for a dotted key; None for a key that is only the user's."""
    return section_schema.describe(*_struct_of(key))


def allowed_values(key: str) -> str | None:
    """Returns a description of the values of a dotted key; None for a key that is only the user's."""
    return section_schema.allowed_values(*_struct_of(key))


def _struct_of(key: str) -> tuple[type[Struct], str]:
    outer, _, rest = key.partition(".")
    return (RoostSection, rest) if outer == SECTION else (_Keys, key)


def _help(key: str) -> str:
    return section_schema.describe(_Keys, key) or ""


def refuse_unknown(key: str, values: Mapping[str, Any]) -> None:
    """Checks that a dotted key of the section ``roost`` is one of roost's.

    Raises:
        ConfigError: It is not.
    """
    known = list(known_keys(values))
    if key not in known:
        fix = did_you_mean(key, known).strip() or f"the settings are {', '.join(known[1:])}"
        raise ConfigError(f"there is no setting {key!r}", where="command line", fix=fix)
