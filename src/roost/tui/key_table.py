"""The keys of the client: one table for the bindings, the hints in the last line, and the help."""

from __future__ import annotations

from typing import NamedTuple

from textual.binding import Binding


class KeyEntry(NamedTuple):
    """A key."""

    keys: str
    """As Textual names them, with commas between alternatives."""
    action: str
    shown: str
    """As people write it."""
    text: str
    group: str
    hint: str = ""
    """A word for the last line; empty: not there."""
    changes: bool = False
    """Whether it changes the lab: absent in a client that only reads."""
    others: tuple[tuple[str, str], ...] = ()
    """Further keys and their actions, which the same line of the help describes."""


KEYS: tuple[KeyEntry, ...] = (
    KeyEntry("f1,colon", "focus_pane('command')", "F1 :", "command line", "Views"),
    KeyEntry("f2", "focus_pane('server')", "F2", "output of server and commands", "Views"),
    KeyEntry("f3", "focus_pane('analyzer')", "F3", "output of the watched analyzer", "Views"),
    KeyEntry("f4", "focus_pane('tasks')", "F4", "tasks", "Views"),
    KeyEntry("f5", "focus_pane('devices')", "F5", "devices", "Views"),
    KeyEntry("f6", "focus_pane('run')", "F6", "the selected run", "Views"),
    KeyEntry("z", "zoom", "z", "the view alone, and back", "Views", "zoom"),
    KeyEntry("tab", "next_pane(1)", "Tab", "next view; Shift-Tab: back", "Views",
             others=(("shift+tab", "next_pane(-1)"),)),
    KeyEntry("question_mark", "help", "?", "this help", "Views", "help"),
    KeyEntry("escape", "go_back", "Esc", "ends zoom, filter, search, marks", "Views"),
    KeyEntry("ctrl+t", "theme", "Ctrl-T", "dark or light", "Views"),
    KeyEntry("q", "quit", "q", "leave; all goes on", "Views", "quit", others=(("ctrl+q", "leave"),)),
    KeyEntry("slash", "filter", "/", "filter: state:running lr<1e-3", "Tasks", "filter"),
    KeyEntry("o", "sort", "o", "order by name, state, newest …", "Tasks"),
    KeyEntry("enter", "open", "Enter", "open run, sweep, analyzer", "Tasks", "open"),
    KeyEntry("space", "mark", "Space", "mark, to compare", "Tasks", "mark"),
    KeyEntry("c", "compare", "c", "compare the marked runs", "Tasks", "compare"),
    KeyEntry("l", "tab('log')", "l", "log", "Run", "log"),
    KeyEntry("w", "tab('why')", "w", "why it waits, or how it ended", "Run", "why"),
    KeyEntry("left_square_bracket", "next_tab(-1)", "[ ]", "tab before, next tab", "Run",
             others=(("right_square_bracket", "next_tab(1)"),)),
    KeyEntry("m", "metrics", "m", "metrics: valid/* train/loss", "Run"),
    KeyEntry("y", "logarithmic", "y", "logarithmic axis", "Run"),
    KeyEntry("less_than_sign", "rank(-1)", "< >", "log of another rank", "Run",
             others=(("greater_than_sign", "rank(1)"),)),
    KeyEntry("comma", "picture(-1)", ", .", "picture before, next picture", "Run",
             others=(("full_stop", "picture(1)"),)),
    KeyEntry("s", "sixel", "s", "the picture in full, by sixel", "Run"),
    KeyEntry("h", "verb('hold')", "h", "hold a pending task", "Change", changes=True),
    KeyEntry("r", "verb('release')", "r", "release a held one", "Change", changes=True),
    KeyEntry("p", "ask('priority')", "p", "priority", "Change", "priority", changes=True),
    KeyEntry("x", "confirm('del')", "x", "save and stop", "Change", "stop", changes=True),
    KeyEntry("K", "confirm('kill')", "K", "kill, without saving", "Change", changes=True),
    KeyEntry("t", "ask('tag')", "t", "tag; -r TAG removes one", "Change", changes=True),
    KeyEntry("n", "ask('note')", "n", "note", "Change", changes=True),
    KeyEntry("i", "verb('interrupt')", "i", "interrupt the analyzer's script", "Change", changes=True),
    KeyEntry("e", "edit", "e", "edit the note, or the last script", "Change", changes=True),
)  # fmt: skip
GROUPS = ("Views", "Tasks", "Run", "Change")
MOVEMENT = (
    "j k ↑ ↓ PgUp PgDn g G move; the wheel scrolls; a click selects, a double click opens",
    "In an output: / searches, n N go on",
    "In the command line: help lists the verbs, Tab completes, ↑ recalls",
)


CHANGING = frozenset(one.action.partition("(")[0] for one in KEYS if one.changes)
"""The actions that change the lab."""
WHILE_TYPING = frozenset({"focus_pane", "leave", "interrupt", "suspend_process"})
"""The actions of keys that no text has, which work in the command line, too."""


def bindings() -> list[Binding]:
    """Returns the bindings of the keys. They have priority: a key is handled in the order of typing, before
    the next one, so that what follows `/` gets into the filter even if the client was busy."""
    given = [(one.keys, one.action, one.text) for one in KEYS]
    given += [(keys, action, one.text) for one in KEYS for keys, action in one.others]
    given += [("ctrl+c", "interrupt", ""), ("ctrl+z", "suspend_process", "")]
    return [Binding(keys, action, text, show=False, priority=True) for keys, action, text in given]


def hints(*, is_read_only: bool) -> list[tuple[str, str]]:
    """Returns keys and words for the last line."""
    return [(one.shown, one.hint) for one in KEYS if one.hint and not (is_read_only and one.changes)]
