"""A walk from one thing to the next, each told in a line when it is done."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

from roost.package.checked import Line, Thing, Writer


class Walk:
    """Tells what is done and how long it took, and writes it down for the operation.

    A thing that is done several times is told the first time alone.

    Args:
        package: The folder of the package that is walked through.
    """

    def __init__(self, package: Path) -> None:
        self._writer = Writer(package)
        self._name, self._since = "", 0.0
        self._told: set[str] = set()
        self.seconds: dict[str, float] = {}
        """What each thing took, all its times together."""

    def begin(self, name: str) -> None:
        """Begins a thing; what was begun before is dropped."""
        self.drop()
        self._name, self._since = name, perf_counter()
        self._writer.write(Line(thing=Thing(name=name, state="begun")))

    def drop(self) -> None:
        """Ends the thing without a word: there was nothing to do, or it goes on later."""
        if self._name:
            self.seconds[self._name] = self._took() + self.seconds.get(self._name, 0.0)
        self._name = ""

    def done(self, seen: str = "") -> None:
        """Ends the thing and tells it."""
        name = self._name
        self.drop()
        self.tell(name, seen)

    def tell(self, name: str, seen: str = "", *, seconds: float | None = None) -> None:
        """Tells a thing, with the time that it has taken."""
        if name not in self._told:
            self._told.add(name)
            took = self.seconds.get(name, 0.0) if seconds is None else seconds
            self._say(Thing(name=name, state="done", seconds=round(took, 6), seen=seen))

    def fail(self) -> None:
        """Ends the thing: whatever is raised next is why."""
        if self._name:
            self._say(Thing(name=self._name, state="failed", seconds=round(self._took(), 6)))
        self._name = ""

    def warn(self, text: str, *, is_told: bool = False) -> None:
        """A thing that the run would do badly, and go on.

        Args:
            text: In one line.
            is_told: Somebody has printed it already.
        """
        if not is_told:
            print(f"warning: {text}", flush=True)
        self._writer.write(Line(warning=text))

    def measured(self, **values: Any) -> None:
        """Writes down numbers for the operation."""
        self._writer.write(Line(measured=values))

    def _took(self) -> float:
        return perf_counter() - self._since

    def _say(self, thing: Thing) -> None:
        seen = "failed" if thing.state == "failed" else thing.seen
        print(f"{thing.name:<11}{thing.seconds:8.2f} s  {seen}".rstrip(), flush=True)
        self._writer.write(Line(thing=thing))
