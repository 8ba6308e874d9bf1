"""Interpolation of ``${...}`` in settings: other settings, folders of the run, the environment, counts of the
data.

Settings are saved as written and resolved at start, so that a package can be moved.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

from roost.base.errors import ConfigError
from roost.base.text.suggestions import did_you_mean

LATE_NAMES = frozenset({"total_steps", "steps_per_epoch"})
"""Names whose values depend on the data; `fill_late` replaces them."""

STAGED = "staged"
"""The name of the folder of a staged archive (``data.stage``), which exists at run time only; the folder of
one of several archives is ``staged.NAME``. `fill_late` replaces these, too."""

MAX_REPEATED = 100_000
"""Limit of the values that references insert; a value inserted several times counts each time."""
MAX_TEXT = 2**20
"""Limit of characters of a text with references inside."""
_MAX_CHAIN = 64

_REFERENCE = re.compile(r"(?P<escape>\$?)\$\{\s*(?P<name>[^{}]*?)\s*\}|\$?\$\{")

Where = Callable[[str], object]


def resolve(
    values: Mapping[str, Any],
    context: Mapping[str, object],
    *,
    late: frozenset[str] = LATE_NAMES,
    where: Where = lambda key: None,
) -> dict[str, Any]:
    """Returns new values with every reference replaced.

    ``${a.b}`` is another setting, ``${name}`` a value of ``context``, ``${env:NAME}`` an environment variable
    (a text). A text that consists of one reference becomes the referenced value with its type; inside a
    longer text the value is formatted. ``$${`` is a literal ``${``.

    Args:
        values: The settings.
        context: Values by name, such as ``project`` and ``package``; they take precedence over settings of
            the same name.
        late: Names that stay unresolved, also in escapes, unless ``context`` has them (see `fill_late`); and
            so do those of staged archives, unless ``values`` has a key `STAGED`.
        where: Returns where a dotted key was set, for messages.

    Raises:
        ConfigError: A reference is malformed, unknown, circular, or expands to too much.
    """
    resolver = _Resolver(values, context, late - context.keys(), where)
    return {key: resolver.value(value, (key,), ()) for key, value in values.items()}


def fill_late(values: Any, context: Mapping[str, object]) -> Any:
    """Replaces the references that `resolve` left: only those to names of ``context``."""
    if isinstance(values, Mapping):
        return {key: fill_late(value, context) for key, value in values.items()}
    if isinstance(values, list):
        return [fill_late(value, context) for value in values]
    if not isinstance(values, str):
        return values
    match = _REFERENCE.fullmatch(values)
    if match and not match["escape"] and match["name"] in context:
        return context[match["name"]]
    return _REFERENCE.sub(lambda found: _filled(found, context), values)


def find_references(values: Any, names: Set[str]) -> Iterator[tuple[str, str]]:
    """Yields the dotted key of each text that refers to one of ``names``, and that name."""
    return ((key, name) for key, name in _references(values, "") if name in names)


def find_staged(values: Any) -> Iterator[tuple[str, str]]:
    """Yields the dotted key of each text that refers to the folder of a staged archive, and that name."""
    return ((key, name) for key, name in _references(values, "") if _is_staged(name))


def _references(values: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(values, Mapping | list):
        for name, value in values.items() if isinstance(values, Mapping) else enumerate(values):
            yield from _references(value, f"{key}.{name}" if key else str(name))
    if isinstance(values, str):
        for match in _REFERENCE.finditer(values):
            if match["name"] is not None and not match["escape"]:
                yield key, match["name"]


def _is_staged(name: str | None) -> bool:
    return name is not None and name.partition(".")[0] == STAGED


def _filled(match: re.Match[str], context: Mapping[str, object]) -> str:
    if match["name"] not in context:
        return match[0]
    return match[0][1:] if match["escape"] else str(context[match["name"]])


class _Resolver:
    def __init__(
        self, values: Mapping[str, Any], context: Mapping[str, object], late: frozenset[str], where: Where
    ) -> None:
        self._values, self._context, self._late, self._where = values, context, late, where
        self._has_own_staged = STAGED in values
        self._repeated = 0

    def value(self, value: Any, path: tuple[str, ...], chain: tuple[str, ...]) -> Any:
        """Returns a value with all its references replaced; ``chain`` has the keys whose references led
        here."""
        self._repeated += bool(chain)
        if self._repeated > MAX_REPEATED:
            key = ".".join(path)
            raise ConfigError("references insert too many values", setting=key, where=self._where(key))
        if isinstance(value, Mapping):
            return {key: self.value(inner, (*path, key), chain) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner, (*path, str(i)), chain) for i, inner in enumerate(value)]
        return self._text(value, ".".join(path), chain) if isinstance(value, str) else value

    def _text(self, text: str, key: str, chain: tuple[str, ...]) -> Any:
        if "${" not in text:
            return text
        self._check_chain(key, chain)
        chain = (*chain, key)
        whole = _REFERENCE.fullmatch(text)
        if whole and whole["name"] is not None and not whole["escape"]:
            return self._referenced(whole, chain)
        made, size, end = [], 0, 0
        for match in _REFERENCE.finditer(text):
            made += [text[end : match.start()], self._inside(match, chain)]
            end, size = match.end(), size + len(made[-1])
            if size > MAX_TEXT:
                raise ConfigError("the text becomes too long", setting=key, where=self._where(key))
        return "".join(made) + text[end:]

    def _inside(self, match: re.Match[str], chain: tuple[str, ...]) -> str:
        if match["escape"]:
            return match[0] if self._is_late(match["name"]) else match[0][1:]
        if match["name"] is None and match[0] == "$${":
            return "${"
        value = self._referenced(match, chain)
        if isinstance(value, Mapping | list):
            key = chain[-1]
            fix = "refer to one of its values, or make the reference the whole text"
            raise ConfigError(
                f"{match[0]} is a {'section' if isinstance(value, Mapping) else 'list'}, which cannot be "
                "inserted into a text",
                setting=key,
                where=self._where(key),
                fix=fix,
            )
        return str(value)

    def _referenced(self, match: re.Match[str], chain: tuple[str, ...]) -> Any:
        name, key = match["name"], chain[-1]
        if self._is_late(name):
            return match[0]
        if name in self._context:
            return self._context[name]
        if not name:
            fix = "write ${name}, or $${ for a literal ${"
            raise ConfigError(
                "a reference is malformed",
                setting=key,
                received=match.string,
                where=self._where(key),
                fix=fix,
            )
        if name.startswith("env:"):
            return self._environment(name.removeprefix("env:"), key)
        return self._setting(name, chain)

    def _is_late(self, name: str | None) -> bool:
        return name in self._late or (_is_staged(name) and not self._has_own_staged)

    def _environment(self, name: str, key: str) -> str:
        if name not in os.environ:
            raise ConfigError(
                f"the environment has no variable {name}",
                setting=key,
                where=self._where(key),
                fix=f"set it: export {name}=...",
            )
        return os.environ[name]

    def _setting(self, name: str, chain: tuple[str, ...]) -> Any:
        path = tuple(name.split("."))
        value: Any = self._values
        for part in path:
            if isinstance(value, Mapping) and part in value:
                value = value[part]
            elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
                value = value[int(part)]
            else:
                raise self._unknown(name, chain[-1])
        return self.value(value, path, chain)

    def _unknown(self, name: str, key: str) -> ConfigError:
        known = [*self._context, *self._late, *_keys(self._values)]
        return ConfigError(
            f"there is no setting ${{{name}}} to refer to",
            setting=key,
            where=self._where(key),
            fix=did_you_mean(name, known).strip() or "add it, or write $${ for a literal ${",
        )

    def _check_chain(self, key: str, chain: tuple[str, ...]) -> None:
        if key in chain:
            ring = " -> ".join((*chain[chain.index(key) :], key))
            raise ConfigError(f"settings refer to each other: {ring}", setting=key, where=self._where(key))
        if len(chain) > _MAX_CHAIN:
            raise ConfigError(
                f"a chain of more than {_MAX_CHAIN} references",
                setting=key,
                where=self._where(key),
            )


def _keys(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    found = []
    for key, value in values.items():
        found.append(prefix + key)
        if isinstance(value, Mapping):
            found += _keys(value, f"{prefix}{key}.")
    return found
