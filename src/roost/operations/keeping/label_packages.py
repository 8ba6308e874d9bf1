"""``tag``, ``note``, ``star``: the labels of several packages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from roost.base.errors import UsageError
from roost.operations import resolve
from roost.operations.listing.list_packages import list_packages
from roost.operations.listing.named_packages import select_packages
from roost.operations.reading import package_schema
from roost.package import labels
from roost.package.labels import Labels


class LabelledPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A package with its labels."""

    path: Path
    labels: Labels


def split_tags(text: str) -> list[str]:
    """Returns the tags of ``a,b,c``.

    Raises:
        UsageError: One of them is no tag; or the text is the path of a package.
    """
    if resolve.is_package(text):
        fix = "give the tags first: roost tag baseline,lr-study PACKAGE"
        raise UsageError("is a package, not a tag", received=text, fix=fix)
    found = [one.strip() for one in text.split(",")]
    if len(found) > labels.MAX_TAGS:
        fix = f"a package has at most {labels.MAX_TAGS}"
        raise UsageError("these are too many tags", received=len(found), fix=fix)
    return [labels.checked_tag(one) for one in found if one] or [labels.checked_tag(text)]


def used_tags(folder: Path | None = None) -> list[tuple[str, int]]:
    """Returns all tags of the packages of a folder, with the number of their packages, by name."""
    return sorted(Counter(tag for row in list_packages(folder) for tag in row.tags).items())


def read(words: Sequence[str]) -> list[LabelledPackage]:
    """Returns the labels of the packages that words name; raises the errors of `select_packages`."""
    return [LabelledPackage(path=path, labels=labels.read(path)) for path in select_packages(words)]


def tag(words: Sequence[str], tags: Iterable[str], *, remove: bool = False) -> list[LabelledPackage]:
    """Adds tags to the packages that words name, or removes them, and returns their labels; raises the errors
    of `select_packages` and `change`."""
    given = list(tags)
    return change(
        select_packages(words), lambda path: (labels.remove_tags if remove else labels.add_tags)(path, given)
    )


def star(words: Sequence[str], *, starred: bool = True) -> list[LabelledPackage]:
    """Stars the packages that words name, or removes their stars, and returns their labels; raises the errors
    of `select_packages` and `change`."""
    return change(select_packages(words), lambda path: labels.set_starred(path, starred))


def note(words: Sequence[str], text: str | None) -> list[LabelledPackage]:
    """Replaces the note of the packages that words name, and returns their labels; None removes it. Raises
    the errors of `change`."""
    return change(select_packages(words), lambda path: labels.set_note(path, text))


def change(packages: Sequence[Path], update: Callable[[Path], Labels]) -> list[LabelledPackage]:
    """Changes the labels of packages; all are checked before the first is changed.

    Raises:
        NotFound: One of them is no package of roost.
        UsageError: A label is not valid.
        Refused: A newer roost has written a package, or its labels; then it and those after it are unchanged.
        OSError: Labels cannot be written.
    """
    for path in packages:
        package_schema.require_changeable(path)
    return [LabelledPackage(path=path, labels=update(path)) for path in packages]
