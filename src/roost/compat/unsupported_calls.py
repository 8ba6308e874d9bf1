"""What another tool offers and roost does not: named once, on stderr, and never an error of a training."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any


class Unsupported:
    """Says once by name what is not recorded.

    Args:
        source: The name of the replaced tool, with which each line begins.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._said: set[str] = set()

    def say(self, name: str, what: str) -> None:
        """Prints ``source: name what``, unless that was printed for this name before."""
        if name not in self._said:
            self._said.add(name)
            print(f"{self._source}: {name} {what}", file=sys.stderr, flush=True)

    def placeholder(self, name: str) -> Placeholder:
        """Says that ``name`` has no counterpart; returns an object that accepts every use."""
        self.say(name, "has no counterpart in roost: nothing is recorded")
        return Placeholder()


class Placeholder:
    """An object without a counterpart in roost: every call, attribute and item of it is one, too."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy, pickle and NumPy ask for these
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self

    def __getitem__(self, key: Any) -> Any:
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __enter__(self) -> Placeholder:
        return self

    def __exit__(self, *error: object) -> None:
        pass
