"""Replaces the ids of tasks in texts for the user: by the name where the user gave one, else by the shortest
unique prefix of the id."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from roost.lab.queue.queue_store import QueueStore
from roost.package import package_name

_ID_PATTERN = r"\b[0-9a-hjkmnp-tv-z]{26}\b"
_ID = re.compile(_ID_PATTERN)
_COMMAND_WITH_ID = re.compile(rf"(\broost \w+ )({_ID_PATTERN})")
"""A command that the user may copy: its argument must name one task, in one word."""
_WORD = re.compile(r"[\w.+-]+")


class TaskLabels:
    """The names or shortened ids of the tasks that some texts mention.

    Args:
        store: The queue.
        texts: Texts with ids of tasks.
    """

    def __init__(self, store: QueueStore, texts: Iterable[str]) -> None:
        ids = {id for text in set(texts) for id in _ID.findall(text)}
        short = store.unique_prefixes(ids) if ids else {}
        names = store.task_names(ids) if ids else {}
        self._names = {id: name for id, (name, package, _) in names.items() if _is_user_name(name, package)}
        unique = {id: name for id, name in self._names.items() if names[id][2] == 1}
        self._labels = {id: unique.get(id, f"{name} ({short[id]})") for id, name in self._names.items()}
        self._labels = {**short, **self._labels}
        self._arguments = {**short, **{id: name for id, name in unique.items() if _WORD.fullmatch(name)}}

    def replace_ids(self, text: str) -> str:
        """Returns a text with names or shortened ids in place of its ids."""
        ids = dict.fromkeys(_ID.findall(text))
        for id in ids:
            if id in self._names:
                text = text.replace(f"{self._names[id]} ({id})", self._labels[id])
        text = _COMMAND_WITH_ID.sub(lambda found: found[1] + self._arguments.get(found[2], found[2]), text)
        return _ID.sub(lambda found: self._labels.get(found[0], found[0]), text)


def _is_user_name(name: str, package: str) -> bool:
    """Whether the user gave the name: it is neither a time nor a command line."""
    return name == Path(package).name and not package_name.is_time_name(name)
