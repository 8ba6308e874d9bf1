"""F1: the command line. It takes verbs, and answers to questions of keys: a filter, a note, yes or no."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.events import Key, Paste
from textual.widgets import Input, Label

PROMPT = "❯"
_MAX_HISTORY = 1000


class CompletionWord(NamedTuple):
    """A word that may stand at the end of a line."""

    start: int
    """Where it begins in the line."""
    text: str
    shown: str
    """As in a list of words."""


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
        # Textual looks for the action of a key, such as Backspace, only after the key has gone up to the app:
        # a letter that was typed later would be there before it.
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            event.stop()
            event.prevent_default()
            await self.run_action(binding.action)
            self._owner.text_changed()
            return
        await super()._on_key(event)
        self._owner.text_changed()

    def _on_paste(self, event: Paste) -> None:
        super()._on_paste(event)
        event.prevent_default()
        self._owner.text_changed()


class CommandListener(Protocol):
    """Gets what is typed, at once: a message would come after keys that follow, which depend on it."""

    def line_entered(self, purpose: str, text: str) -> None:
        """Enter: a line, and what was asked: ``verb``, or that of `CommandLine.ask`."""

    def line_changed(self, purpose: str, text: str) -> None:
        """The text changed while something was asked that takes effect at once, such as a filter."""

    def line_left(self, purpose: str) -> None:
        """Esc was pressed."""

    def show_candidates(self, words: Sequence[str]) -> None:
        """Shows completions; none: there is nothing to show."""


class CommandLine(Horizontal):
    """The prompt and the input."""

    def __init__(self, listener: CommandListener) -> None:
        super().__init__(id="command")
        self._listener = listener
        self.purpose = "verb"
        self.history: list[str] = []
        self._place = 0
        """The position in the history; its length: a new line."""
        self._draft = ""
        self.request_words: Callable[[str], None] | None = None
        """Asks for the words that may stand at the end of a line; `offer` gets them."""
        self.remember: Callable[[str], None] = lambda line: None
        """Stores a line for later clients and shells."""
        self._cycle: tuple[list[CompletionWord], str, int] | None = None
        """The words, what follows the cursor, and the number of the chosen one."""

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
        self.screen.set_focus(self.input)  # at once: `focus` would wait, and the next key go elsewhere

    def open(self) -> None:
        """Takes the focus for a verb."""
        if self.purpose != "verb":
            self.ask("verb", PROMPT, self._draft)
        else:
            self.screen.set_focus(self.input)

    def reset(self) -> None:
        """Ends a question."""
        self.purpose = "verb"
        self.query_one("#command-prompt", Label).update(PROMPT)
        self.input.value = ""
        self._place = len(self.history)

    def _enter(self) -> None:
        """Passes the line on."""
        purpose, text = self.purpose, self.input.value
        if purpose == "verb" and text.strip() and self.history[-1:] != [text]:
            self.history.append(text)
            del self.history[:-_MAX_HISTORY]
            self.remember(text)
        self.reset()
        self._cycle = None
        self._listener.show_candidates(())
        self._listener.line_entered(purpose, text)

    def add_history(self, lines: Sequence[str]) -> None:
        """Adds lines of former clients and shells, the oldest first."""
        is_new = self._place == len(self.history)
        self.history[:0] = lines[-_MAX_HISTORY:]
        self._place = len(self.history) if is_new else self._place + len(lines)

    def text_changed(self) -> None:
        """Passes on what takes effect at once."""
        if self.purpose != "verb":
            self._listener.line_changed(self.purpose, self.input.value)

    def takes_key(self, event: Key) -> bool:
        """Handles Enter and the keys of history, completion and leaving; returns whether it was one."""
        key = event.key
        if key != "tab" and key != "shift+tab":
            if self._cycle is not None:
                self._listener.show_candidates(())
            self._cycle = None
        if key == "escape":
            purpose = self.purpose
            if purpose == "verb":
                self._draft = self.input.value
            self.reset()
            self._listener.show_candidates(())
            self._listener.line_left(purpose)
            return True
        if key == "enter":
            self._enter()
            return True
        if self.purpose != "verb":
            return key in ("tab", "shift+tab")
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
        if self._cycle is None:
            if self.request_words is not None:
                self.request_words(self.input.value[: self.input.cursor_position])
            return
        words, rest, at = self._cycle
        at = (at + direction) % len(words)
        self._put(words[at], rest)
        self._cycle = (words, rest, at)
        self._listener.show_candidates([one.shown for one in words])

    def offer(self, line: str, words: Sequence[CompletionWord]) -> None:
        """Completes a line with the words that may stand at its end, as a shell does: the only one, or what
        all have in common; further Tabs go through them.

        Args:
            line: The line for which they were asked; if it has changed meanwhile they are ignored.
            words: The words.
        """
        position = self.input.cursor_position
        if self.input.value[:position] != line or not words:
            return
        rest = self.input.value[position:]
        if len(words) == 1:
            blank = "" if words[0].text.endswith(("/", " ")) else " "
            self._put(CompletionWord(words[0].start, words[0].text + blank, ""), rest)
            return
        start = words[0].start
        common = _common([one.text for one in words])
        if len(common) > position - start and all(one.start == start for one in words):
            self._put(CompletionWord(start, common, ""), rest)
        self._cycle = (list(words), rest, -1)
        self._listener.show_candidates([one.shown for one in words])

    def _put(self, word: CompletionWord, rest: str) -> None:
        line = self.input.value[: word.start] + word.text
        self.input.value = line + rest
        self.input.cursor_position = len(line)


def _common(words: Sequence[str]) -> str:
    first, last = min(words), max(words)
    for place, letter in enumerate(first):
        if place >= len(last) or last[place] != letter:
            return first[:place]
    return first
