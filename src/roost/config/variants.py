"""Variants of an evaluation: named sets of arguments of `Runner.test`, such as the widths of a beam search.

A file of variants has one of these forms::

    beam: 5                       # arguments: one variant, named after the file

    base: {max_len: 100}          # arguments of every variant
    grid: {beam: [1, 5], t: [0.5, 1]}       # each combination: 4 variants, beam=1_t=0.5 and so on
    zip: {lm: [0.1, 0.2], ctc: [0.9, 0.8]}  # together: 2, and with the grid above 8
    list:                         # further ones: arguments, or files of arguments; or a mapping of names
      - {beam: 1, sample: true}
      - wide.yaml

    shared_args: {max_len: 100}   # as SpeeChain has it: each of exclu_args with the shared ones
    exclu_args: [{beam: 1}, {beam: 5}]

A variant that has no name of its own is called by its arguments in the order of their names.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from roost.base.config_files import read_config_file
from roost.base.errors import ConfigError, NotFound
from roost.base.text.suggestions import did_you_mean

DEFAULT = "default_inference"
"""The name of the variant without arguments."""
MAX_VARIANTS = 10_000
MAX_NAME = 100
"""Characters of a name, which is also that of a folder."""
_NATIVE = ("base", "grid", "zip", "list")
_SHARED, _EXCLUSIVE = "shared_args", "exclu_args"
_UNSAFE = re.compile(r"[^\w.=+,@-]+", re.ASCII)

Arguments = dict[str, Any]


class Variant(NamedTuple):
    """A named set of arguments of `Runner.test`."""

    name: str
    """Also the name of a folder."""
    arguments: Arguments


class _Unnamed(NamedTuple):
    """A variant before its name is known to be safe and its own."""

    name: str
    arguments: Arguments
    file: Path | None = None
    """The file that it is named after."""


def read_variants(file: Path) -> list[Variant]:
    """Reads a file of variants.

    Raises:
        NotFound: There is no such file.
        ConfigError: It cannot be read, or is no description of variants.
    """
    try:
        read = read_config_file(file)
    except NotFound as error:
        fix = error.fix or "correct the path; or write the file, a mapping such as {grid: {beam: [1, 5]}}"
        raise NotFound(error.message, fix=fix) from None
    return _named(_of_mapping(read.values, file.parent, file))


def expand_variants(spec: object, folder: Path) -> list[Variant]:
    """Returns the variants that a value describes: None, the path of a file, a list of paths and mappings, or
    a mapping as in a file, where arguments alone are named by their values.

    Args:
        spec: The value.
        folder: Paths in it are relative to this folder.

    Raises:
        NotFound: There is no such file.
        ConfigError: It is no description of variants.
    """
    if isinstance(spec, str):
        return read_variants(folder / spec)
    return _named(_of_value(spec, folder))


def _of_value(spec: object, folder: Path) -> Iterator[_Unnamed]:
    if spec is None:
        yield _Unnamed(DEFAULT, {})
    elif isinstance(spec, list):
        yield from _of_list(spec, {}, folder)
    elif isinstance(spec, Mapping):
        yield from _of_mapping(spec, folder, None)
    else:
        raise ConfigError(
            "variants are a file, a list or a mapping",
            received=spec,
            fix="write them as in docs/evaluation.md",
        )


def _of_mapping(spec: Mapping[str, Any], folder: Path, file: Path | None) -> Iterator[_Unnamed]:
    """The variants of a mapping; arguments alone are named after the file, if there is one."""
    if found := [key for key in (_SHARED, _EXCLUSIVE) if key in spec]:
        _require_only(spec, (_SHARED, _EXCLUSIVE))
        if len(found) == 1:
            (missing,) = {_SHARED, _EXCLUSIVE} - set(found)
            raise ConfigError(
                f"{found[0]} needs {missing} beside it",
                fix=f"add {missing}, or use base, grid, zip and list",
            )
        shared = _mapping(spec[_SHARED], _SHARED)
        for number, exclusive in enumerate(_items(spec[_EXCLUSIVE], _EXCLUSIVE)):
            key = f"{_EXCLUSIVE}.{number}"
            yield _by_arguments(_joined(shared, _SHARED, _mapping(exclusive, key), key))
    elif any(key in spec for key in _NATIVE[1:]):
        _require_only(spec, _NATIVE)
        yield from _of_native(spec, folder)
    elif file is not None:
        yield _Unnamed(file.stem, dict(spec), file)
    else:
        yield _by_arguments(dict(spec))


def _of_native(spec: Mapping[str, Any], folder: Path) -> Iterator[_Unnamed]:
    base = _mapping(spec.get("base") or {}, "base")
    if "grid" in spec or "zip" in spec:
        grid = {
            key: _items(values, f"grid.{key}")
            for key, values in _mapping(spec.get("grid") or {}, "grid").items()
        }
        together = {
            key: _items(values, f"zip.{key}")
            for key, values in _mapping(spec.get("zip") or {}, "zip").items()
        }
        _require_same_length(together)
        rows = [dict(zip(together, row, strict=True)) for row in zip(*together.values(), strict=True)] or [{}]
        for combined in itertools.product(*grid.values()):
            for row in rows:
                own = _joined(dict(zip(grid, combined, strict=True)), "grid", row, "zip")
                yield _by_arguments(own)._replace(arguments=_joined(base, "base", own, "grid or zip"))
    yield from _of_list(spec.get("list") or [], base, folder)


def _of_list(given: object, base: Arguments, folder: Path) -> Iterator[_Unnamed]:
    """The variants of a list of arguments and files, or of a mapping of names to these."""
    if isinstance(given, Mapping):
        for name, item in given.items():
            one = _of_item(item, f"list.{name}", folder)
            yield _Unnamed(str(name), _joined(base, "base", one.arguments, f"list.{name}"))
        return
    for number, item in enumerate(_items(given, "list")):
        one = _of_item(item, f"list.{number}", folder)
        yield one._replace(arguments=_joined(base, "base", one.arguments, f"list.{number}"))


def _of_item(item: object, key: str, folder: Path) -> _Unnamed:
    if isinstance(item, str):
        file = folder / item
        return _Unnamed(file.stem, read_config_file(file).values, file)
    if isinstance(item, Mapping):
        return _by_arguments(dict(item))
    raise ConfigError(
        "expected the arguments of a variant, or a file with them",
        setting=key,
        received=item,
        fix="write {beam: 5} or beam.yaml",
    )


def _by_arguments(arguments: Arguments) -> _Unnamed:
    return _Unnamed("_".join(f"{key}={arguments[key]}" for key in sorted(arguments)) or DEFAULT, arguments)


def _joined(low: Arguments, low_key: str, high: Arguments, high_key: str) -> Arguments:
    if twice := sorted(low.keys() & high.keys()):
        raise ConfigError(
            f"{twice[0]} is both in {low_key} and in {high_key}",
            setting=twice[0],
            received=high[twice[0]],
            fix="keep one of them",
        )
    return {**low, **high}


def _mapping(given: object, key: str) -> Arguments:
    if isinstance(given, Mapping):
        return {str(name): value for name, value in given.items()}
    raise ConfigError(
        "expected arguments by name", setting=key, received=given, fix="write {beam: 5, temperature: 0.5}"
    )


def _items(given: object, key: str) -> list[Any]:
    if isinstance(given, list) and given:
        return given
    if given == [] and key == "list":
        return []
    what = "the list is empty" if given == [] else "expected a list"
    raise ConfigError(what, setting=key, received=given, fix="write [1, 5, 10]")


def _require_same_length(together: Mapping[str, list[Any]]) -> None:
    lengths = {key: len(values) for key, values in together.items()}
    if len(set(lengths.values())) > 1:
        has = ", ".join(f"{key} has {count}" for key, count in lengths.items())
        raise ConfigError(
            f"the lists of zip are combined item by item and differ in length: {has}",
            setting="zip",
            fix="make them equally long, or move one to grid",
        )


def _require_only(spec: Mapping[str, Any], known: Iterable[str]) -> None:
    known = list(known)
    for key in spec:
        if key not in known:
            raise ConfigError(
                f"not a part of a description of variants, which has {', '.join(known)}",
                setting=key,
                received=spec[key],
                fix=f"{did_you_mean(key, known)}move arguments of all variants to {known[0]}",
            )


def _named(found: Iterable[_Unnamed]) -> list[Variant]:
    """The variants with names of their own that a folder can have."""
    variants = list(itertools.islice(found, MAX_VARIANTS + 1))
    if len(variants) > MAX_VARIANTS:
        raise ConfigError(
            f"these are more than {MAX_VARIANTS:,} variants", fix="leave out some values of the grid"
        )
    if not variants:
        raise ConfigError("no variant is described", fix="write arguments, or leave out the file")
    _require_different(variants)
    counts = Counter(one.name for one in variants)
    return [Variant(_folder_name(one, is_ambiguous=counts[one.name] > 1), one.arguments) for one in variants]


def _require_different(variants: Iterable[_Unnamed]) -> None:
    by_content: dict[str, _Unnamed] = {}
    by_file: dict[str, _Unnamed] = {}
    for one in variants:
        same = by_content.setdefault(_canonical(one.arguments), one)
        if same is not one:
            raise ConfigError(
                f"the variants {same.name} and {one.name} have the same arguments",
                received=one.arguments,
                fix="remove one of them",
            )
        if one.file is not None and (other := by_file.setdefault(one.name, one)) is not one:
            raise ConfigError(
                f"{other.file} and {one.file} both name their variant {one.name}",
                fix="rename one of the files",
            )


def _folder_name(one: _Unnamed, is_ambiguous: bool) -> str:
    """The name, made short and safe for a folder; with a hash of the arguments where that changes it."""
    safe = _UNSAFE.sub("-", one.name).lstrip(".-")
    if safe and safe == one.name and len(safe) <= MAX_NAME and not is_ambiguous:
        return safe
    digest = hashlib.sha256(_canonical(one.arguments).encode()).hexdigest()[:8]
    return f"{safe[: MAX_NAME - 9]}-{digest}".lstrip("-")


def _canonical(arguments: Arguments) -> str:
    return json.dumps(arguments, sort_keys=True)
