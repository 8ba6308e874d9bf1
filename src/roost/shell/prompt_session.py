"""Lines from a terminal by prompt_toolkit: history, completion with a menu, search with Ctrl-R."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from roost.shell.completion import VerbCompletion
from roost.shell.lab_connection import LabConnection
from roost.shell.shell_history import ShellHistory, history_path


class PromptCompleter(Completer):
    """`VerbCompletion` for prompt_toolkit.

    Args:
        completion: Completes lines.
    """

    def __init__(self, completion: VerbCompletion) -> None:
        self._completion = completion

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Yields the words that may stand at the cursor."""
        line = document.text_before_cursor
        for one in self._completion.complete(line):
            yield Completion(
                one.text,
                start_position=one.start - len(line),
                display=one.shown,
                display_meta=one.summary,
            )


def create(connection: LabConnection, watched: Callable[[], str | None]) -> Callable[[str], str]:
    """Returns a function that reads a line after a prompt.

    Args:
        connection: The lab, for completion.
        watched: Returns the analyzer that is watched.
    """
    session: PromptSession[str] = PromptSession(
        history=ShellHistory(history_path()),
        completer=PromptCompleter(VerbCompletion(connection, watched)),
        complete_in_thread=True,
        complete_while_typing=False,
        enable_history_search=True,
        enable_suspend=True,  # Ctrl-Z
    )
    return session.prompt
