"""A config, merged from layers of files and overrides, with the origin of each setting.

The layers from lowest to highest: roost's defaults, the defaults of the options that a config declares,
included files, the root file, a tuning file, the command line. In a config of DLNest's contract: the
defaults of the section ``roost``, the root file, its child files, a tuning file, the command line.
Sections are merged key by key; lists and single values are replaced. A key ``~name`` without a value removes
what the layers below have set (as ``~a.name`` on the command line).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roost.base.config_files import MAX_DEPTH, MAX_FILES, ConfigFile, read_config_file
from roost.base.errors import ConfigError, NotFound
from roost.base.text.suggestions import did_you_mean
from roost.config import settings, user_options
from roost.config.dlnest import child_files, dlnest_settings
from roost.config.run_settings import Contract
from roost.config.values.nested_values import (
    ABSENT,
    Key,
    Values,
    dotted_keys,
    has_nul,
    leaves,
    merge,
    nested,
    value_at,
    without,
)
from roost.config.values.overrides import COMMAND_LINE, Override, new_key_notes, parse_override

_REMOVAL = re.compile(r"~[\w-]+")
"""A key of a file that removes one."""


DEFAULT_LABEL = "default"
"""The label of the layer of roost's defaults, the lowest."""


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
        labels = {".".join(path): self._last_label(path) for path in leaves(self.values)}
        object.__setattr__(self, "provenance", labels)

    @classmethod
    def of_values(
        cls, path: Path, values: Values, provenance: Mapping[str, str], contract: Contract
    ) -> Config:
        """Returns a config that was merged before, such as that of a package.

        Args:
            path: The root file of that time; it need not exist.
            values: Every setting.
            provenance: The layer that set each dotted key.
            contract: The contract of the config.
        """
        layers: dict[str, Values] = {}
        for key in leaves(values):
            label = provenance.get(".".join(key), DEFAULT_LABEL)
            layers[label] = merge(layers.get(label, {}), nested(key, value_at(values, key)))
        return cls(path, values, [], tuple(Layer(*one) for one in layers.items()), contract)

    def _last_label(self, path: Key) -> str:
        holders = [layer for layer in self.layers if value_at(layer.values, path) is not ABSENT]
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
            value = value_at(layer.values, path)
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
            if holders := [layer for layer in set_layers if value_at(layer.values, inner) is not ABSENT]:
                files = [layer for layer in holders if layer.located is not None]
                is_section = isinstance(value_at(self.values, inner), Mapping)
                return (files if is_section and files else holders)[-1].label_of(inner)
        return None


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
                notes += new_key_notes(text, values)
            layer = _override_layer(parse_override(text, values, self.contract))
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


def _override_layer(one: Override) -> Layer:
    if one.value is ABSENT:
        return Layer(COMMAND_LINE, {}, removed=one.path)
    return Layer(COMMAND_LINE, nested(one.path, one.value))


def _apply_layer(values: Values, layer: Layer) -> Values:
    return without(values, layer.removed) if layer.removed else merge(values, layer.values)


def _merge_layers(layers: Sequence[Layer]) -> Values:
    values: Values = {}
    for layer in layers:
        values = _apply_layer(values, layer)
    return values


def _removes(layer: Layer, path: Key) -> bool:
    if layer.removed:
        return path[: len(layer.removed)] == layer.removed
    around = (value_at(layer.values, path[:length]) for length in range(1, len(path)))
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
                for key in (one for one, value in found.values.items() if has_nul(value)):
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
        if layer.removed and value_at(values, layer.removed) is ABSENT:
            key = ".".join(layer.removed)
            raise ConfigError(
                f"there is no {key!r} to remove in the files below this one",
                where=layer.label,
                fix=did_you_mean(key, dotted_keys(values)).strip() or "remove this line",
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
