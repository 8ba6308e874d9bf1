"""What roost advises for a command line, in the words of the shells: `showTask` for `roost tasks`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from roost.base.errors import RoostError, with_fix

_VERBS: Mapping[str, str] = MappingProxyType(
    {
        "submit analyze": "analyze -r",
        "submit continue": "continue -r",
        "submit": "run -c",
        "continue": "continue -r",
        "run": "run -c",
        "tasks": "showTask",
        "devices": "showDevices",
        "stop": "del",
        "kill": "kill",
        "hold": "hold",
        "release": "release",
        "priority": "priority",
        "why": "why",
        "logs": "logs",
        "tag": "tag",
        "note": "note",
    }
)
"""The verbs for commands that do the same. The option of one, ``-r``, needs an argument."""
_OPTIONS: Mapping[str, str] = MappingProxyType({"--all": "-a", "--untrained": "-c -2", "--tail": "-n"})
_COMMAND = re.compile(
    rf"(?<![\w/.-])roost (?P<command>{'|'.join(sorted(_VERBS, key=len, reverse=True))})\b(?![-\w])"
    r"(?P<options>(?: --?[a-z][-\w]*)*)(?P<argument> (?!or\b|starts\b|lists\b|to\b|says\b|in\b)[^\s`;,)]+)?"
)
_OPTION = re.compile(rf"(?<![\w-])(?:{'|'.join(_OPTIONS)})(?![\w-])")
_SAID_TWICE = re.compile(r"\b(continue -r .+), or \1(?!\S)")
"""Two commands of roost that are one verb."""
_PYTHON_HINT = re.compile(r" \(in Python: [^()]*(?:\([^()]*\))?[^()]*\)")


def in_shell_words(text: str) -> str:
    """Returns advice with the verbs and options of the shells in place of roost's commands. What the shells
    cannot do stays a command."""
    said = _OPTION.sub(lambda found: _OPTIONS[found[0]], _COMMAND.sub(_verb, _PYTHON_HINT.sub("", text)))
    return _SAID_TWICE.sub(r"\1", said)


def translate_error(error: RoostError, options: Mapping[str, str] = MappingProxyType({})) -> None:
    """Rewrites the fix of an error in the words of the shells, and the setting at fault.

    Args:
        error: The error.
        options: The options of the verb by the names that a server has for them.
    """
    said = str(error)
    before = said.removesuffix(with_fix("", error.fix)) if error.fix is not None else said
    if error.setting is not None and error.setting in options:
        before = options[error.setting] + before.removeprefix(error.setting)
        error.setting = options[error.setting]
    error.fix = in_shell_words(error.fix) if error.fix is not None else None
    error.args = (with_fix(before, error.fix),)


def _verb(found: re.Match[str]) -> str:
    verb, argument = _VERBS[found["command"]], found["argument"] or ""
    name, _, option = verb.partition(" ")
    options = "".join(
        f" {_OPTIONS.get(one, one)}" for one in found["options"].split() if one not in ("--json", "--each")
    )
    return f"{verb}{argument}{options}" if argument and option else f"{name}{options}{argument}"
