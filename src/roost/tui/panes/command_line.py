"""F1: the command line. It takes verbs, and answers to questions of keys: a filter, a note, yes or no."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.events import Key
from textual.message import Message
from textual.widgets import Input, Label

PROMPT = "❯"
_MAX_HISTORY = 1000


class CommandInput(Input):
    """The editable text. Up and down go through the history, Tab completes, Esc leaves."""

    def __init__(self, owner: CommandLine) -> None:
        super().__init__(id="command-input", select_on_focus=False, compact=True)
        self._owner = owner
        self.cursor_blink = False  # a blinking cursor would wake an idle client twice a second

    async def _on_key(self, event: Key) -> None:
        if self._owner.takes_key(event):
            event.stop()
            event.prevent_default()
            return
        await super()._on_key(event)


class CommandLine(Horizontal):
    """The prompt and the input."""

    class Entered(Message):
        """A line was entered.

        Attributes:
            purpose: What was asked: ``verb``, or that of `ask`.
            text: The line.
        """

        def __init__(self, purpose: str, text: str) -> None:
            super().__init__()
            self.purpose, self.text = purpose, text

    class Changed(Message):
        """The text changed while something was asked that takes effect at once, such as a filter."""

        def __init__(self, purpose: str, text: str) -> None:
            super().__init__()
            self.purpose, self.text = purpose, text

    class Left(Message):
        """Esc was pressed."""

        def __init__(self, purpose: str) -> None:
            super().__init__()
            self.purpose = purpose

    class Candidates(Message):
        """Completions to show; none: there is nothing to show."""

        def __init__(self, words: Sequence[str]) -> None:
            super().__init__()
            self.words = list(words)

    def __init__(self) -> None:
        super().__init__(id="command")
        self.purpose = "verb"
        self.history: list[str] = []
        self._place = 0
        """The position in the history; its length: a new line."""
        self._draft = ""
        self.complete: Callable[[str, int], tuple[int, Sequence[str]]] | None = None
        """Returns where the word to complete begins, and what may stand there, of a line and the position of
        the cursor."""
        self._cycle: tuple[int, list[str], int] | None = None

    def compose(self) -> ComposeResult:
        """Yields prompt and input."""
        yield Label(PROMPT, id="command-prompt", markup=False)
        yield CommandInput(self)

    @property
    def input(self) -> Input:
        """The input."""
        return self.query_one("#command-input", Input)

    def ask(self, purpose: str, prompt: str, text: str = "") -> None:
        """Asks something: shows a prompt, and takes the focus."""
        self.purpose = purpose
        self.query_one("#command-prompt", Label).update(prompt)
        self.input.value = text
        self.input.cursor_position = len(text)
        self._cycle = None
        self.input.focus()

    def open(self) -> None:
        """Takes the focus for a verb."""
        if self.purpose != "verb":
            self.ask("verb", PROMPT, self._draft)
        else:
            self.input.focus()

    def reset(self) -> None:
        """Ends a question."""
        self.purpose = "verb"
        self.query_one("#command-prompt", Label).update(PROMPT)
        self.input.value = ""
        self._place = len(self.history)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Passes the line on."""
        event.stop()
        purpose, text = self.purpose, event.value
        if purpose == "verb" and text.strip():
            if not self.history or self.history[-1] != text:
                self.history.append(text)
                del self.history[:-_MAX_HISTORY]
        self.reset()
        self._cycle = None
        self.post_message(self.Candidates(()))
        self.post_message(self.Entered(purpose, text))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Passes on what takes effect at once."""
        event.stop()
        if self.purpose != "verb":
            self.post_message(self.Changed(self.purpose, event.value))

    def takes_key(self, event: Key) -> bool:
        """Handles the keys of history, completion and leaving; returns whether it was one."""
        key = event.key
        if key != "tab" and key != "shift+tab":
            if self._cycle is not None:
                self.post_message(self.Candidates(()))
            self._cycle = None
        if key == "escape":
            purpose = self.purpose
            if purpose == "verb":
                self._draft = self.input.value
            self.reset()
            self.post_message(self.Candidates(()))
            self.post_message(self.Left(purpose))
            return True
        if self.purpose != "verb":
            if key in ("tab", "shift+tab"):
                return True
            return False
        if key in ("tab", "shift+tab"):
            self._complete(1 if key == "tab" else -1)
            return True
        if key in ("up", "ctrl+p"):
            self._recall(-1)
            return True
        if key in ("down", "ctrl+n"):
            self._recall(1)
            return True
        return False

    def _recall(self, places: int) -> None:
        if self._place == len(self.history):
            self._draft = self.input.value
        self._place = max(0, min(len(self.history), self._place + places))
        text = self._draft if self._place == len(self.history) else self.history[self._place]
        self.input.value = text
        self.input.cursor_position = len(text)

    def _complete(self, direction: int) -> None:
        if self.complete is None:
            return
        if self._cycle is None:
            position = self.input.cursor_position
            start, words = self.complete(self.input.value, position)
            if not words:
                self.post_message(self.Candidates(()))
                return
            common = _common(words)
            typed = self.input.value[start:position]
            rest = self.input.value[position:]
            if len(words) == 1:
                self._put(start, f"{words[0]} " if not words[0].endswith("/") else words[0], rest)
                return
            if len(common) > len(typed):
                self._put(start, common, rest)
                self.post_message(self.Candidates(words))
                return
            self._cycle = (start, list(words), -1 if direction > 0 else 0)
        start, words, at = self._cycle
        at = (at + direction) % len(words)
        self._put(start, words[at], "")
        self._cycle = (start, list(words), at)
        self.post_message(self.Candidates(words))

    def _put(self, start: int, word: str, rest: str) -> None:
        line = self.input.value[:start] + word
        self.input.value = line + rest
        self.input.cursor_position = len(line)


def _common(words: Sequence[str]) -> str:
    first, last = min(words), max(words)
    for place, letter in enumerate(first):
        if place >= len(last) or last[place] != letter:
            return first[:place]
    return first
