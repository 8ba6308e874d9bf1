"""The reasons why a run cannot be repeated bit for bit."""

from __future__ import annotations

from collections.abc import Iterable

from roost.train.distributed.ranks import Ranks


class InexactReasons:
    """The reasons of all sessions of a run. A session prints each of its own once, on rank 0."""

    def __init__(self, ranks: Ranks) -> None:
        self._is_main = ranks.is_main
        self.texts: list[str] = []
        """In the order in which they were noted, each once."""
        self._printed: set[str] = set()

    def note(self, reason: str) -> None:
        """Prints and records a reason, unless this session has printed it."""
        if reason not in self.texts:
            self.texts.append(reason)
        if reason not in self._printed:
            self._printed.add(reason)
            if self._is_main:
                print(f"inexact: {reason}", flush=True)

    def load(self, saved: Iterable[str]) -> None:
        """Puts the reasons of earlier sessions first. They need not hold in this session: the new ones are
        printed in one line, and recorded."""
        saved = list(saved)
        earlier = [reason for reason in saved if reason not in self.texts]
        if earlier and self._is_main:
            print(f"inexact in earlier sessions: {'; '.join(earlier)}", flush=True)
        self.texts = list(dict.fromkeys([*saved, *self.texts]))
