"""Readers of JSON and YAML files that users write; they record the line of every key.

YAML is read by the core schema of YAML 1.2: ``1e-3`` is a number, ``no`` and ``2026-01-01`` are texts,
``010`` is ten. Values are built directly from libyaml's events, so that no tag can construct an object and
the limits apply while reading. Keys are texts as written (``1: a`` has the key ``"1"``), as in JSON.
"""

from __future__ import annotations

import bisect
import json
import math
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from roost.base.errors import ConfigError, NotFound
from roost.base.json_mistake import find_mistake
from roost.base.text.suggestions import did_you_mean

MAX_BYTES = 10 * 2**20
MAX_NODES = 1_000_000
"""Values in one file; values that aliases repeat count each time."""
MAX_DEPTH = 64
MAX_FILES = 256
"""Limit of the files that are merged to one config; a file that is named twice counts twice."""
MAX_DIGITS = 3500
"""Characters of a number. Python neither reads nor writes one of more than 4,300 decimal digits, which are
3,571 in hexadecimal."""


@dataclass(frozen=True, slots=True)
class Location:
    """A line of a file; as text ``config.yaml:12``."""

    file: Path
    line: int
    display_name: str = ""
    """The name of the file in messages; the file's name without folders if empty."""

    def __str__(self) -> str:
        return f"{self.display_name or self.file.name}:{self.line}"


@dataclass(frozen=True)
class ConfigFile:
    """The values of a config file, with the line of each key."""

    values: dict[str, Any]
    lines: Mapping[tuple[str, ...], int]
    """Line of each key, by the key's path; an item of a list has its index as a text."""
    file: Path
    display_name: str = ""

    def where(self, path: Sequence[str | int]) -> Location | None:
        """Returns the location of a key, or of the nearest section around it that has one; else None."""
        names = tuple(str(name) for name in path)
        for length in range(len(names), 0, -1):
            if (line := self.lines.get(names[:length])) is not None:
                return Location(self.file, line, self.display_name)
        return None


ScalarTags = Mapping[str, Callable[[str], Any]]
"""Further tags of single values, such as ``!ref``, each with the function that makes a value of the text."""


def read_config_file(path: Path, *, display_name: str = "", tags: ScalarTags | None = None) -> ConfigFile:
    """Reads a ``.json``, ``.yaml`` or ``.yml`` file whose top level is a mapping.

    Args:
        path: The file.
        display_name: The name of the file in messages; the file's name without folders if empty.
        tags: Further tags that a YAML file may have. On a list such a tag is without effect, and so is
            ``!!python/tuple``.

    Raises:
        NotFound: There is no such file.
        ConfigError: The file cannot be read, or has something that roost does not accept: duplicate keys,
            tags outside of the core schema, no mapping at the top, more than `MAX_BYTES`, `MAX_NODES` or
            `MAX_DEPTH`.
    """
    display_name = display_name or path.name
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise ConfigError(
            f"{display_name} has no suffix of a config file", fix="name it .yaml, .yml or .json"
        )

    def location(line: int) -> Location:
        return Location(path, line, display_name)

    text = _read_text(path, display_name)
    values, lines = reader(text, location, tags)
    if not isinstance(values, dict):
        kind = "a list" if isinstance(values, list) else "one value"
        problem = "is empty" if values is None else f"has {kind} at its top level, and no settings by name"
        raise ConfigError(
            f"{display_name} {problem}", where=location(1), fix="write settings, such as `seed: 0`"
        )
    return ConfigFile(values, lines, path, display_name)


def parse_scalar(text: str) -> Any:
    """Returns the value of a text from the command line, by the rules of a YAML file.

    A text that starts with ``[``, ``{`` or a quote is a list, mapping or quoted text. Every other text is a
    plain value, so that ``*.bias`` and ``run: #3`` are texts and need no quotes.

    Raises:
        ConfigError: The list, mapping or quoted text is not well-formed.
    """
    plain = text.strip()
    if plain[:1] in ("[", "{", '"', "'"):
        return _read_yaml(plain, lambda line: "command line")[0]
    return _plain_value(plain, "command line") if plain else ""


def _read_text(path: Path, display_name: str) -> str:
    try:
        # Checked before opening: opening a FIFO waits for a writer.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{display_name} is not a file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}", fix=_similar_file(path)) from None
    except OSError as error:
        raise ConfigError(f"{display_name} cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise ConfigError(
            f"{display_name} is larger than {MAX_BYTES >> 20} MiB", fix="keep data out of the config"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{display_name} is not UTF-8", where=Location(path, line, display_name)) from None


def _similar_file(path: Path) -> str | None:
    """Returns the question whether another config file in the folder was meant; None if none is similar."""
    with suppress(OSError):
        names = [one.name for one in path.parent.iterdir() if one.suffix.lower() in _READERS]
        return did_you_mean(path.name, names).strip() or None
    return None


# --- scalars of the YAML 1.2 core schema --------------------------------------------------------------


def _check_length(text: str) -> None:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"{text[:12]}… is too long for a number: {len(text):,} characters")


def _integer(text: str) -> int:
    _check_length(text)
    bases = {"0o": 8, "0x": 16}
    return int(text, bases[text[:2]]) if text[:2] in bases else int(text)


def _float(text: str) -> float:
    _check_length(text)
    value = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    if math.isinf(value) and "inf" not in text.lower():
        raise ValueError(f"{text} is too large for a number")
    return value


_CORE: dict[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "null": (re.compile(r"~|null|Null|NULL|"), lambda text: None),
    "bool": (re.compile(r"true|True|TRUE|false|False|FALSE"), lambda text: text.lower() == "true"),
    "int": (re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"), _integer),
    "float": (
        re.compile(
            r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
            r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
        ),
        _float,
    ),
    "str": (re.compile(r".*", re.DOTALL), str),
}
"""The resolver table: the first pattern that matches the whole of a plain text gives its type."""

_TAG = "tag:yaml.org,2002:"
_TUPLE = _TAG + "python/tuple"


def _plain_value(text: str, where: object) -> Any:
    for name, (pattern, _) in _CORE.items():
        if pattern.fullmatch(text):
            return _core_value(name, text, where)
    raise AssertionError("the pattern of texts matches everything")


def _core_value(name: str, text: str, where: object) -> Any:
    try:
        return _CORE[name][1](text)
    except ValueError as error:
        raise ConfigError(f"a number cannot be read: {error}", where=where) from None


def _tagged_value(tag: str, text: str, where: object) -> Any:
    name = tag.removeprefix(_TAG)
    if not tag.startswith(_TAG) or name not in _CORE:
        raise _tag_error(tag, where)
    if not _CORE[name][0].fullmatch(text):
        raise ConfigError(f"the tag !!{name} does not fit", received=text, where=where)
    return text if name == "str" else _core_value(name, text, where)


def _tag_error(tag: str, where: object) -> ConfigError:
    return ConfigError(
        f"the tag {tag.replace(_TAG, '!!')} is not accepted",
        where=where,
        fix="write `${a.b}` for `!ref <a.b>`; `roost convert speechain FILE` converts configs of SpeeChain"
        if tag == "!ref"
        else "remove the tag; to build an object, name it under `class:`",
    )


# --- YAML ---------------------------------------------------------------------------------------------


class _Node(NamedTuple):
    value: Any
    size: int = 1
    """Number of values in it; values of aliases count each time."""
    height: int = 0


def _read_yaml(
    text: str, location: Callable[[int], object], tags: ScalarTags | None = None
) -> tuple[Any, dict[tuple[str, ...], int]]:
    composer = _Composer(text, location, tags)
    try:
        return composer.document(), composer.lines
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        what = ", ".join(part for part in (error.context, error.problem) if part)
        lines = text.splitlines()[:line]
        has_tab = bool(lines) and "\t" in lines[-1][: len(lines[-1]) - len(lines[-1].lstrip())]
        if has_tab:
            fix = "replace the tab by spaces: YAML indents with spaces alone"
            raise ConfigError("a line is indented with a tab", where=location(line), fix=fix) from None
        raise ConfigError(f"this is not YAML: {what}", where=location(line)) from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise ConfigError(f"this is not YAML: {error}", where=location(1)) from None


@dataclass
class _Composer:
    """Builds values from libyaml's events and records the line of every key."""

    text: str
    location: Callable[[int], object]
    tags: ScalarTags | None = None
    lines: dict[tuple[str, ...], int] = field(default_factory=dict)
    anchors: dict[str, _Node] = field(default_factory=dict)

    def document(self) -> Any:
        """Returns the value of the only document; None for an empty file."""
        self._events: Iterator[Any] = iter(yaml.parse(self.text, Loader=yaml.CSafeLoader))
        next(self._events)
        event = next(self._events)
        if isinstance(event, yaml.StreamEndEvent):
            return None
        value = self._node(next(self._events), ()).value
        next(self._events)
        if not isinstance(event := next(self._events), yaml.StreamEndEvent):
            raise ConfigError("a second document begins", where=self._at(event), fix="remove the `---`")
        return value

    def _at(self, event: Any) -> object:
        return self.location(event.start_mark.line + 1)

    def _node(self, event: Any, path: tuple[str, ...]) -> _Node:
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        if isinstance(event, yaml.AliasEvent):
            node = self._alias(event)
        elif isinstance(event, yaml.ScalarEvent):
            node = _Node(self._scalar(event))
        elif not self._is_plain(event.tag, is_mapping):
            raise _tag_error(event.tag, self._at(event))
        elif len(path) >= MAX_DEPTH:
            node = _Node(None, height=1)
        else:
            node = self._mapping(path) if is_mapping else self._sequence(path)
        self._check(node, path, event)
        if not isinstance(event, yaml.AliasEvent) and event.anchor:
            self.anchors[event.anchor] = node
        return node

    def _is_plain(self, tag: str | None, is_mapping: bool) -> bool:
        """Whether the tag of a mapping or list has no effect."""
        if tag in (None, "!", _TAG + ("map" if is_mapping else "seq")):
            return True
        return self.tags is not None and not is_mapping and (tag in self.tags or tag == _TUPLE)

    def _check(self, node: _Node, path: tuple[str, ...], event: Any) -> None:
        if len(path) + node.height > MAX_DEPTH:
            raise ConfigError(f"nested deeper than {MAX_DEPTH} levels", where=self._at(event))
        if node.size > MAX_NODES:
            raise ConfigError(
                f"more than {MAX_NODES} values (values that aliases repeat count each time)",
                where=self._at(event),
            )

    def _alias(self, event: Any) -> _Node:
        # An anchor is known once its value is complete, so a value can never contain itself.
        if event.anchor not in self.anchors:
            raise ConfigError(
                f"the anchor &{event.anchor} is not defined above this line", where=self._at(event)
            )
        return self.anchors[event.anchor]

    def _scalar(self, event: Any) -> Any:
        if self.tags is not None and event.tag in self.tags:
            return self._own_value(event)
        if event.tag not in (None, "!"):
            return _tagged_value(event.tag, event.value, self._at(event))
        if event.tag == "!" or not event.implicit[0]:
            return event.value
        return _plain_value(event.value, self._at(event))

    def _own_value(self, event: Any) -> Any:
        assert self.tags is not None
        try:
            return self.tags[event.tag](event.value)
        except ConfigError as error:
            raise ConfigError(error.detail, where=self._at(event), fix=error.fix) from None

    def _sequence(self, path: tuple[str, ...]) -> _Node:
        nodes: list[_Node] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            inner = (*path, str(len(nodes)))
            self.lines[inner] = event.start_mark.line + 1
            nodes.append(self._node(event, inner))
        return self._joined([node.value for node in nodes], nodes)

    def _joined(self, value: Any, nodes: list[_Node]) -> _Node:
        height = max((node.height for node in nodes), default=0) + 1
        return _Node(value, 1 + sum(node.size for node in nodes), height)

    def _mapping(self, path: tuple[str, ...]) -> _Node:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        seen: dict[tuple[str, bool], int] = {}
        nodes = []
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key, line = self._key(event), event.start_mark.line + 1
            is_merge = key == "<<" and event.implicit[0]
            if (key, is_merge) in seen:
                raise _duplicate_key_error(key, self.location(seen[key, is_merge]), self.location(line))
            seen[key, is_merge] = line
            self.lines[(*path, key)] = line
            nodes.append(self._node(next(self._events), (*path, key)))
            if is_merge:
                merged = self._merged(nodes[-1].value, event)
            else:
                own[key] = nodes[-1].value
        for key in merged.keys() - own.keys():
            self.lines[(*path, key)] = seen["<<", True]
        return self._joined({**merged, **own}, nodes)

    def _key(self, event: Any) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise ConfigError("a key is not a text", where=self._at(event), fix="quote it")
        if event.tag not in (None, "!", _TAG + "str"):
            raise _tag_error(event.tag, self._at(event))
        return str(event.value)

    def _merged(self, value: Any, event: Any) -> dict[str, Any]:
        sources = value if isinstance(value, list) else [value]
        merged: dict[str, Any] = {}
        for source in reversed(sources):
            if not isinstance(source, dict):
                raise ConfigError("`<<` accepts only mappings", where=self._at(event))
            merged.update(source)
        return merged


def _duplicate_key_error(key: str, first: object, second: object) -> ConfigError:
    return ConfigError(
        f"the key {key!r} is given a second time; the first is at {first}", where=second, fix="remove one"
    )


# --- JSON ---------------------------------------------------------------------------------------------


def _read_json(
    text: str, location: Callable[[int], object], tags: ScalarTags | None = None
) -> tuple[Any, dict[tuple[str, ...], int]]:
    scanner = _JsonScanner(text, location)
    try:
        # The standard module decides what is JSON; the scanner may then assume that the text is well-formed.
        json.dumps(
            json.loads(text, parse_int=_integer), ensure_ascii=False
        ).encode()  # half of a surrogate pair could not be saved
        return scanner.value(0, ())[0], scanner.lines
    except json.JSONDecodeError as error:
        mistake = find_mistake(error)
        raise ConfigError(
            f"this is not JSON: {mistake.problem}", where=location(mistake.line), fix=mistake.fix
        ) from None
    except RecursionError:
        raise ConfigError(f"nested deeper than {MAX_DEPTH} levels", where=location(1)) from None
    except ValueError as error:
        raise ConfigError(f"a value cannot be read: {error}", where=location(1)) from None


class _JsonScanner:
    """Reads well-formed JSON with what the standard module does not give: lines and duplicate keys."""

    _space = re.compile(r"[ \t\n\r,:]*")
    _decoder = json.JSONDecoder()

    def __init__(self, text: str, location: Callable[[int], object]) -> None:
        self._text, self._location = text, location
        self._newlines = [match.start() for match in re.finditer("\n", text)]
        self.lines: dict[tuple[str, ...], int] = {}

    def value(self, at: int, path: tuple[str, ...]) -> tuple[Any, int]:
        """Returns the value at or after the offset ``at``, and the offset of its end."""
        at = self._skip(at)
        if self._text[at] not in "{[":
            return self._scalar(at)
        if len(path) >= MAX_DEPTH:
            raise ConfigError(f"nested deeper than {MAX_DEPTH} levels", where=self._location(self._line(at)))
        return (self._object if self._text[at] == "{" else self._array)(at + 1, path)

    def _skip(self, at: int) -> int:
        match = self._space.match(self._text, at)
        return match.end() if match else at

    def _line(self, at: int) -> int:
        return bisect.bisect_left(self._newlines, at) + 1

    def _scalar(self, at: int) -> tuple[Any, int]:
        value, end = self._decoder.raw_decode(self._text, at)
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{self._text[at:end]} is not a number", where=self._location(self._line(at)))
        return value, end

    def _object(self, at: int, path: tuple[str, ...]) -> tuple[dict[str, Any], int]:
        made: dict[str, Any] = {}
        while self._text[at := self._skip(at)] != "}":
            (key, end), line = self._decoder.raw_decode(self._text, at), self._line(at)
            inner = (*path, key)
            if key in made:
                raise _duplicate_key_error(key, self._location(self.lines[inner]), self._location(line))
            self.lines[inner] = line
            made[key], at = self.value(end, inner)
        return made, at + 1

    def _array(self, at: int, path: tuple[str, ...]) -> tuple[list[Any], int]:
        made: list[Any] = []
        while self._text[at := self._skip(at)] != "]":
            inner = (*path, str(len(made)))
            self.lines[inner] = self._line(at)
            value, at = self.value(at, inner)
            made.append(value)
        return made, at + 1


_READERS = {".json": _read_json, ".yaml": _read_yaml, ".yml": _read_yaml}
"""The reader of each suffix."""
