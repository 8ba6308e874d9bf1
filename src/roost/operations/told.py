"""What the lab says of its tasks, as people read it: no more of an id than tells the task from all others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_ID = re.compile(r"\b[0-9a-hjkmnp-tv-z]{26}\b")


def ids_in(texts: Iterable[str]) -> set[str]:
    """The ids of tasks that stand in texts."""
    return {id for text in set(texts) for id in _ID.findall(text)}


def shortened(text: str, short: Mapping[str, str]) -> str:
    """A text with what suffices of each id.

    Args:
        text: What was said.
        short: That, by id; an id that is not there stays.
    """
    return _ID.sub(lambda found: short.get(found[0], found[0]), text)
