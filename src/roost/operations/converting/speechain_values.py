"""Values of SpeeChain's configs: the tags of its YAML, and its lists and mappings that are written as texts.

Nothing is evaluated: a tag is a text, a list or a reference. References are resolved by
`roost.config.interpolation`, with its limits of cycles, length and size.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roost.base.config_files import MAX_BYTES, MAX_DEPTH, ConfigFile, parse_scalar, read_config_file
from roost.base.errors import ConfigError, NotFound
from roost.base.text.typed_path import typed_path
from roost.config import interpolation

ROOT_VARIABLE = "SPEECHAIN_ROOT"
"""The environment variable with the folder in which SpeeChain looks up paths."""
_BRACKET = re.compile(r"<([^<>]*)>")
_NAME = re.compile(r"([\w-]+)((?:\[\d+\])*)")
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_ENDS = {"[": "]", "(": ")", "{": "}"}
_COMMAND_LINE = "command line"


class _Reference(str):
    """The text of ``!ref``, with each ``<key>`` as ``${key}``."""


def _reference(text: str) -> str:
    return _Reference(_BRACKET.sub(_dollar, text.replace("${", "$${")))


def _dollar(found: re.Match[str]) -> str:
    name = _NAME.fullmatch(found[1])
    if name is None:
        raise ConfigError(
            "`!ref` names no key", received=found[0], fix="write !ref <key>, or !ref <key[0]> for an item"
        )
    return f"${{{name[1]}{name[2].replace('[', '.').replace(']', '')}}}"


def _list(text: str) -> Any:
    found = parse_value(text)
    return found if isinstance(found, list) else [found]


_TAGS: Mapping[str, Callable[[str], Any]] = {"!ref": _reference, "!str": str, "!list": _list, "!tuple": _list}


@dataclass(frozen=True)
class SpeechainFile:
    """A YAML file of SpeeChain."""

    file: ConfigFile
    written: dict[str, Any]
    """The values with references as ``${key}``, and other ``${`` escaped."""
    values: dict[str, Any]
    """The values with resolved references."""


def read_file(path: Path) -> SpeechainFile:
    """Reads a YAML file of SpeeChain, or one that SpeeChain has written.

    Raises:
        NotFound: There is no such file.
        ConfigError: The file cannot be read, has an unknown tag, or its references are unknown or circular.
    """
    file = read_config_file(path, display_name=str(path), tags=_TAGS)
    written: dict[str, Any] = _escaped(file.values)
    try:
        values = interpolation.resolve(
            written, {}, late=frozenset(), where=lambda key: file.where(tuple(key.split(".")))
        )
    except ConfigError as error:
        raise ConfigError(
            _REFERENCE.sub(r"<\1>", error.message),
            setting=error.setting,
            where=error.where,
            fix="`!ref <key>` names a key at the top of the same file; no key may lead back to itself",
        ) from None
    return SpeechainFile(file, written, values)


def _escaped(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _escaped(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_escaped(one) for one in value]
    if isinstance(value, str) and not isinstance(value, _Reference):
        return value.replace("${", "$${")
    return str(value) if isinstance(value, _Reference) else value


def rewrite(written: Any, rename: Callable[[str], str | None], values: Mapping[str, Any]) -> Any:
    """Returns a part of `SpeechainFile.written` for a config of roost.

    Args:
        written: The part.
        rename: Returns the new dotted name of a key that becomes a key of the config, else None: its value
            is inserted.
        values: `SpeechainFile.values`.
    """
    if isinstance(written, Mapping):
        return {name: rewrite(one, rename, values) for name, one in written.items()}
    if isinstance(written, list):
        return [rewrite(one, rename, values) for one in written]
    if not isinstance(written, str):
        return written
    whole = _REFERENCE.fullmatch(written)
    if whole is not None and not _is_kept(whole[1], rename):
        return escape(_value_of(whole[1], values))
    return re.sub(r"(?<!\$)\$\{([^{}]*)\}", lambda found: _replaced(found[1], rename, values), written)


def escape(value: Any) -> Any:
    """Returns plain values with each ``${`` escaped, as a config of roost needs it."""
    return _escaped(value)


def _is_kept(name: str, rename: Callable[[str], str | None]) -> bool:
    return rename(name.partition(".")[0]) is not None


def _replaced(name: str, rename: Callable[[str], str | None], values: Mapping[str, Any]) -> str:
    root, dot, rest = name.partition(".")
    new = rename(root)
    return str(escape(_value_of(name, values))) if new is None else f"${{{new}{dot}{rest}}}"


def _value_of(name: str, values: Mapping[str, Any]) -> Any:
    found: Any = values
    for part in name.split("."):
        found = found[int(part)] if isinstance(found, list) else found[part]
    return found


# --- lists and mappings in texts --------------------------------------------------------------------------


def parse_value(text: str, *, is_mapping: bool = False) -> Any:
    """Returns the value of a text such as ``[a,[b]]``, ``(valid, accuracy, max, 10)`` or ``a:{b:1}``.

    Single values are those of YAML 1.2: ``-1``, ``1e-3``, ``true``.

    Args:
        text: The text.
        is_mapping: Whether ``a:1,b:2`` without braces is a mapping.

    Raises:
        ConfigError: Brackets do not match, or they are nested too deep.
    """
    if len(text) > MAX_BYTES:
        raise ConfigError("the text is too long for a value")
    text = text.strip()
    if is_mapping and text[:1] != "{" and ":" in text:
        text = f"{{{text}}}"
    if text[:1] not in _ENDS:
        return parse_scalar(text)
    reader = _TextReader(text)
    found = reader.value(0)
    if reader.at != len(text):
        raise reader.error("text follows the last bracket")
    return found


class _TextReader:
    """Reads nested lists, tuples and mappings without quotes around texts."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def error(self, problem: str) -> ConfigError:
        """Returns the error for a text that is not a value."""
        return ConfigError(problem, received=self.text[:200], fix="write [a,[b]], (a, b) or {a:{b:1}}")

    def value(self, depth: int) -> Any:
        """Returns the value at the position, which is then behind it."""
        if depth > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels")
        self._skip()
        start = self._next()
        if start not in _ENDS:
            return parse_scalar(self._plain(",])}"))
        self.at += 1
        found = dict(self._pairs(depth)) if start == "{" else list(self._items(_ENDS[start], depth))
        self._skip()
        return found

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def _skip(self) -> None:
        while self._next().isspace():
            self.at += 1

    def _is_at_end(self, end: str) -> bool:
        """Whether the list or mapping ends at the position; passes its end, or the comma."""
        self._skip()
        if self._next() == end:
            self.at += 1
            return True
        if not self._next():
            raise self.error(f"a {end} is missing")
        return False

    def _comma(self, end: str) -> None:
        self._skip()
        if self._next() == ",":
            self.at += 1
        elif self._next() != end:
            raise self.error(f"a comma or {end} is missing")

    def _items(self, end: str, depth: int) -> Iterator[Any]:
        while not self._is_at_end(end):
            yield self.value(depth + 1)
            self._comma(end)

    def _pairs(self, depth: int) -> Iterator[tuple[str, Any]]:
        while not self._is_at_end("}"):
            key = self._plain(":,])}").strip("'\"")
            if self._next() != ":" or not key:
                raise self.error("a key has no value")
            self.at += 1
            yield key, self.value(depth + 1)
            self._comma("}")

    def _plain(self, ends: str) -> str:
        start = self.at
        quote = self._next()
        if quote in ("'", '"') and (close := self.text.find(quote, self.at + 1)) > 0:
            self.at = close + 1
            self._skip()
            return self.text[start : self.at].strip()
        while (character := self._next()) and character not in ends:
            self.at += 1
        return self.text[start : self.at].strip()


# --- paths ------------------------------------------------------------------------------------------------


def weights_path(given: str, config: Path) -> tuple[str, str | None]:
    """Returns the path of a file of weights as the config of a project needs it, absolute if the file is
    found, and else a remark.

    Args:
        given: The path in the old config.
        config: The old config.
    """
    try:
        return escape(str(find_file(given, config, "weights", None).resolve())), None
    except NotFound:
        return escape(given), f"the weights {given} were not found: correct the path below `init_from`"


def find_file(given: str, config: Path, setting: str, where: object) -> Path:
    """Returns the file that a config names: an absolute path, or one that starts at the config's folder, at a
    folder around it (recipes are below SpeeChain's own folder), at the working folder or at
    ``SPEECHAIN_ROOT``.

    Raises:
        NotFound: None of these exists.
    """
    path = typed_path(given)
    root = os.environ.get(ROOT_VARIABLE)
    folders = [config.parent, *config.parent.parents, Path.cwd(), *([Path(root)] if root else [])]
    places = [path] if path.is_absolute() else [folder / path for folder in folders]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise NotFound(
            "there is no such file",
            setting=setting,
            received=given,
            where=where,
            fix=f"paths start at the config's folder, at a folder around it, or at the folder that the "
            f"variable {ROOT_VARIABLE} names",
        )
    return found
