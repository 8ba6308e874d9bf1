"""A config, merged from layers of files and overrides, with the origin of each setting.

The layers from lowest to highest: roost's defaults, the defaults of the options that a config declares,
included files, the root file, a tuning file, the command line. In a config of DLNest's contract: the
defaults of the section ``roost``, the root file, its child files, a tuning file, the command line.
Sections are merged key by key; lists and single values are replaced. A key ``~name`` without a value removes
what the layers below have set (as ``~a.name`` on the command line).
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from roost.base.config_files import MAX_DEPTH, MAX_FILES, ConfigFile, parse_scalar, read_config_file
from roost.base.errors import ConfigError, NotFound
from roost.base.text.suggestions import did_you_mean
from roost.config import settings, user_options
from roost.config.dlnest import child_files, dlnest_settings
from roost.config.other_tools import foreign_keys, synonyms

Values = dict[str, Any]
Key = tuple[str, ...]


_LIST_ENTRY = re.compile(r"\[\d+\]|\.\d+(?=\.|$)")
"""An entry of a list in a dotted key, which an override cannot name."""


_REMOVAL = re.compile(r"~[\w-]+")
"""A key of a file that removes one."""


DEFAULT_LABEL = "default"
"""The label of the layer of roost's defaults, the lowest."""


class _Absent:
    def __repr__(self) -> str:
        return "(not set)"


ABSENT: Final = _Absent()
"""The value of a key that is not set, in contrast to null."""


class Contract(StrEnum):
    """The contract of a config: which of its keys are roost's."""

    NATIVE = "native"
    DLNEST = "dlnest"
    """DLNest's: every key is the user's, except those of the section ``roost``."""


@dataclass(frozen=True)
class Layer:
    """A layer of a config: a file, an override, or the defaults."""

    label: str
    values: Values
    located: ConfigFile | None = None
    removed: Key = ()
    """The key that this layer removes: ``~a.b``, or ``~b`` in the section ``a`` of a file."""

    def label_of(self, path: Key) -> str:
        """Returns the layer's name; for a file, with the line of the key."""
        location = self.located.where(path) if self.located is not None else None
        return self.label if location is None else str(location)


@dataclass(frozen=True)
class Config:
    """A merged config; interpolations are as written."""

    path: Path
    """The root file, absolute."""
    values: Values
    """Every setting, with unresolved interpolations and without ``include``."""
    files: list[Path]
    """Every file that was read, absolute, the root first."""
    layers: tuple[Layer, ...]
    """From lowest to highest."""
    contract: Contract = Contract.NATIVE
    notes: Sequence[str] = ()
    """Notes for the user, one line each."""
    provenance: dict[str, str] = field(init=False)
    """The layer that set each dotted key last: ``default``, ``config.yaml:12``, ``command line``."""

    def __post_init__(self) -> None:
        labels = {".".join(path): self._last_label(path) for path in _leaves(self.values)}
        object.__setattr__(self, "provenance", labels)

    def _last_label(self, path: Key) -> str:
        holders = [layer for layer in self.layers if _value_at(layer.values, path) is not ABSENT]
        return holders[-1].label_of(path)

    def folder_of(self, key: str) -> Path:
        """Returns the folder of the file that set a top-level key last; that of the root file if none did."""
        files = [one.located for one in self.layers if one.located is not None and key in one.values]
        return files[-1].file.parent if files else self.path.parent

    def explain(self, key: str) -> list[tuple[str, Any]]:
        """Returns the value of a dotted key or section in each layer that has one, from lowest to highest.

        The value is `ABSENT` for a layer that removes the key, or replaces the section around it by a single
        value.
        """
        path = tuple(key.split("."))
        found: list[tuple[str, Any]] = []
        for layer in self.layers:
            value = _value_at(layer.values, path)
            if value is not ABSENT:
                found.append((layer.label_of(path), value))
            elif found and found[-1][1] is not ABSENT and _removes(layer, path):
                found.append((layer.label_of(path), ABSENT))
        return found

    def known_keys(self) -> list[str]:
        """Returns every dotted key of roost, and every one that is set."""
        own = dlnest_settings if self.contract is Contract.DLNEST else settings
        return list(dict.fromkeys([*own.known_keys(self.values), *self.provenance]))

    def where(self, key: str) -> str | None:
        """Returns where a dotted key, or the nearest section around it, was set last; None for a default.

        For a section a file takes precedence over the command line, because it shows the whole section.
        """
        path = tuple(key.split("."))
        set_layers = [layer for layer in self.layers if layer.label != DEFAULT_LABEL]
        for length in range(len(path), 0, -1):
            inner = path[:length]
            if holders := [layer for layer in set_layers if _value_at(layer.values, inner) is not ABSENT]:
                files = [layer for layer in holders if layer.located is not None]
                is_section = isinstance(_value_at(self.values, inner), Mapping)
                return (files if is_section and files else holders)[-1].label_of(inner)
        return None


@dataclass(frozen=True)
class ConfigDifference:
    """A dotted key with two values; `ABSENT` where one side does not have it."""

    key: str
    old: Any
    new: Any


@dataclass(frozen=True)
class ConfigSource:
    """The files of a config, the root first, read once for any number of command lines."""

    path: Path
    paths: list[Path]
    layers: tuple[Layer, ...]
    """From lowest to highest, the defaults included."""
    contract: Contract = Contract.NATIVE
    notes: Sequence[str] = ()
    """Notes for the user, one line each."""

    def config(self, overrides: Iterable[str] = ()) -> Config:
        """Merges the files with the overrides of a command line.

        Raises:
            ConfigError: An override is not valid.
        """
        layers, notes = list(self.layers), list(self.notes)
        values = _merge_layers(layers)
        for text in overrides:
            if self.contract is Contract.DLNEST:
                notes += _new_key_notes(text, values)
            layer = _parse_override(text, values, self.contract)
            layers.append(layer)
            values = _apply_layer(values, layer)
        if self.contract is Contract.NATIVE:
            layers[1] = _option_defaults(layers)  # the command line may have changed the declared options
        merged = _merge_layers(layers)
        return Config(self.path, merged, self.paths, tuple(layers), self.contract, notes)


def load(
    path: Path | str,
    *,
    tuning: Path | str | None = None,
    overrides: Iterable[str] = (),
    contract: Contract | None = None,
) -> Config:
    """Reads a config with all files that it includes.

    Args:
        path: The root file.
        tuning: A second file, above the root file; files that it includes are above the root file, too.
        overrides: ``a.b=c`` sets a key, ``+a.b=c`` adds one, ``~a.b`` removes one.
        contract: The contract of the config; None: as its root file shows.

    Raises:
        NotFound: The root or the tuning file does not exist.
        ConfigError: A file cannot be read or included, or an override is not valid.
    """
    return load_files(path, tuning=tuning, contract=contract).config(overrides)


def load_files(
    path: Path | str, *, tuning: Path | str | None = None, contract: Contract | None = None
) -> ConfigSource:
    """Reads the files for `load`, with the same arguments and errors."""
    root = Path(os.path.normpath(Path(path).absolute()))
    reader = _Reader(root.parent)
    is_dlnest = (
        child_files.is_root(reader.read(root).values) if contract is None else contract is Contract.DLNEST
    )
    if is_dlnest:
        return _load_children(root, tuning, reader)
    layers = reader.layers(root)
    if tuning is not None:
        layers += reader.layers(Path(os.path.normpath(Path(tuning).absolute())))
    _check_removals(layers)
    layers.insert(0, Layer(DEFAULT_LABEL, settings.defaults(_merge_layers(layers))))
    layers.insert(1, _option_defaults(layers))
    return ConfigSource(root, reader.files, tuple(layers))


def _load_children(root: Path, tuning: Path | str | None, reader: _Reader) -> ConfigSource:
    """Reads the other files of a config of DLNest's contract."""
    above = None if tuning is None else reader.read(Path(os.path.normpath(Path(tuning).absolute())))
    files, notes = child_files.merge_order(reader.read(root), above, reader.read)
    layers = [
        Layer(one.display_name, {k: v for k, v in one.values.items() if k != child_files.CHILDREN}, one)
        for one in files
    ]
    layers.insert(0, Layer(DEFAULT_LABEL, dlnest_settings.defaults(_merge_layers(layers))))
    return ConfigSource(root, reader.files, tuple(layers), Contract.DLNEST, notes)


def _option_defaults(layers: Sequence[Layer]) -> Layer:
    """Returns the layer of the defaults of the options that the layers declare."""
    return Layer(
        user_options.LAYER_LABEL, user_options.defaults(_merge_layers(layers), settings.setting_names())
    )


def apply_overrides(
    values: Mapping[str, Any], overrides: Iterable[str], contract: Contract = Contract.NATIVE
) -> Values:
    """Returns new values with the overrides of a command line applied in their order.

    Args:
        values: All settings, of a config of ``contract``.
        overrides: As for `load`.
        contract: Which of the keys are roost's.

    Raises:
        ConfigError: As `load` does.
    """
    applied = dict(values)
    for text in overrides:
        applied = _apply_layer(applied, _parse_override(text, applied, contract))
    return applied


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[ConfigDifference]:
    """Returns the keys whose values differ, sorted. Numbers are compared as numbers, and nan equals nan.

    If one side has a section and the other a single value, both the section's keys and its name differ.
    """
    before = {".".join(path): _value_at(old, path) for path in _leaves(old)}
    after = {".".join(path): _value_at(new, path) for path in _leaves(new)}
    pairs = ((key, before.get(key, ABSENT), after.get(key, ABSENT)) for key in sorted(before | after))
    return [ConfigDifference(key, a, b) for key, a, b in pairs if not _same(a, b)]


# --- nested dicts, by paths ---------------------------------------------------------------------------


def _value_at(values: Any, path: Key) -> Any:
    """Returns the value at a path, through sections and, by index, lists; else `ABSENT`."""
    for name in path:
        if isinstance(values, Mapping):
            values = values.get(name, ABSENT)
        elif isinstance(values, list) and name.isdecimal() and int(name) < len(values):
            values = values[int(name)]
        else:
            return ABSENT
    return values


def _leaves(values: Mapping[str, Any], path: Key = ()) -> list[Key]:
    found: list[Key] = []
    for name, value in values.items():
        inner = (*path, name)
        found += _leaves(value, inner) if isinstance(value, Mapping) and value else [inner]
    return found


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def merge(low: Mapping[str, Any], high: Mapping[str, Any]) -> Values:
    """Returns ``low`` merged with ``high``: sections key by key, all other values replaced; does not change
    its arguments."""
    merged = dict(low)
    for name, value in high.items():
        below = merged.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            value = merge(below, value)
        merged[name] = value
    return merged


def _without(values: Mapping[str, Any], path: Key) -> Values:
    rest = {name: value for name, value in values.items() if len(path) > 1 or name != path[0]}
    if len(path) > 1:
        rest[path[0]] = _without(values[path[0]], path[1:])
    return rest


def _apply_layer(values: Values, layer: Layer) -> Values:
    return _without(values, layer.removed) if layer.removed else merge(values, layer.values)


def _merge_layers(layers: Sequence[Layer]) -> Values:
    values: Values = {}
    for layer in layers:
        values = _apply_layer(values, layer)
    return values


def _removes(layer: Layer, path: Key) -> bool:
    if layer.removed:
        return path[: len(layer.removed)] == layer.removed
    around = (_value_at(layer.values, path[:length]) for length in range(1, len(path)))
    return any(value is not ABSENT and not isinstance(value, Mapping) for value in around)


# --- files --------------------------------------------------------------------------------------------


class _Reader:
    """Reads a file and the files that it includes, the lowest layer first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self._working_folder: Path | None = Path.cwd()
        except FileNotFoundError:  # of a server whose folder was removed
            self._working_folder = None
        self._read: dict[Path, ConfigFile] = {}
        self._count = 0

    @property
    def files(self) -> list[Path]:
        """Every file read, in the order of reading."""
        return list(self._read)

    def layers(self, path: Path, chain: tuple[Path, ...] = (), included_at: object = None) -> list[Layer]:
        """Returns the layers of a file: first those of its includes, then its own."""
        self._check_chain(path, chain, included_at)
        located = self._located(path, included_at)
        found: list[Layer] = []
        for name, where in _includes(located):
            target = Path(os.path.normpath(path.parent / name))
            found += self.layers(target, (*chain, path), where)
        own = {key: value for key, value in located.values.items() if key != "include"}
        removals = [
            Layer(str(located.where(written)), {}, removed=(*written[:-1], written[-1].removeprefix("~")))
            for written in _removals(own, located)
        ]
        return [*found, *removals, Layer(located.display_name, _without_removals(own), located)]

    def _display_name(self, path: Path) -> str:
        """Returns the path relative to the working folder, where it is below that, else to the root file."""
        is_below = self._working_folder is not None and path.is_relative_to(self._working_folder)
        return os.path.relpath(path, self._working_folder if is_below else self._folder)

    def _check_chain(self, path: Path, chain: tuple[Path, ...], included_at: object) -> None:
        self._count += 1
        if _real_path(path, included_at) in (_real_path(above, included_at) for above in chain):
            ring = " -> ".join(map(self._display_name, (*chain, path)))
            raise ConfigError(f"files include each other: {ring}", where=included_at)
        if len(chain) > MAX_DEPTH or self._count > MAX_FILES:
            raise ConfigError(
                f"more than {MAX_FILES} files are included, or deeper than {MAX_DEPTH} levels",
                where=included_at,
            )

    def read(self, path: Path) -> ConfigFile:
        """Returns the content of a file; reads it only once."""
        _real_path(path, None)
        return self._located(path, None)

    def _located(self, path: Path, included_at: object) -> ConfigFile:
        if path not in self._read:
            try:
                found = read_config_file(path, display_name=self._display_name(path))
                for key in (one for one, value in found.values.items() if _has_nul(value)):
                    raise ConfigError("a text contains NUL", setting=key, where=found.where((key,)))
                self._read[path] = found
            except NotFound:
                if included_at is None:
                    raise
                raise ConfigError(
                    f"there is no file {self._display_name(path)} to include",
                    where=included_at,
                    fix="paths under `include` start at the folder of the file that includes",
                ) from None
        return self._read[path]


def _removals(values: Mapping[str, Any], located: ConfigFile, path: Key = ()) -> Iterator[Key]:
    """Yields the paths of the keys ``~name`` of a file, as written.

    Raises:
        ConfigError: Such a key has a value.
    """
    for name, value in values.items():
        inner = (*path, name)
        if _REMOVAL.fullmatch(name) and value is None:
            yield inner
        elif _REMOVAL.fullmatch(name):
            raise ConfigError(
                f"{name} removes what an included file has set, and takes no value",
                received=value,
                where=located.where(inner),
                fix=f"write `{name}:` alone",
            )
        elif isinstance(value, Mapping):
            yield from _removals(value, located, inner)


def _without_removals(values: Mapping[str, Any]) -> Values:
    return {
        name: _without_removals(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if not _REMOVAL.fullmatch(name)
    }


def _check_removals(layers: Sequence[Layer]) -> None:
    """Raises a ConfigError if a file removes a key that no layer below has set."""
    values: Values = {}
    for layer in layers:
        if layer.removed and _value_at(values, layer.removed) is ABSENT:
            key = ".".join(layer.removed)
            known = [".".join(path[:end]) for path in _leaves(values) for end in range(1, len(path) + 1)]
            raise ConfigError(
                f"there is no {key!r} to remove in the files below this one",
                where=layer.label,
                fix=did_you_mean(key, dict.fromkeys(known)).strip() or "remove this line",
            )
        values = _apply_layer(values, layer)


def _real_path(path: Path, included_at: object) -> str:
    """Returns the path without links. Raises ConfigError for a link that leads to itself."""
    try:
        return os.path.realpath(path, strict=True)
    except FileNotFoundError:
        return os.path.realpath(path)  # a missing file has its own message
    except OSError as error:
        cause = "the link leads to itself" if error.errno == errno.ELOOP else str(error.strerror)
        raise ConfigError(f"{path.name} cannot be read: {cause}", where=included_at or path) from None


def _includes(located: ConfigFile) -> list[tuple[str, object]]:
    given = located.values.get("include")
    names = [] if given is None else given if isinstance(given, list) else [given]
    for name in names:
        if not isinstance(name, str) or "\0" in name:
            fix, where = "write a.yaml, or [a.yaml, b.yaml]", located.where(("include",))
            raise ConfigError("expected file names", setting="include", received=given, where=where, fix=fix)
    paths = [("include", str(i)) if isinstance(given, list) else ("include",) for i in range(len(names))]
    return [(name, located.where(path)) for name, path in zip(names, paths, strict=True)]


# --- the command line ---------------------------------------------------------------------------------

_COMMAND_LINE = "command line"


def _parse_override(text: str, values: Values, contract: Contract) -> Layer:
    """Parses one override and checks it against the values to which it is applied."""
    sign = text[:1] if text[:1] in ("+", "~") else ""
    key, equals, value = text.removeprefix(sign).partition("=")
    path = tuple(key.strip().split("."))
    if bool(equals) == (sign == "~") or key.startswith(("+", "~")):
        if text.startswith("++") and equals:
            _refuse_hydra_sign(text, values, contract)
        raise ConfigError(
            "this argument is not an override",
            received=text,
            where=_COMMAND_LINE,
            fix="write a.b=c, +a.b=c (add) or ~a.b (remove)",
        )
    if contract is Contract.NATIVE:
        path = _native_path(path, values)
    _check_path(path, text)
    if contract is Contract.DLNEST:
        _check_user_key(path, values, sign, text)
    else:
        _check_native_key(path, values, sign, text)
    _check_sections(path, values)
    if sign == "~":
        return Layer(_COMMAND_LINE, {}, removed=path)
    made: Any = _parse_value(value, key)
    _check_colons(made, key, text)
    if contract is Contract.NATIVE:
        _check_replaced_section(path, values, made)
        if not sign:
            _check_added_keys(path, made, values)
    for name in reversed(path):
        made = {name: made}
    return Layer(_COMMAND_LINE, made)


def _check_colons(value: Any, key: str, text: str) -> None:
    """Refuses ``{lr:0.1}``, in which YAML sees the key ``lr:0.1`` without a value."""
    if isinstance(value, list):
        for one in value:
            _check_colons(one, key, text)
    for name, inner in value.items() if isinstance(value, Mapping) else ():
        if inner is None and ":" in name:
            first, _, rest = name.partition(":")
            raise ConfigError(
                f"the mapping has the key {name!r} and no value for it",
                setting=key,
                received=text,
                where=_COMMAND_LINE,
                fix=f"write a space after the colon, and quotes: '{{{first}: {rest.strip()}}}'",
            )
        _check_colons(inner, key, text)


def _check_added_keys(path: Key, value: Any, values: Values) -> None:
    """Refuses the keys that a mapping adds to a section if an override of each one would be refused."""
    section = _value_at(values, path)
    if not isinstance(value, Mapping) or not isinstance(section, Mapping) or not section:
        return
    for name, inner in value.items():
        if name in section:
            _check_added_keys((*path, name), inner, values)
        else:
            written = json.dumps(inner, ensure_ascii=False)
            _check_native_key((*path, name), values, "", f"={written}")


def _native_path(path: Key, values: Values) -> Key:
    """Returns the path of an override in a native config, in which ``roost.x`` is ``x``: so an override of
    roost's settings is the same for both contracts. Not if the user has a key ``roost``."""
    is_own = len(path) > 1 and path[0] == dlnest_settings.SECTION and path[0] not in values
    return path[1:] if is_own else path


def _parse_value(text: str, key: str) -> Any:
    try:
        value = parse_scalar(text)
        if _has_nul(value):
            raise ConfigError("a text contains NUL")
        return value
    except ConfigError as error:
        fix = "quote the text, or close its bracket"
        raise ConfigError(error.message, setting=key, received=text, where=_COMMAND_LINE, fix=fix) from None


def _has_nul(value: Any) -> bool:
    """Whether a text in the value has a NUL, which no path, command or environment can have."""
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, Mapping):
        return any(map(_has_nul, value.values()))
    return isinstance(value, list) and any(map(_has_nul, value))


def _check_path(path: Key, text: str) -> None:
    for name in path:
        if not name.strip() or name.startswith("__") or len(path) > MAX_DEPTH:
            raise ConfigError("is not a dotted key", received=text, fix="write names joined by single dots")


def _check_native_key(path: Key, values: Values, sign: str, text: str) -> None:
    if path[0] == "include":
        raise ConfigError("include is allowed only in files", received=text, fix="give a tuning file")
    if path[0] == "project":
        raise ConfigError("project is allowed only in files", received=text, fix="use --project DIR")
    is_misspelled = path[0] not in user_options.names(values) and _setting_meant(path[0]) is not None
    if (sign != "+" or is_misspelled) and _value_at(values, path) is ABSENT:
        _refuse_unknown(".".join(path), values, sign, text.partition("=")[2])


def _check_user_key(path: Key, values: Values, sign: str, text: str) -> None:
    """Checks an override of a config of DLNest's contract, where every key may be set: it is the
    user's, except in the section ``roost``."""
    key, is_set = ".".join(path), _value_at(values, path) is not ABSENT
    if path[0] == child_files.CHILDREN:
        fix = "give a tuning file, which may have it"
        raise ConfigError(f"{path[0]} is allowed only in files", received=text, fix=fix)
    if path[0] == dlnest_settings.SECTION and not is_set:
        dlnest_settings.refuse_unknown(key, values)
    elif sign == "~" and not is_set:
        known = [".".join(one[:end]) for one in _leaves(values) for end in range(1, len(one) + 1)]
        raise ConfigError(
            f"there is no key {key!r} to remove",
            where=_COMMAND_LINE,
            fix=did_you_mean(key, dict.fromkeys(known)).strip() or "leave it out",
        )


def _new_key_notes(text: str, values: Values) -> list[str]:
    """Returns a note if an override sets a key of the user's that no file has: it may be misspelled."""
    key, equals, _ = text.partition("=")
    path = tuple(key.split("."))
    is_roosts = path[0] == dlnest_settings.SECTION
    if not equals or key.startswith("+") or is_roosts or _value_at(values, path) is not ABSENT:
        return []
    known = [".".join(path[:end]) for path in _leaves(values) for end in range(1, len(path) + 1)]
    near = did_you_mean(key, dict.fromkeys(known)).strip()
    return [f"{key} is a new key, which no file of the config has{f'; {near}' if near else ''}"]


def _check_sections(path: Key, values: Values) -> None:
    for length in range(1, len(path)):
        around = _value_at(values, path[:length])
        if around is not ABSENT and around is not None and not isinstance(around, Mapping):
            outer = ".".join(path[:length])
            fix = "replace the whole list" if isinstance(around, list) else f"remove it first: ~{outer}"
            raise ConfigError(
                "is not a section", setting=outer, received=around, where=_COMMAND_LINE, fix=fix
            )


def _check_replaced_section(path: Key, values: Values, value: Any) -> None:
    """Refuses a text or number for a section of the user's own, whose keys the code reads: in Hydra it would
    select a file. The settings' own sections are checked by their types."""
    section = _value_at(values, path)
    is_single = isinstance(value, str | int | float) and not isinstance(value, bool)
    is_reference = isinstance(value, str) and value.startswith("${")
    if path[0] in settings.setting_names() or not isinstance(section, Mapping) or not section:
        return
    if is_single and not is_reference:
        key, first = ".".join(path), next(iter(section))
        fix = f"set one of its keys, as {key}.{first}=..., or remove it first: ~{key} +{key}={value}"
        raise ConfigError("is a section", setting=key, received=value, where=_COMMAND_LINE, fix=fix)


def _refuse_hydra_sign(text: str, values: Values, contract: Contract) -> None:
    """Raises a ConfigError for ``++a.b=c``, which sets a key in Hydra whether it exists or not."""
    _parse_override(
        text.removeprefix("++"), values, contract
    )  # raises the error of a key that does not exist
    raise ConfigError(
        "this argument is not an override",
        received=text,
        where=_COMMAND_LINE,
        fix=f"write {text.removeprefix('++')}: the key exists",
    )


def _setting_meant(first: str) -> str | None:
    """Returns the setting of which a key at the top is a misspelling, so that it cannot be the user's own."""
    names = settings.setting_names()
    return None if first in names else settings.near_miss(first, names)


_NAMED_SECTIONS = {
    "optimizer": "optimizers",
    "optim": "optimizers",
    "optimizers": "optimizers",
    "averages": "averages",
}
"""Sections whose keys are below names, with what they are called elsewhere."""


def _in_named_sections(key: str, candidates: Sequence[str], values: Values) -> list[str]:
    """Returns the keys meant by one without the name between section and key: ``optimizers.main.lr`` for
    ``optimizer.lr``; those that do not exist with the sign that adds them."""
    first, _, rest = key.partition(".")
    section = _NAMED_SECTIONS.get(first, "")
    names = values.get(section)
    if not isinstance(names, Mapping) or not rest or rest.partition(".")[0] in names:
        return []
    full = [f"{section}.{name}.{rest}" for name in names]
    full = [key if key in candidates else synonyms.optimizer_argument(key) or key for key in full]
    existing = [key for key in full if key in candidates]
    return (existing or ([] if "." in rest else [f"+{key}" for key in full]))[:3]


def _known_beside(key: str, named: Sequence[str]) -> str:
    """Returns the settings of the section around an unknown key, as a fix."""
    section = key.rpartition(".")[0]
    beside = [one.rpartition(".")[2] for one in named if one.rpartition(".")[0] == section]
    return f"the settings of {section} are {', '.join(beside)}" if beside else "remove it"


def _refuse_unknown(key: str, values: Values, sign: str, value: str) -> None:
    named = [] if sign == "~" else [*settings.known_keys(values), *user_options.names(values)]
    if key in named:
        return
    if sign != "~" and (error := foreign_keys.override_error(key, _parse_value(value, key), values)):
        raise error
    parts = {".".join(path[:length]) for path in _leaves(values) for length in range(1, len(path) + 1)}
    candidates = list(dict.fromkeys([*named, *parts]))
    near, add = synonyms.did_you_mean(key, candidates), f"use +{key}={value} to add it"
    first, dot, rest = key.partition(".")
    if not settings.may_have(key):
        add = "" if near else _known_beside(key, named)
    if (similar := _setting_meant(first)) is not None:
        add = ""  # a key so similar to a setting is refused
        if similar + dot + rest in candidates:
            near = f"did you mean {similar + dot + rest!r}? "
    if sign != "~" and (inner := _in_named_sections(key, candidates, values)):
        near, add = f"did you mean {' or '.join(f'{one}={value}' for one in inner)}? ", ""
    if (entry := _LIST_ENTRY.search(key)) is not None:
        near, add = "", f"replace the whole list, as in '{key[: entry.start()]}=[...]'"
    if (meant := synonyms.optimizer_argument(key)) is not None and meant not in candidates:
        near, add = "", f"use +{meant}={value}"
    elif key.startswith("optimizers.") and synonyms.find_setting(key, candidates) is not None:
        add = ""  # a synonym of a setting is not an argument of the optimizer
    use = "" if sign == "~" else add
    raise ConfigError(
        f"there is no setting {key!r}",
        where=_COMMAND_LINE,
        fix=(near + use).strip() or None,
    )
