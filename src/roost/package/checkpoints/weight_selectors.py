"""The weights that a grid of evaluations compares, selected on a command line.

::

    best                the best checkpoint by the first rule of `checkpoint.best`
    last                the newest
    12                  checkpoint 12
    average(best:10)    the mean of the ten best; average(last:5) of the five newest
    ema, ema(best)      the average that the run keeps under this name (`averages`), at the newest checkpoint
                        or at another
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from roost.base.errors import UsageError
from roost.base.text.suggestions import did_you_mean
from roost.package.checkpoints import selection
from roost.package.checkpoints.selection import CheckpointSelection
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder

_MEAN = "average"
_CALL = re.compile(r"([^()\s]+)(?:\(([^()]*)\))?", re.ASCII)
_SETTING = "--checkpoints"


class WeightSelector(msgspec.Struct, frozen=True, kw_only=True):
    """Weights by name: of one checkpoint, of the mean of several, of a kept average, or of a file."""

    name: str
    """As it was written."""
    folder: str
    """The name as that of a folder."""
    checkpoints: CheckpointSelection | None = None
    """None: the weights are those of a file."""
    average: str | None = None
    """The name of an average that the run keeps; None: the trained weights."""
    file: str | None = None
    """The absolute path of a file with weights."""


def parse_selectors(
    package: PackageFolder,
    words: str | None = None,
    *,
    weights: Path | None = None,
    monitor: str | None = None,
    mode: str | None = None,
) -> list[WeightSelector]:
    """Parses the options that select weights; that the checkpoints exist is found when they are read.

    Args:
        package: The package.
        words: Selectors, separated by commas; None: the best checkpoint if a rule determines it, else the
            newest; with ``weights`` only those.
        weights: A file with weights.
        monitor: The metric of ``best``; None: that of the first rule of ``checkpoint.best``.
        mode: ``min`` or ``max``; None: as in ``checkpoint.best``, else ``min``.

    Raises:
        UsageError: A selector is malformed or occurs twice, or no metric determines the best checkpoint.
    """
    found = [] if weights is None else [_of_file(weights)]
    rule = _BestOptions(monitor, mode)
    if words is not None:
        found += [_parse(package, word, rule) for word in _split(words)]
    elif weights is None:
        has_rule = monitor is not None or selection.best_rules(package)
        found.append(_parse(package, "best" if has_rule else "last", rule))
    _require_different(found, words)
    return found


class _BestOptions(NamedTuple):
    monitor: str | None
    mode: str | None


def _require_different(found: list[WeightSelector], words: str | None) -> None:
    names: dict[str, WeightSelector] = {}
    for one in found:
        if (other := names.setdefault(one.folder, one)) is one:
            continue
        is_twice = one.name == other.name
        raise UsageError(
            f"{one.name} is selected twice" if is_twice else f"{other.name} and {one.name} are named alike",
            setting=_SETTING,
            received=words,
            fix="leave out one of them" if is_twice else "rename the file of weights",
        )


def _of_file(weights: Path) -> WeightSelector:
    stem = re.sub(r"[^\w.=+@-]+", "-", weights.stem, flags=re.ASCII).strip(".-") or "weights"
    return WeightSelector(name=weights.name, folder=stem, file=str(weights.absolute()))


def _split(words: str) -> list[str]:
    found = [word.strip() for word in re.split(r",(?![^()]*\))", words)]
    if not all(found):
        raise UsageError(
            "a selector is empty",
            setting=_SETTING,
            received=words,
            fix="separate selectors by one comma: best,last,average(best:10)",
        )
    return found


def _parse(package: PackageFolder, word: str, rule: _BestOptions) -> WeightSelector:
    called = _CALL.fullmatch(word)
    if called is None:
        raise _unknown(package, word)
    name, inner = called[1], called[2]
    average = None
    if name == _MEAN and inner is not None:
        chosen = _selection(package, rule, average=inner)
    elif inner is None and _is_one_checkpoint(name):
        chosen = _selection(package, rule, name)
    elif name in _kept_averages(package) and _is_one_checkpoint(inner or "last"):
        average = name
        chosen = _selection(package, rule, inner or "last")
    else:
        raise _unknown(package, word)
    folder = re.sub(r"[(:]", "-", word).rstrip(")")
    return WeightSelector(name=word, folder=folder, checkpoints=chosen, average=average)


def _is_one_checkpoint(word: str) -> bool:
    return word in ("last", "best") or (word.isascii() and word.isdecimal())


def _selection(
    package: PackageFolder, rule: _BestOptions, checkpoint: str | None = None, average: str | None = None
) -> CheckpointSelection:
    is_best = (checkpoint or average or "").startswith("best")
    return selection.parse_selection(
        package,
        checkpoint,
        average=average,
        monitor=rule.monitor if is_best else None,
        mode=rule.mode if is_best else None,
        setting=_SETTING,
    )


def _unknown(package: PackageFolder, word: str) -> UsageError:
    averages = _kept_averages(package)
    known = ["best", "last", "an id", f"{_MEAN}(best:10)", f"{_MEAN}(last:5)", *averages]
    names = ["best", "last", _MEAN, *averages]
    name = word.partition("(")[0]
    suggestion = "" if name in names else did_you_mean(name, names)
    return UsageError(
        "not a selection of weights",
        setting=_SETTING,
        received=word,
        fix=f"{suggestion}give {', '.join(known[:-1])} or {known[-1]}",
    )


def _kept_averages(package: PackageFolder) -> list[str]:
    """The names of the averages that the run keeps."""
    if PackageKind.of(package.request) is PackageKind.DLNEST:
        return []  # there ``averages`` is a key of the user
    found = package.settings.get("averages")
    return list(found) if isinstance(found, Mapping) else []
