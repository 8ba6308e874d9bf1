"""A set that is evaluated: the ids and the groups of its samples, and the fixed division into batches."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from roost.base.errors import ContractError, NotFound
from roost.base.text.suggestions import did_you_mean
from roost.config.settings import Settings, Where
from roost.package.results.evaluations.row_columns import NO_LABEL, is_unicode
from roost.project import data_loaders
from roost.project.batch_plans import describe_set, no_location
from roost.project.contract import Data
from roost.train.data.batches import Batches
from roost.train.data.loader import Loader
from roost.train.data.plans.batch_plan import Draw
from roost.train.data.sample_labels import plain_value, sample_column

Id = int | float | str
_MAX_NAMED = 5


@dataclass(frozen=True)
class EvaluatedSet:
    """The samples of a set in the order of its batches."""

    name: str
    """Such as ``test`` or ``test/clean``."""
    batches: Batches
    ids: Sequence[Id]
    """A ``range`` where the ids are the indices of the whole set."""
    groups: Mapping[str, Sequence[str]]
    """A label for each sample, by the name of the group."""
    sizes: Sequence[int]
    """The number of samples of each batch."""
    dataset: Any = None
    """The set, if it has indices."""
    indices: Sequence[int] = ()
    """The index of each sample in it."""
    notes: Sequence[str] = ()
    """Remarks for the user."""

    def sample(self, position: int) -> Any:
        """Returns a sample as the set gives it; None for a set without indices."""
        return None if self.dataset is None else self.dataset[int(self.indices[position])]

    def firsts(self) -> list[int]:
        """Returns the position of the first sample of each batch."""
        return [0, *itertools.accumulate(self.sizes)][:-1]

    def digest(self) -> str:
        """Returns a digest of the ordered ids and their groups."""
        found = hashlib.sha256()
        if isinstance(self.ids, range):
            found.update(f"{self.ids}".encode())
        else:
            found.update(msgspec.json.encode(list(self.ids)))
        for name, labels in sorted(self.groups.items()):
            found.update(msgspec.json.encode([name, list(labels)]))
        return found.hexdigest()


def chosen_sets(data: Data, names: Sequence[str] | None) -> list[str]:
    """Returns the names of the sets to evaluate.

    Args:
        data: The sets of the run.
        names: As typed: ``test``, ``test/clean``, ``valid``, or ``clean`` for ``test/clean``; None: all test
            sets.

    Raises:
        NotFound: There is no such set, or no test set.
    """
    known = list(data_loaders.named_sets(data))
    if names is None:
        if found := [name for name in known if name.partition("/")[0] == "test"]:
            return found
        raise NotFound(
            "the run has no test set",
            setting="--datasets",
            received=None,
            fix=f"return one from Dataset.build(), or name another set: {', '.join(known)}",
        )
    chosen: dict[str, None] = {}
    for name in names:
        of_split = [one for one in known if one.partition("/")[0] == name and one != name]
        exact = name if name in known else f"test/{name}" if f"test/{name}" in known else None
        if exact is None and not of_split:
            short = [one.removeprefix("test/") for one in known]
            raise NotFound(
                "there is no such set",
                setting="--datasets",
                received=name,
                fix=f"{did_you_mean(name, short)}name one of {', '.join(known)}",
            )
        chosen.update(dict.fromkeys(of_split if exact is None else [exact]))
    return list(chosen)


def open_set(
    data: Data, settings: Settings, name: str, *, device: Any, where: Where = no_location
) -> EvaluatedSet:
    """Returns a set with its ids, groups and batches.

    Args:
        data: The sets of the run.
        settings: Its settings, which determine the batches.
        name: As in `data_loaders.named_sets`.
        device: The device of the batches.
        where: Returns where a setting was set, for messages.

    Raises:
        ContractError: Ids occur twice, or there are not as many ids or labels as samples.
        ConfigError: A setting does not fit the set.
    """
    dataset = data_loaders.named_sets(data)[name]
    batches = data_loaders.evaluation_loader(data, settings, name, device=device, where=where)
    notes: list[str] = []
    if isinstance(batches, Loader):
        drawn = [draws.indices for draws in batches.plan.batches(0) if isinstance(draws, Draw)]
        sizes = [len(one) for one in drawn]
        indices = np.fromiter(itertools.chain.from_iterable(drawn), np.int64, sum(sizes))
    else:
        # The batches of a set without indices are known only after reading it, and the plan comes first.
        notes.append(f"{describe_set(name)} has no indices: it is read once to fix its batches")
        with closing(batches.once()) as passing:
            sizes = [one.num_samples for one in passing]
        indices = np.arange(sum(sizes))
    is_whole = bool((indices == np.arange(len(indices))).all())
    has_indices = isinstance(batches, Loader)
    whole = len(dataset) if has_indices else None
    ids = _ids(dataset, name, indices, whole, is_whole=is_whole)
    groups = dict(_groups(dataset, name, indices, whole, notes))
    return EvaluatedSet(
        name,
        batches,
        ids,
        groups,
        sizes,
        dataset=dataset if has_indices else None,
        indices=range(len(indices)) if is_whole else indices.tolist(),
        notes=notes,
    )


def _ids(
    dataset: Any, name: str, indices: np.ndarray[Any, Any], whole: int | None, *, is_whole: bool
) -> Sequence[Id]:
    given = sample_column(dataset, "ids")
    if given is None:
        return range(len(indices)) if is_whole else indices.tolist()
    found = [_plain_id(one, name) for one in _chosen(given, indices, whole, name, "ids")]
    seen: set[Id] = set()
    twice: dict[str, Id] = {}
    for one in found:  # 1 and "1" would be one file name, and one word of a command; 1 and 1.0 are equal
        if one in seen or str(one) in seen:
            twice[str(one)] = one
        seen |= {one, str(one)}
    if twice:
        named = ", ".join(repr(one) for one in list(twice.values())[:_MAX_NAMED])
        more = f" and {len(twice) - _MAX_NAMED:,} more" if len(twice) > _MAX_NAMED else ""
        raise ContractError(
            f"the ids of {describe_set(name)} are not unique: {named}{more}",
            setting="ids",
            fix="give each sample an id of its own, or leave out `ids`: the index is the id then",
        )
    if any(isinstance(one, float) for one in found):  # then the column of the ids has floats alone
        inexact = next((one for one in found if isinstance(one, int) and not _is_float(one)), None)
        if inexact is not None:
            raise ContractError(
                f"the ids of {describe_set(name)} are floats and a whole number that no float equals",
                setting="ids",
                received=inexact,
                fix="give whole numbers alone, or texts",
            )
    return found


def _is_float(value: int) -> bool:
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def _plain_id(value: Any, name: str) -> Id:
    plain = plain_value(value)
    if isinstance(plain, str) and is_unicode(plain):
        return plain
    if isinstance(plain, int | float) and not isinstance(plain, bool) and -math.inf < plain < math.inf:
        return plain
    raise ContractError(
        f"an id of {describe_set(name)} is neither a text nor a finite number",
        setting="ids",
        received=value,
        fix="give texts or numbers",
    )


def _groups(
    dataset: Any, name: str, indices: np.ndarray[Any, Any], whole: int | None, notes: list[str]
) -> Iterator[tuple[str, Sequence[str]]]:
    given = sample_column(dataset, "groups")
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise ContractError(
            f"the groups of {describe_set(name)} are no mapping",
            setting="groups",
            received=type(given).__name__,
            fix='write groups = {"speaker": [a label for each sample]}',
        )
    for group, labels in given.items():
        what = f"groups[{group!r}]"
        if not isinstance(group, str):
            raise ContractError(
                f"a group of {describe_set(name)} has a name that is no text",
                setting=what,
                fix="give it a text",
            )
        found = [_label(one, name, what) for one in _chosen(labels, indices, whole, name, what)]
        if missing := found.count(NO_LABEL):
            samples = "1 sample" if missing == 1 else f"{missing:,} samples"
            notes.append(f"{samples} of {describe_set(name)} without a {group}: counted as {NO_LABEL}")
        yield group, found


def _label(value: Any, name: str, what: str) -> str:
    plain = plain_value(value)
    if not isinstance(plain, str | int | float | None) or not is_unicode(str(plain)):
        raise ContractError(
            f"a label of {describe_set(name)} is neither a text nor a number",
            setting=what,
            received=value,
            fix="give texts or numbers",
        )
    is_missing = plain is None or plain == "" or plain != plain
    return NO_LABEL if is_missing else str(plain)


def _chosen(values: Any, indices: np.ndarray[Any, Any], whole: int | None, name: str, what: str) -> list[Any]:
    """Returns the values of the samples at these indices; ``whole`` is the length of the set, if it has
    one."""
    fix = "give one for each sample, in the order of the set"
    if isinstance(values, str | bytes | Mapping | Set) or not isinstance(values, Iterable):
        kind = type(values).__name__
        raise ContractError(
            f"{describe_set(name)} has {what} that are no list", setting=what, received=kind, fix=fix
        )
    listed = values if isinstance(values, list) else list(values)
    most = int(indices.max()) + 1 if len(indices) else 0
    if len(listed) < most or (whole is not None and len(listed) > whole):
        has = f"at least {most:,}" if whole is None else f"{whole:,}"
        raise ContractError(
            f"{describe_set(name)} has {has} samples, and {len(listed):,} {what}", setting=what, fix=fix
        )
    return [listed[index] for index in indices.tolist()]
