"""What the lab says of its tasks, as people read it: by their names, where somebody has named them, else by
no more of an id than tells the task from all others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from roost.lab.queue.queue_store import Store
from roost.package import package_name

_ID_PATTERN = r"\b[0-9a-hjkmnp-tv-z]{26}\b"
_ID = re.compile(_ID_PATTERN)
_COMMAND_WITH_ID = re.compile(rf"(\broost \w+ )({_ID_PATTERN})")
"""A command that somebody may copy: it names one task, in one word."""
_WORD = re.compile(r"[\w.+-]+")


class TaskLabels:
    """What people read for the tasks that texts report of.

    Args:
        store: The queue.
        texts: With ids in them.
    """

    def __init__(self, store: Store, texts: Iterable[str]) -> None:
        ids = {id for text in set(texts) for id in _ID.findall(text)}
        short = store.beginnings(ids) if ids else {}
        called = store.called(ids) if ids else {}
        self._names = {id: name for id, (name, package, _) in called.items() if _is_user_name(name, package)}
        alone = {id: name for id, name in self._names.items() if called[id][2] == 1}
        self._said = {id: alone.get(id, f"{name} ({short[id]})") for id, name in self._names.items()}
        self._said = {**short, **self._said}
        self._typed = {**short, **{id: name for id, name in alone.items() if _WORD.fullmatch(name)}}

    def said(self, text: str) -> str:
        """A text with names for its ids, or with what suffices of them."""
        ids = dict.fromkeys(_ID.findall(text))
        for id in ids:
            if id in self._names:
                text = text.replace(f"{self._names[id]} ({id})", self._said[id])
        text = _COMMAND_WITH_ID.sub(lambda found: found[1] + self._typed.get(found[2], found[2]), text)
        return _ID.sub(lambda found: self._said.get(found[0], found[0]), text)


def _is_user_name(name: str, package: str) -> bool:
    """Not by its time, nor by its command line."""
    return name == Path(package).name and not package_name.is_time_name(name)
