"""Checkpoints selected on a command line: one by its id, the newest, the best, or several of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from roost.base.errors import CheckpointError, Damaged, NotFound, UsageError
from roost.base.text.suggestions import did_you_mean
from roost.package.checkpoints import checkpoint, retention
from roost.package.checkpoints.retention import BestRule
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder

T = TypeVar("T")


class CheckpointSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The selected checkpoints of a package: by id, the last or the best ``count``."""

    kind: Literal["id", "last", "best"] = "last"
    id: int | None = None
    count: int = 1
    rule: BestRule | None = None
    """The metric and mode of ``best``."""

    def __str__(self) -> str:
        return f"checkpoint {self.id}" if self.kind == "id" else f"{self.kind}:{self.count}"


def parse_selection(
    package: PackageFolder,
    checkpoint: str | None = None,
    *,
    average: str | None = None,
    monitor: str | None = None,
    mode: str | None = None,
    setting: str | None = None,
) -> CheckpointSelection:
    """Parses the options that select checkpoints; `candidates` checks whether they exist.

    Args:
        package: The package.
        checkpoint: ``last``, ``best`` or an id; None: ``last``.
        average: ``last:K`` or ``best:K``.
        monitor: The metric of ``best``; None: that of the first rule of ``checkpoint.best``.
        mode: ``min`` or ``max``; None: as in ``checkpoint.best``, else ``min``.
        setting: The option that messages name; None: ``-c`` or ``--average``.

    Raises:
        UsageError: An option is malformed, or the options contradict each other.
    """
    if checkpoint is not None and average is not None:
        raise UsageError(
            "-c selects one checkpoint, --average several", received=checkpoint, fix="leave out one of them"
        )
    if average is not None:
        kind, count, id = _parse_several(average, setting or "--average")
    else:
        kind, count, id = _parse_one(checkpoint or "last", setting or "-c")
    if kind != "best" and (monitor is not None or mode is not None):
        raise UsageError(
            "applies only to the best checkpoints",
            setting="--monitor" if monitor is not None else "--mode",
            received=monitor if monitor is not None else mode,
            fix="give -c best or --average best:K, or leave it out",
        )
    rule = _best_rule(package, monitor, mode) if kind == "best" else None
    return CheckpointSelection(kind=kind, id=id, count=count, rule=rule)


def checkpoint_id(package: PackageFolder, word: str | int | None) -> int | None:
    """Returns the id of the checkpoint that a word names, an id whether or not it exists; None for the newest
    good one.

    Args:
        package: The package.
        word: ``last``, ``best`` or an id; None: ``last``.

    Raises:
        UsageError: It is another word, or no metric determines the best checkpoint.
        NotFound: No checkpoint has the metric that determines the best one.
    """
    if word == "best" and not best_rules(package):  # the commands with such a word have no --monitor
        raise UsageError(_NO_BEST_RULE, fix="give last, or the id of a checkpoint: `roost show` lists them")
    selected = parse_selection(package, None if word is None else str(word))
    return candidates(package, selected)[0] if selected.kind == "best" else selected.id


_NO_BEST_RULE = "no metric determines the best checkpoint: the package's checkpoint.best is empty"
_Parsed = tuple[Literal["id", "last", "best"], int, int | None]


def _parse_one(word: str, setting: str) -> _Parsed:
    if word in ("last", "best"):
        return word, 1, None  # type: ignore[return-value]
    if word.isascii() and word.isdecimal():
        return "id", 1, int(word)
    fix = f"{did_you_mean(word, ['last', 'best'])}give last, best or the id that `roost show` lists"
    raise UsageError("not a checkpoint", setting=setting, received=word, fix=fix)


def _parse_several(words: str, setting: str) -> _Parsed:
    kind, _, count = words.partition(":")
    if kind not in ("last", "best") or not count.isdecimal() or int(count) < 1:
        fix = "give last:K or best:K with K of 1 or more, such as best:3"
        raise UsageError("not a selection of several checkpoints", setting=setting, received=words, fix=fix)
    return kind, int(count), None  # type: ignore[return-value]


def _best_rule(package: PackageFolder, monitor: str | None, mode: str | None) -> BestRule:
    known = best_rules(package)
    if monitor is not None:
        same = next((rule.mode for rule in known if rule.monitor == monitor), "min")
        return BestRule(monitor=monitor, mode=mode or same)
    if not known:
        raise UsageError(_NO_BEST_RULE, fix="name one: --monitor valid/loss --mode min")
    return known[0] if mode is None else msgspec.structs.replace(known[0], mode=mode)


def best_rules(package: PackageFolder) -> list[BestRule]:
    """Returns the rules by which a run's checkpoints are the best: the entries of its ``checkpoint.best``."""
    if PackageKind.of(package.request) is PackageKind.DLNEST:
        return []  # there ``checkpoint`` is a key of the user, and no metric decides
    section = package.settings.get("checkpoint")
    given = section.get("best") if isinstance(section, Mapping) else None
    return [
        BestRule(monitor=one["monitor"], mode=str(one.get("mode", "min")))
        for one in (given if isinstance(given, list) else [])
        if isinstance(one, Mapping) and isinstance(one.get("monitor"), str)
    ]


def first_best_rule(package: PackageFolder) -> BestRule | None:
    """Returns the first of the rules, which decides; None without one."""
    return next(iter(best_rules(package)), None)


def candidates(package: PackageFolder, selection: CheckpointSelection) -> list[int]:
    """Returns ids of checkpoints of the run's lineage, the preferred first, possibly more than
    `CheckpointSelection.count`.

    Raises:
        NotFound: No checkpoint matches.
    """
    store = package.store()
    if selection.kind == "id":
        assert selection.id is not None
        store.path(selection.id)
        return [selection.id]
    if selection.kind == "last":
        found = store.candidates()
    else:
        found = _best_ids(package, selection)
    if not found:
        raise NotFound("the package has no checkpoint", where=package.path, fix="wait for the first one")
    return found


def _best_ids(package: PackageFolder, selection: CheckpointSelection) -> list[int]:
    assert selection.rule is not None
    lineage = package.store().lineage()
    found = retention.best_checkpoints(lineage, msgspec.structs.replace(selection.rule, top_k=len(lineage)))
    if lineage and not found:
        known = sorted({name for manifest in lineage for name in manifest.metrics})
        has = f"give one of {', '.join(known)}" if known else "use last: the checkpoints have no metrics"
        raise NotFound(
            "no checkpoint has a value of this metric, measured at its own step",
            setting="--monitor",
            received=selection.rule.monitor,
            fix=f"{did_you_mean(selection.rule.monitor, known)}{has}",
        )
    return [manifest.id for manifest in found]


def load_each(
    package: PackageFolder, selection: CheckpointSelection, load: Callable[[Path], T], notes: list[str]
) -> Iterator[T]:
    """Loads the selected checkpoints one after the other, the preferred first.

    A damaged one is skipped and replaced by the next candidate, unless it was selected by id. Nothing on the
    disk is changed. A run that continues meanwhile may remove the checkpoint being read: then the candidates
    are listed again.

    Args:
        package: The package.
        selection: The selected checkpoints.
        load: Reads one checkpoint, and raises `Damaged` if its bytes are not those that were written.
        notes: Receives a line for each checkpoint that was skipped, and one if there are fewer than
            requested.

    Raises:
        NotFound: No checkpoint matches.
        CheckpointError: None of them is good; or any error of ``load``.
    """
    if selection.kind == "best":
        notes += _damaged_manifests(package)
    tried: set[int] = set()
    given = 0
    while given < selection.count and (
        waiting := [id for id in candidates(package, selection) if id not in tried]
    ):
        for id in waiting:
            tried.add(id)
            path = checkpoint.checkpoint_folder(package.checkpoints, id)
            try:
                loaded = load(path)
            except (Damaged, NotFound, FileNotFoundError) as error:
                is_gone = not path.exists()
                if selection.kind == "id" or not (is_gone or isinstance(error, Damaged)):
                    raise
                if is_gone:  # its run has just removed it: there is a newer one
                    break
                notes.append(f"{error}; skipped, trying the next one")
                continue
            given += 1
            yield loaded
            if given == selection.count:
                break
    if not given:
        raise CheckpointError(
            f"no good checkpoint is left: {'; '.join(notes) or 'its run has removed them all'}",
            where=package.path,
            fix="try again, or restore a good copy of one under its name",
        )
    if given < selection.count:
        notes.append(f"{selection} requests {selection.count} checkpoints, but {_number(given)}")


def _damaged_manifests(package: PackageFolder) -> Iterator[str]:
    """A line for each checkpoint with a damaged manifest, which might have been the best."""
    for id in checkpoint.ids(package.checkpoints):
        path = checkpoint.checkpoint_folder(package.checkpoints, id)
        try:
            checkpoint.read_manifest(path)
        except CheckpointError as error:
            yield f"{error}; skipped, because its metrics are unknown"
        except NotFound:
            continue


def _number(given: int) -> str:
    return "there is 1" if given == 1 else f"there are {given}"


def to_json(selection: CheckpointSelection) -> dict[str, Any]:
    """Returns a selection as plain data, for a request file."""
    return dict(msgspec.to_builtins(selection))


def from_json(given: object) -> CheckpointSelection:
    """Returns the selection of a request file."""
    return msgspec.convert(given, CheckpointSelection)
