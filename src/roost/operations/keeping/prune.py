"""``prune``: removes checkpoints of packages, or all but their weights, on purpose."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from roost.base import safe_read
from roost.base.errors import NotFound, Refused, RoostError, UsageError
from roost.base.text.suggestions import did_you_mean
from roost.operations import work_progress
from roost.operations.keeping import refusals
from roost.operations.listing.named_packages import select_packages
from roost.package.checkpoints import checkpoint, pruning, retention, selection
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.checkpoints.pruning import Pruning
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder

KEPT = ("best", "last", "held")
"""The words of ``--keep``, besides ids."""


class PruneRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to prune, by what is kept."""

    keep: tuple[str, ...] = ()
    """``best``, ``last``, ``held`` and ids of checkpoints; empty: all. The last is kept in any case."""
    weights_only: bool = False
    """Of each checkpoint that is kept only the weights, without the state that a session continues with."""
    records_only: bool = False
    """No checkpoint and no black box."""

    @property
    def rule(self) -> str:
        """The options, as a user types them."""
        parts = [f"--keep {','.join(self.keep)}"] if self.keep else []
        parts += ["--weights-only"] if self.weights_only else []
        parts += ["--records-only"] if self.records_only else []
        return " ".join(parts)


class PlannedPruning(msgspec.Struct, frozen=True, kw_only=True):
    """The removals of a package, planned or carried out."""

    path: Path
    pruning: Pruning

    @property
    def num_bytes(self) -> int:
        """The size of the files that go."""
        return self.pruning.num_bytes

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remove."""
        return not self.pruning.removed and not self.pruning.reduced


def checked_request(keep: str | None, *, weights_only: bool, records_only: bool) -> PruneRequest:
    """Returns the request of a command line.

    Raises:
        UsageError: Nothing is requested, options contradict each other, or a word of ``--keep`` is unknown.
    """
    words = tuple(dict.fromkeys(one.strip() for one in keep.split(",") if one.strip())) if keep else ()
    for word in words:
        if word not in KEPT and not (word.isascii() and word.isdecimal()):
            fix = f"{did_you_mean(word, KEPT)}give {', '.join(KEPT)}, or ids that `roost show` lists"
            raise UsageError("is no checkpoint to keep", setting="--keep", received=word, fix=fix)
    if records_only and (words or weights_only):
        raise UsageError("--records-only keeps no checkpoint", fix="leave out the other options")
    if not words and not weights_only and not records_only:
        fix = "give --keep best,last, --weights-only or --records-only"
        raise UsageError("what is kept is not given", received=keep or "", fix=fix)
    return PruneRequest(keep=words, weights_only=weights_only, records_only=records_only)


def plan(words: Sequence[str], request: PruneRequest) -> list[PlannedPruning]:
    """Returns what pruning the packages that words name would do; nothing is changed.

    Raises:
        NotFound: A word names no package.
        UsageError: The query is not valid, or a word names a task that only reads a package.
        Refused: At least one of the packages must not be pruned, or not so; the message names each.
    """
    refusals.require_no_reader(words, verb="pruned")
    packages = list(dict.fromkeys(Path(os.path.abspath(one)) for one in select_packages(words)))  # noqa: PTH100  - keeps links
    found = refusals.find_refusals(packages)
    refused = {one.package for one in found}
    planned = []
    for path in work_progress.track(packages, "looking at packages"):
        if path in refused:
            continue
        try:
            package = PackageFolder(path)
            planned.append(PlannedPruning(path=path, pruning=plan_one(package, request)))
        except RoostError as error:
            found.append(refusals.Refusal(path, f"cannot be pruned so: {error.message}", error.fix))
    refusals.require_none(found, verb="pruned")
    return planned


def plan_one(package: PackageFolder, request: PruneRequest) -> Pruning:
    """Returns what pruning a package would do; nothing is changed.

    Raises:
        UsageError: No metric determines the best checkpoint.
        NotFound: There is no such checkpoint.
        Refused: The weights cannot be separated from the rest.
        BrokenSeal: The file of earlier prunings is not as it was written.
        OSError: The checkpoints cannot be read.
    """
    pruning.read_all(package.path)
    _require_own_checkpoints(package)
    kept = [] if request.records_only else _kept_ids(package, request.keep)
    if request.weights_only:
        _require_separable(package, kept)
    return pruning.plan(
        package,
        rule=request.rule,
        kept=kept,
        weights_only=request.weights_only,
        black_boxes=request.records_only,
    )


def _require_own_checkpoints(package: PackageFolder) -> None:
    """Checks that the checkpoints are not those of another package, by a link.

    Raises:
        Refused: They are.
    """
    folders = [one for one in (package.checkpoints, package.blackbox) if one.is_dir()]
    inside = [checkpoint.checkpoint_folder(one, id) for one in folders for id in checkpoint.ids(one)]
    for link in (one for one in (*folders, *inside) if one.is_symlink()):
        owner = next((one for one in link.resolve().parents if (one / "request.json").is_file()), None)
        if owner is not None:
            raise Refused(f"its {link.name} is a link to {owner}", fix="prune that package")


def _kept_ids(package: PackageFolder, words: Sequence[str]) -> list[int]:
    """Returns the ids of the checkpoints that words keep, and of the newest one, which `continue` loads."""
    if not package.checkpoints.is_dir():
        return []
    if not words:
        return checkpoint.ids(package.checkpoints)
    line = package.store().lineage()
    if not line and checkpoint.ids(package.checkpoints):
        raise Refused("its newest checkpoint is damaged", fix="`roost verify` says how")
    kept = {line[-1].id} if line else set()
    for word in words:
        kept |= _named_ids(package, line, word)
    return sorted(kept)


def _named_ids(package: PackageFolder, line: Sequence[Manifest], word: str) -> set[int]:
    if word == "held":
        return {one.id for one in checkpoint.read_manifests(package.checkpoints) if one.held}
    if word == "best":
        rules = selection.best_rules(package)
        if not rules:
            message = "no metric determines the best checkpoint: its checkpoint.best is empty"
            raise UsageError(message, fix="keep last, or ids: --keep last,3")
        return {one.id for rule in rules for one in retention.best_checkpoints(line, rule)[:1]}
    if word == "last":
        return set()
    package.store().path(int(word))
    return {int(word)}


def _require_separable(package: PackageFolder, kept: Sequence[int]) -> None:
    """Checks that the weights of checkpoints are files of their own.

    Raises:
        Refused: They are not, or the averages of weights would go, too.
    """
    fix = "keep fewer checkpoints instead: --keep best,last"
    kind = PackageKind.of(package.request)
    if kept and kind is not PackageKind.TRAIN:
        raise Refused(
            f"in a package of kind {kind} the weights are stored with the rest of the state", fix=fix
        )
    for id in kept:
        path = checkpoint.checkpoint_folder(package.checkpoints, id)
        manifest = checkpoint.read_manifest(path)
        if pruning.MODEL_PART not in checkpoint.part_names(manifest):
            raise Refused(f"checkpoint {id} has no part {pruning.MODEL_PART!r}", fix=fix)
        if "trainer.json" in manifest.files and b'"average/' in safe_read.read(path / "trainer.json"):
            raise Refused(
                f"checkpoint {id} has averages of its weights, stored with the state of the trainer",
                fix=f"{fix}, or export them first: roost export PACKAGE --weights FILE --averaged NAME",
            )


def prune(planned: Sequence[PlannedPruning], request: PruneRequest) -> Iterator[PlannedPruning]:
    """Prunes packages, and yields what was done to each. It is planned again under the package's lock, which
    keeps a session from beginning meanwhile; the checkpoints that are kept are compared with their digests
    first.

    Raises:
        NotFound: A package was removed since it was planned.
        Refused: A package is in use since then.
        Damaged: A checkpoint that is kept has other bytes than were written; nothing was removed from its
            package.
        OSError: A file cannot be written or removed; see `pruning.carry_out`.
    """
    dependents = refusals.Dependents([one.path for one in planned])
    for one in work_progress.track(planned, "pruning"):
        package = PackageFolder(one.path)
        with refusals.locked(package, dependents, verb="pruned"):
            pruning.finish_interrupted(package)
            new = plan_one(package, request)
            done = PlannedPruning(path=one.path, pruning=new)
            if not done.is_empty:
                _verify_kept(package, new)
                pruning.carry_out(package, new)
            yield done


def _verify_kept(package: PackageFolder, new: Pruning) -> None:
    if not package.checkpoints.is_dir():
        return
    for id in checkpoint.ids(package.checkpoints):
        path = checkpoint.checkpoint_folder(package.checkpoints, id)
        if path.relative_to(package.path).as_posix() not in new.removed:
            try:
                checkpoint.verify(path)
            except NotFound:
                continue
