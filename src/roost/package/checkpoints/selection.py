"""Which checkpoints a person means: one by its id, the newest, the best, or several of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from roost.base.errors import CheckpointError, Damaged, NotFound, UsageError
from roost.base.text.suggestions import did_you_mean
from roost.package.checkpoints import checkpoint, retention
from roost.package.checkpoints.retention import BestRule
from roost.package.package import PackageFolder

T = TypeVar("T")


class CheckpointSelection(msgspec.Struct, frozen=True, kw_only=True):
    """What is meant."""

    kind: Literal["id", "last", "best"] = "last"
    id: int | None = None
    count: int = 1
    rule: BestRule | None = None
    """By what ``best`` is measured."""

    def __str__(self) -> str:
        return f"checkpoint {self.id}" if self.kind == "id" else f"{self.kind}:{self.count}"


def parse_selection(
    package: PackageFolder,
    checkpoint: str | None = None,
    *,
    average: str | None = None,
    monitor: str | None = None,
    mode: str | None = None,
) -> CheckpointSelection:
    """What was meant by the words of a command line; `candidates` says whether it is there.

    Args:
        package: The package.
        checkpoint: ``last``, ``best`` or an id; None: ``last``.
        average: ``last:K`` or ``best:K``.
        monitor: What ``best`` goes by; None: the first rule of ``checkpoint.best``.
        mode: ``min`` or ``max``; None: as in ``checkpoint.best``, else ``min``.

    Raises:
        UsageError: The words mean nothing, or contradict each other.
    """
    if checkpoint is not None and average is not None:
        raise UsageError("-c is one checkpoint, --average several", received=checkpoint, fix="leave out one")
    kind, count, id = _parse_several(average) if average is not None else _parse_one(checkpoint or "last")
    if kind != "best" and (monitor is not None or mode is not None):
        raise UsageError(
            "is for the best checkpoints",
            setting="--monitor" if monitor is not None else "--mode",
            received=monitor if monitor is not None else mode,
            fix="-c best or --average best:K, or leave it out",
        )
    rule = _best_rule(package, monitor, mode) if kind == "best" else None
    return CheckpointSelection(kind=kind, id=id, count=count, rule=rule)


_Parsed = tuple[Literal["id", "last", "best"], int, int | None]


def _parse_one(word: str) -> _Parsed:
    if word in ("last", "best"):
        return word, 1, None  # type: ignore[return-value]
    if word.isdecimal():
        return "id", 1, int(word)
    fix = f"{did_you_mean(word, ['last', 'best'])}give last, best or the id that `roost show` lists"
    raise UsageError("names no checkpoint", setting="-c", received=word, fix=fix)


def _parse_several(words: str) -> _Parsed:
    kind, _, count = words.partition(":")
    if kind not in ("last", "best") or not count.isdecimal() or int(count) < 1:
        fix = "give last:K or best:K with K of 1 or more, such as best:3"
        raise UsageError("says not which and how many", setting="--average", received=words, fix=fix)
    return kind, int(count), None  # type: ignore[return-value]


def _best_rule(package: PackageFolder, monitor: str | None, mode: str | None) -> BestRule:
    known = best_rules(package)
    if monitor is not None:
        same = next((rule.mode for rule in known if rule.monitor == monitor), "min")
        return BestRule(monitor=monitor, mode=mode or same)
    if not known:
        raise UsageError(
            "no metric says which checkpoint is the best: the package's checkpoint.best is empty",
            fix="name it: --monitor valid/loss --mode min",
        )
    return known[0] if mode is None else msgspec.structs.replace(known[0], mode=mode)


def best_rules(package: PackageFolder) -> list[BestRule]:
    """What says which checkpoints of a run are the best: the entries of its ``checkpoint.best``."""
    section = package.settings().get("checkpoint")
    given = section.get("best") if isinstance(section, Mapping) else None
    return [
        BestRule(monitor=one["monitor"], mode=str(one.get("mode", "min")))
        for one in (given if isinstance(given, list) else [])
        if isinstance(one, Mapping) and isinstance(one.get("monitor"), str)
    ]


def first_best_rule(package: PackageFolder) -> BestRule | None:
    """The one that decides; None where there is none."""
    return next(iter(best_rules(package)), None)


def candidates(package: PackageFolder, what: CheckpointSelection) -> list[int]:
    """Ids of checkpoints of the run's line, the preferred first: more than `CheckpointSelection.count` where there are.

    Raises:
        NotFound: There is none.
    """
    store = package.store()
    if what.kind == "id":
        assert what.id is not None
        store.path(what.id)
        return [what.id]
    if what.kind == "last":
        found = store.candidates()
    else:
        found = _best_ids(package, what)
    if not found:
        raise NotFound("the package has no checkpoint", where=package.path, fix="wait for its first one")
    return found


def _best_ids(package: PackageFolder, what: CheckpointSelection) -> list[int]:
    assert what.rule is not None
    line = package.store().line()
    found = retention.best_checkpoints(line, msgspec.structs.replace(what.rule, top_k=len(line)))
    if line and not found:
        known = sorted({name for info in line for name in info.metrics})
        has = f"there are: {', '.join(known)}" if known else "they hold no metric: use last"
        raise NotFound(
            "no checkpoint holds a value of this metric, measured at its own step",
            setting="--monitor",
            received=what.rule.monitor,
            fix=f"{did_you_mean(what.rule.monitor, known)}{has}",
        )
    return [info.id for info in found]


def load_each(package: PackageFolder, what: CheckpointSelection, load: Callable[[Path], T], said: list[str]) -> Iterator[T]:
    """Loads what is meant, the preferred first, one after the other.

    What is damaged is passed over, and the next one is taken in its place; not so where an id was named.
    Nothing on the disk is changed. A run that goes on may remove what is being read: then it is looked anew.

    Args:
        package: The package.
        what: What is meant.
        load: Reads one checkpoint, and raises `Damaged` when its bytes are not those that were written.
        said: Takes a line for each that was passed over, and one where there are fewer than were asked for.

    Raises:
        NotFound: There is none.
        CheckpointError: None of them is good; or what ``load`` raises.
    """
    if what.kind == "best":
        said += _damaged_manifests(package)
    tried: set[int] = set()
    given = 0
    while given < what.count and (waiting := [id for id in candidates(package, what) if id not in tried]):
        tried.add(waiting[0])
        path = checkpoint.checkpoint_folder(package.checkpoints, waiting[0])
        try:
            loaded = load(path)
        except (Damaged, NotFound, FileNotFoundError) as error:
            is_gone = not path.exists()  # its run removed it just now
            if what.kind == "id" or not (is_gone or isinstance(error, Damaged)):
                raise
            if not is_gone:
                said.append(f"{error}; passed over, the next one is tried")
            continue
        given += 1
        yield loaded
    if not given:
        raise CheckpointError(
            f"no good checkpoint is left: {'; '.join(said) or 'its run has removed them all'}",
            where=package.path,
            fix="try again, or bring a good copy of one back under its name",
        )
    if given < what.count:
        said.append(f"{what} asks for {what.count} checkpoints, and {_number(given)}")


def _damaged_manifests(package: PackageFolder) -> Iterator[str]:
    """A line for each checkpoint that may be the best, and whose manifest is damaged."""
    for id in checkpoint.ids(package.checkpoints):
        path = checkpoint.checkpoint_folder(package.checkpoints, id)
        try:
            checkpoint.read_manifest(path)
        except CheckpointError as error:
            yield f"{error}; passed over, for nobody knows what it measured"
        except NotFound:
            continue


def _number(given: int) -> str:
    return "there is 1" if given == 1 else f"there are {given}"


def to_json(what: CheckpointSelection) -> dict[str, Any]:
    """For a request."""
    return dict(msgspec.to_builtins(what))


def from_json(given: object) -> CheckpointSelection:
    """Again."""
    return msgspec.convert(given, CheckpointSelection)
