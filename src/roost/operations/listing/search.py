"""Selects and sorts runs by a query (`roost.operations.listing.query`).

A key is the first of these that exists:

1. a field of `PackageSummary`: ``state`` (or ``status``), ``step``, ``best``, ``seconds`` (``90``, ``1.5h``),
   ``started`` (Unix time, or ``2026-11-21``), ``tag``, ``note``, ``starred`` (``true``, ``false``) …; or
   ``size``, the place on the disk (``1e9``, ``1.5GB``), for which packages are measured;
2. a setting, dotted: ``optimizers.main.lr``; ``*`` matches one part of it (``optimizers.*.lr``);
3. the end of a setting, if that is unambiguous: ``lr`` is ``optimizers.*.lr``, of any optimizer;
4. a metric: its newest value. A key with a ``/`` is searched among metrics before settings.

If a key has several values, one match suffices; for ``!=`` all must differ. A run without a value of the key,
or with one that is not a number where numbers are compared, does not match, except one without tags
``tag!=NAME``; in a sorted list it is last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from roost.operations import work_progress
from roost.operations.listing import term_match
from roost.operations.listing.package_row import FoundPackage, PackageSummary
from roost.operations.listing.query import SIZE, Key, parse
from roost.operations.listing.search_columns import SearchColumns


def search(
    packages: Sequence[FoundPackage], text: str, columns: SearchColumns | None = None
) -> list[FoundPackage]:
    """Returns the packages that match a query, sorted by it; without a sort key in their given order.

    Args:
        packages: All packages of their folders.
        text: The query.
        columns: Their columns; None: they are read here.

    Raises:
        UsageError: The query is not valid, or no package has one of its keys.
    """
    query = parse(text)
    columns = columns if columns is not None else SearchColumns(packages)
    values = {key.name: columns.values(key) for key in query.keys}
    found = [
        one for one in packages if all(_matches_text(one.entry.summary, word.text) for word in query.words)
    ]
    for comparison in query.comparisons:
        get, matches = values[comparison.key.name], term_match.predicate(comparison)
        found = [one for one in _track(found, comparison.key) if matches(get(one))]
    for sort_key in reversed(query.sort_keys):
        get, tracked = values[sort_key.key.name], _track(found, sort_key.key)
        found = term_match.sort_by(tracked, get, descending=sort_key.descending)
    return found


def _track(packages: Sequence[FoundPackage], key: Key) -> Iterable[FoundPackage]:
    """Returns the packages, with a report of the progress if their values of a key must be measured."""
    return work_progress.track(packages, "measuring") if key.name == SIZE else packages


def _matches_text(row: PackageSummary, text: str) -> bool:
    return text in row.name.casefold() or (row.description is not None and text in row.description.casefold())
