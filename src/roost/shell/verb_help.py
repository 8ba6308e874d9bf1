"""The texts of the verb ``help``."""

from __future__ import annotations

from collections.abc import Iterator

from roost.display import table
from roost.shell.verbs import VERBS, Verb


def list_verbs() -> Iterator[str]:
    """Yields a line for each verb."""
    yield from table.format_table(("", ""), [(verb.name, verb.summary) for verb in VERBS])[1:]
    yield "`help VERB` explains one; Tab completes"


def explain_verb(verb: Verb) -> Iterator[str]:
    """Yields the lines about a verb: how it is written, its parameters, and examples."""
    yield verb.usage
    yield f"  {verb.summary}"
    if verb.parameters:
        yield ""
        rows = [(f"{one.written} {one.shown}".rstrip(), one.summary) for one in verb.parameters]
        yield from (f"  {line}" for line in table.format_table(("", ""), rows)[1:])
    for note in verb.notes:
        yield f"  {note}"
    if verb.aliases:
        yield f"  also written {', '.join(verb.aliases)}"
    yield ""
    yield from (f"  {one}" for one in verb.examples)
