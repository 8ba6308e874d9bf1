"""Names of weights: maps the names of a file to those of a module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

WRAPPERS = ("module", "_orig_mod", "_fsdp_wrapped_module")
"""The parts that (Distributed)DataParallel, torch.compile and FSDP add to the names of a wrapped module."""

Shape = tuple[int, ...]
_MAX_PAIRS = 2_000_000
_MAX_CANDIDATES = 50


def strip_wrappers(name: str) -> str:
    """Removes the parts that wrappers add to a name, anywhere but at its end."""
    *modules, last = name.split(".")
    return ".".join([*(one for one in modules if one not in WRAPPERS), last])


def map_name(name: str, mapping: Mapping[str, str | None]) -> str | None:
    """Maps a name of a file to the name here; None if the mapping leaves it out.

    Args:
        name: The name in the file; a prefix may match it with or without the parts of wrappers.
        mapping: Prefixes in the file and their prefixes here. The longest match is used; "" matches every
            name.
    """
    key = _longest_key(name, mapping)
    if key is None:
        return name
    to = mapping[key]
    rest = name if name.startswith(key) else strip_wrappers(name)
    return None if to is None else to + rest[len(key) :]


def _longest_key(name: str, mapping: Mapping[str, str | None]) -> str | None:
    fitting = [key for key in mapping if name.startswith(key) or strip_wrappers(name).startswith(key)]
    return max(fitting, key=len, default=None)


def unused_keys(names: Iterable[str], mapping: Mapping[str, str | None]) -> list[str]:
    """The keys of a mapping with which no name begins."""
    found = list(names)
    return [
        key
        for key in mapping
        if not any(n.startswith(key) or strip_wrappers(n).startswith(key) for n in found)
    ]


class ModuleNames:
    """The names of a module. A name of a file is found unchanged, or if both are equal without the parts of
    wrappers."""

    def __init__(self, names: Iterable[str]) -> None:
        self._exact = set(names)
        by_bare: dict[str, list[str]] = {}
        for name in self._exact:
            by_bare.setdefault(strip_wrappers(name), []).append(name)
        self._bare = {key: found[0] for key, found in by_bare.items() if len(found) == 1}

    def find(self, name: str) -> str | None:
        """Returns the name of the module for a name of the file; None if there is none."""
        return name if name in self._exact else self._bare.get(strip_wrappers(name))


def propose_mappings(theirs: Mapping[str, Shape], ours: Mapping[str, Shape]) -> list[tuple[str, str, int]]:
    """Returns (prefix in the file, prefix here, number of names) for mappings under which names fit with
    their shapes, the best first.

    Args:
        theirs: Shapes by name in the file.
        ours: Shapes by name here.
    """
    alike: dict[tuple[str, Shape], list[str]] = {}
    for name, shape in ours.items():
        alike.setdefault((name.rpartition(".")[2], shape), []).append(name)
    rows = {name: alike.get((name.rpartition(".")[2], shape), []) for name, shape in theirs.items()}
    if sum(map(len, rows.values())) > _MAX_PAIRS:
        return []
    counted = Counter(_differing_prefixes(name, other) for name, found in rows.items() for other in found)
    tried = [
        (there, here, _count_fitting(there, here, theirs, ours))
        for (there, here), _ in counted.most_common(_MAX_CANDIDATES)
        if there != here
    ]
    return sorted(tried, key=lambda one: (-one[2], len(one[0]) + len(one[1]), one[:2]))


def _differing_prefixes(one: str, other: str) -> tuple[str, str]:
    """The prefixes of two names before their common end, which consists of whole parts."""
    parts, others = one.split("."), other.split(".")
    while parts and others and parts[-1] == others[-1]:
        parts.pop()
        others.pop()
    return _prefix(parts), _prefix(others)


def _prefix(parts: Sequence[str]) -> str:
    return "".join(f"{part}." for part in parts)


def _count_fitting(there: str, here: str, theirs: Mapping[str, Shape], ours: Mapping[str, Shape]) -> int:
    return sum(
        ours.get(here + name[len(there) :]) == shape
        for name, shape in theirs.items()
        if name.startswith(there)
    )


def format_names(names: Sequence[str], *, most: int = 6) -> str:
    """Names for a message; many names are grouped by prefix: ``net.a.* (12), net.b.* (3)``."""
    if len(names) <= most:
        return ", ".join(names)
    groups: dict[str, list[str]] = {}
    for depth in range(1, 1 + max(name.count(".") for name in names)):
        finer: dict[str, list[str]] = {}
        for name in names:
            finer.setdefault(".".join(name.split(".")[:depth]), []).append(name)
        if len(finer) > most:
            break
        groups = finer
    if not groups:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return ", ".join(
        inside[0] if len(inside) == 1 else f"{key}.* ({len(inside)})" for key, inside in groups.items()
    )
