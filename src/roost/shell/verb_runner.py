"""`VerbRunner`: carries out what a person types, and returns what there is to show."""

from __future__ import annotations

from collections.abc import Iterator

from roost.shell.lab_connection import LabConnection
from roost.shell.verbs import ParsedVerb, parse


class VerbRunner:
    """Carries out verbs on a lab.

    Args:
        connection: The lab.
        watched: The analyzer that ``watch`` has chosen, by its label or id.
        follows: Whether ``runExp`` shows the output of the script until it ends; without it the output is
            shown elsewhere, or by ``showAN``.
        is_read_only: Whether verbs that change something are refused.
        width: The characters of a line, for tables; None: as many as needed.

    Attributes:
        watched: The watched analyzer; None: none is.
        wants_exit: Whether ``exit`` was typed.
    """

    def __init__(
        self,
        connection: LabConnection,
        watched: str | None = None,
        *,
        follows: bool = True,
        is_read_only: bool = False,
        width: int | None = None,
    ) -> None:
        self.connection, self.watched = connection, watched
        self.follows, self.is_read_only, self.width = follows, is_read_only, width
        self.wants_exit = False

    def run(self, line: str) -> Iterator[str]:
        """Carries out a line, and yields what to show: pieces of text, with line ends, that may be written to
        a terminal as they are. Their only control sequences are colours. Leaving the iteration early, as by
        Ctrl-C, leaves the lab as it is, but interrupts the script that a ``runExp`` follows.

        Raises:
            RoostError: The line is wrong, or its operation failed; nothing else changes.
        """
        found = parse(line)
        if found is not None:
            yield from self.run_parsed(found)

    def run_parsed(self, found: ParsedVerb) -> Iterator[str]:
        """Carries out a parsed line, as `run` does."""
        raise NotImplementedError
