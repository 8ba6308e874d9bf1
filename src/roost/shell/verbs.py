"""The verbs of the shells and of the full-screen client: one table, and the parser of a line.

A verb is written as in DLNest: options have one dash, as in ``run -c root_config.json -CPU``. A parsed line
has each value under the name of its parameter, a default where none was given.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from roost.base.errors import NotFound, UsageError
from roost.base.text.byte_sizes import parse_memory
from roost.base.text.suggestions import did_you_mean
from roost.devices.resource_request import HIGHEST_PRIORITY, MIN_CARD_MEMORY_MB
from roost.shell.command_words import TypedWord, require_words


class ValueKind(enum.Enum):
    """What a parameter takes: how it is parsed, and how it is completed."""

    FLAG = enum.auto()
    """Nothing; True if it was given."""
    TEXT = enum.auto()
    """All words up to the next option of the verb, so that a description needs no quotes."""
    NAME = enum.auto()
    """One word."""
    FILE = enum.auto()
    """The path of a file."""
    FOLDER = enum.auto()
    """The path of a folder."""
    PACKAGE = enum.auto()
    """The path of a package."""
    TASK = enum.auto()
    """A task: its label, its id, the beginning of one, or its name."""
    ANALYZER = enum.auto()
    """A task that is an analyzer."""
    SCRIPT = enum.auto()
    """A script of an analyzer."""
    VERB = enum.auto()
    """The name of a verb."""
    MEMORY = enum.auto()
    """MB, or 20GB; an integer. -1, as DLNest's programs send it, is None."""
    CHECKPOINT = enum.auto()
    """An id (an integer), ``last`` or ``best``; -1, as in DLNest, is None: the newest."""
    ANALYZED_CHECKPOINT = enum.auto()
    """As `CHECKPOINT`, or -2 for the weights before training: ``untrained``."""
    INTEGER = enum.auto()
    """A whole number."""
    CARDS = enum.auto()
    """Numbers of cards with blanks or commas between them, or ``all``; -1 is the CPU. A text: ``0,1,-1``."""
    SETTINGS = enum.auto()
    """Any number of ``key=value``; a tuple."""
    NAMES = enum.auto()
    """One or more words; a tuple."""


_MANY_WORDS = (ValueKind.SETTINGS, ValueKind.NAMES)


@dataclass(frozen=True)
class VerbParameter:
    """An option or an argument of a verb."""

    written: str
    """The option with its dash; of an argument the word for it, in capitals."""
    kind: ValueKind
    summary: str
    name: str = ""
    """Its name among the parsed values; empty: ``written`` in lower case without its dash."""
    shown: str = ""
    """The word for the value of an option, such as ``CFG``."""
    is_required: bool = False

    @property
    def key(self) -> str:
        """The name among the parsed values."""
        return self.name or self.written.lstrip("-").lower()

    @property
    def is_option(self) -> bool:
        """Whether it is written with a dash; otherwise its place says what it is."""
        return self.written.startswith("-")

    @property
    def usage(self) -> str:
        """As in the usage line: ``-c CFG``, ``[-CPU]``, ``[TASK]``."""
        word = f"{self.written} {self.shown}" if self.shown else self.written
        if self.kind in (ValueKind.SETTINGS, ValueKind.NAMES):
            word += "..."
        return word if self.is_required else f"[{word}]"


@dataclass(frozen=True)
class Verb:
    """A verb: its parameters, and the texts of its help."""

    name: str
    summary: str
    parameters: tuple[VerbParameter, ...] = ()
    aliases: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Further lines of its help."""
    changes: bool = False
    """Whether it changes the lab or the disk: refused by a client that only reads."""

    @property
    def options(self) -> Mapping[str, VerbParameter]:
        """The options by their names with the dash."""
        return {one.written: one for one in self.parameters if one.is_option}

    @property
    def arguments(self) -> tuple[VerbParameter, ...]:
        """The parameters without a dash, in their order."""
        return tuple(one for one in self.parameters if not one.is_option)

    @property
    def usage(self) -> str:
        """The verb with all its parameters."""
        return " ".join([self.name, *(one.usage for one in self.parameters)])


@dataclass(frozen=True)
class ParsedVerb:
    """A line that was parsed."""

    verb: Verb
    values: Mapping[str, Any]
    """The value of each parameter of the verb by its key: False for a flag that was not given, an empty tuple
    where there may be many, otherwise None."""

    def __getitem__(self, key: str) -> Any:
        return self.values[key]


_Kind = ValueKind


def _flag(written: str, summary: str, name: str = "") -> VerbParameter:
    return VerbParameter(written, _Kind.FLAG, summary, name)


_MEMORY = VerbParameter(
    "-m",
    _Kind.MEMORY,
    "Memory of all cards together, in MB or as 20GB; default: as earlier runs used.",
    "memory_mb",
    "MB",
)
_DESCRIPTION = VerbParameter("-d", _Kind.TEXT, "A few words about the run.", "description", "TEXT")
_CARD_OPTIONS = (
    _flag("-mc", "Several cards for one process, if no single card has as much memory.", "multi_card"),
    _flag("-DDP", "One process for each card; implies -mc.", "ddp"),
    _flag("-CPU", "Train on the CPU; excludes -mc and -DDP.", "cpu"),
)
_SETTINGS = VerbParameter("KEY=VALUE", _Kind.SETTINGS, "Settings, as for `roost run`.", "overrides")
_RECORD = VerbParameter("-r", _Kind.PACKAGE, "The package.", "package", "PKG", is_required=True)
_TASK = VerbParameter("TASK", _Kind.TASK, "The task: T_1, its id or its name.", is_required=True)
_ANALYZER_OR_WATCHED = VerbParameter(
    "TASK", _Kind.ANALYZER, "The analyzer; default: the one that is watched."
)
_STYLED = _flag("-s", "With colours.", "styled")


def _orders(name: str, summary: str, *examples: str, aliases: tuple[str, ...] = ()) -> Verb:
    return Verb(name, summary, (_TASK,), aliases=aliases, examples=examples, changes=True)


VERBS: tuple[Verb, ...] = (
    Verb(
        "new",
        "Create a project in DLNest's form.",
        (
            VerbParameter("-d", _Kind.FOLDER, "The new folder.", "folder", "DIR", is_required=True),
            _flag("-MNIST", "With a CNN on MNIST."),
            VerbParameter(
                "-t", _Kind.NAME, "A template of `roost new`, such as digits.", "template", "TEMPLATE"
            ),
        ),
        examples=("new -d ~/mnist -MNIST", "new -d digits -t digits"),
        changes=True,
    ),
    Verb(
        "run",
        "Queue a training.",
        (
            VerbParameter("-c", _Kind.FILE, "The config.", "config", "CFG", is_required=True),
            VerbParameter("-f", _Kind.FILE, "A second config, which overrides the first.", "tuning", "JSON"),
            _MEMORY,
            _DESCRIPTION,
            _flag("-ns", "Name the package NOSAVE; wins over -sd.", "no_save"),
            *_CARD_OPTIONS[:1],
            _flag("-sd", "Name the package by the description.", "use_description"),
            *_CARD_OPTIONS[1:],
            _SETTINGS,
        ),
        examples=(
            "run -c root_config.json",
            'run -c root_config.json -f freq_config.json -m 4000 -d "lower rate" -sd',
            "run -c root_config.json -DDP -m 60GB",
            "run -c config.yaml max_epochs=5 -CPU",
        ),
        changes=True,
    ),
    Verb(
        "continue",
        "Queue the next session of a package.",
        (
            _RECORD,
            VerbParameter("-c", _Kind.CHECKPOINT, "The checkpoint: an id, best or last.", "checkpoint", "ID"),
            _DESCRIPTION,
            _MEMORY,
            *_CARD_OPTIONS,
            _SETTINGS,
        ),
        examples=("continue -r Saves/2026-11-20_07-33-13_481", "continue -r Saves/NAME -c 3 -CPU"),
        changes=True,
    ),
    Verb(
        "analyze",
        "Load a package into an analyzer.",
        (
            _RECORD,
            VerbParameter(
                "-c",
                _Kind.ANALYZED_CHECKPOINT,
                "The checkpoint: an id, best or last; -2 or untrained: before training.",
                "checkpoint",
                "ID",
            ),
            VerbParameter(
                "-s", _Kind.FOLDER, "A further folder of scripts, or one script.", "scripts", "DIR"
            ),
            _MEMORY,
            _flag("-CPU", "Load it on the CPU.", "cpu"),
        ),
        examples=("analyze -r Saves/NAME -CPU", "analyze -r Saves/NAME -c best -s ~/scripts"),
        changes=True,
    ),
    Verb(
        "runExp",
        "Run a script in an analyzer.",
        (
            _ANALYZER_OR_WATCHED,
            VerbParameter("SCRIPT", _Kind.SCRIPT, "The name of the script, or its path.", is_required=True),
        ),
        examples=("runExp A_3 getAcc", "runExp getAcc"),
        changes=True,
    ),
    _orders("del", "Save and stop a task, or take it from the queue.", "del T_12", aliases=("stop",)),
    Verb(
        "showTask",
        "List the tasks.",
        (_flag("-a", "Also tasks that ended long ago.", "all_tasks"),),
        aliases=("showTasks", "tasks"),
        examples=("showTask",),
    ),
    Verb(
        "showDevices",
        "List the cards and what uses them.",
        aliases=("showDevice", "devices"),
        examples=("showDevices",),
    ),
    Verb("showDL", "Print what the server was asked for.", (_STYLED,), examples=("showDL", "showDL -s")),
    Verb(
        "showAN",
        "Print the output of an analyzer.",
        (
            _ANALYZER_OR_WATCHED,
            VerbParameter("-t", _Kind.ANALYZER, "The same as TASK.", "task_option", "TASK"),
            _STYLED,
        ),
        examples=("showAN A_3", "showAN -t A_3 -s"),
    ),
    Verb(
        "changeDevices",
        "Choose the cards that tasks may use.",
        (
            VerbParameter(
                "-d", _Kind.CARDS, "Their numbers, or all; -1 is the CPU.", "cards", "ID...", is_required=True
            ),
        ),
        examples=("changeDevices -d 0 1 -1", "changeDevices -d all"),
        notes=("Tasks may always use the CPU; running tasks continue.",),
        changes=True,
    ),
    Verb("clear", "Clear the output of the server.", examples=("clear",), changes=True),
    Verb(
        "watch",
        "Choose an analyzer for runExp, showAN, interrupt and checkpoint.",
        (VerbParameter("TASK", _Kind.ANALYZER, "The analyzer.", is_required=True),),
        examples=("watch A_3",),
    ),
    Verb("withdraw", "End watch. The analyzer continues.", examples=("withdraw",)),
    Verb(
        "interrupt",
        "End the script that an analyzer runs, or its switch of the checkpoint. The analyzer continues.",
        (_ANALYZER_OR_WATCHED,),
        examples=("interrupt A_3", "interrupt"),
        changes=True,
    ),
    Verb(
        "checkpoint",
        "Load another checkpoint into an analyzer.",
        (
            _ANALYZER_OR_WATCHED,
            VerbParameter(
                "ID",
                _Kind.ANALYZED_CHECKPOINT,
                "An id, best or last; -2 or untrained: before training.",
                "checkpoint",
                is_required=True,
            ),
        ),
        examples=("checkpoint A_3 best", "checkpoint 12"),
        changes=True,
    ),
    _orders("kill", "End a task at once, without saving.", "kill T_12"),
    _orders("hold", "Keep a pending task from starting.", "hold T_12"),
    _orders("release", "Let a held task start.", "release T_12"),
    Verb(
        "priority",
        "Change the priority of a task; higher starts first.",
        (_TASK, VerbParameter("N", _Kind.INTEGER, "The priority.", "priority", is_required=True)),
        examples=("priority T_12 5",),
        changes=True,
    ),
    Verb("why", "Show why a task waits, or how it ended.", (_TASK,), examples=("why T_12",)),
    Verb(
        "logs",
        "Print the output of a task.",
        (
            _TASK,
            VerbParameter("-n", _Kind.INTEGER, "Only the last N lines; default: 100.", "lines", "N"),
            _flag("-f", "Print new output until the task ends or Ctrl-C.", "follow"),
        ),
        examples=("logs T_12", "logs T_12 -n 20 -f"),
    ),
    Verb(
        "tag",
        "Add tags to the package of a task.",
        (
            _TASK,
            VerbParameter("TAG", _Kind.NAMES, "The tags.", "tags", is_required=True),
            _flag("-r", "Remove them instead.", "remove"),
        ),
        examples=("tag T_12 baseline", "tag T_12 -r baseline"),
        changes=True,
    ),
    Verb(
        "note",
        "Replace the note of the package of a task.",
        (_TASK, VerbParameter("TEXT", _Kind.TEXT, "The note; empty quotes remove it.", is_required=True)),
        examples=('note T_12 "diverged after the warm-up"',),
        changes=True,
    ),
    Verb(
        "help",
        "List the verbs, or explain one.",
        (VerbParameter("VERB", _Kind.VERB, "The verb.", "verb"),),
        examples=("help", "help run"),
    ),
    Verb("exit", "Leave the shell.", aliases=("quit",), examples=("exit",)),
)
"""All verbs, in the order of ``help``."""

VERB_NAMES: Mapping[str, Verb] = MappingProxyType(
    {name: verb for verb in VERBS for name in (verb.name, *verb.aliases)}
)
"""The verbs by their names and aliases."""

_NAME_PLUGINS = 'name plugins in root_config.json: "plugins": ["LogInit"]'
_OF_DLNEST_ONLY = {
    "addP": _NAME_PLUGINS,
    "new -p": _NAME_PLUGINS,
    "changeDelay": "nothing waits for a delay: the lab starts tasks at once",
}
"""Verbs, and options of verbs, of DLNest's programs that do not exist here, with what to do instead."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_CARDS = re.compile(r"(-?[0-9]{1,4}|all)(,(-?[0-9]{1,4}|all))*,?")


def parse(line: str) -> ParsedVerb | None:
    """Returns the verb of a line and the values of its parameters; None for an empty line.

    Raises:
        UsageError: A quote is not closed, an option or a word is not one of the verb's, a value is missing or
            malformed, or options exclude each other. The error names the word and the nearest one.
        NotFound: There is no such verb.
    """
    words = require_words(line)
    if not words:
        return None
    verb = find_verb(words[0].text)
    given = dict(_read_values(verb, words[1:]))
    values = {one.key: given.get(one.key, _default(one)) for one in verb.parameters}
    return ParsedVerb(verb, MappingProxyType(_check_together(verb, values)))


def find_verb(name: str) -> Verb:
    """Returns the verb of a name or an alias.

    Raises:
        NotFound: There is none.
    """
    if name in VERB_NAMES:
        return VERB_NAMES[name]
    fix = _OF_DLNEST_ONLY.get(name) or f"{did_you_mean(name, VERB_NAMES)}`help` lists the verbs"
    raise NotFound(f"there is no verb {name!r}", fix=fix)


def _read_values(verb: Verb, words: Sequence[TypedWord]) -> Iterator[tuple[str, Any]]:
    options, rest = verb.options, list(words)
    arguments: list[TypedWord] = []
    seen: set[str] = set()
    while rest:
        word = rest.pop(0)
        if not _looks_like_option(word):
            if _takes_text(verb, len(arguments)):
                rest.insert(0, word)
                taken = _take_text(verb, rest)
                arguments.append(TypedWord(" ".join(one.text for one in taken), word.start, word.end, True))
                continue
            arguments.append(word)
            continue
        if word.text not in options:
            if verb.arguments and _INTEGER.fullmatch(word.text):
                arguments.append(word)
                continue
            raise _unknown_option(verb, word.text)
        if word.text in seen:
            raise UsageError("is given twice", setting=word.text, fix="give it once")
        seen.add(word.text)
        option = options[word.text]
        yield option.key, _take_value(verb, option, rest)
    missing = [one.written for one in options.values() if one.is_required and one.written not in seen]
    if missing:
        raise _missing(verb, options[missing[0]])
    yield from _assign_arguments(verb, arguments)


def _looks_like_option(word: TypedWord) -> bool:
    return not word.is_quoted and len(word.text) > 1 and word.text.startswith("-")


def _takes_text(verb: Verb, place: int) -> bool:
    return len(verb.arguments) > place and verb.arguments[place].kind is ValueKind.TEXT


def _take_text(verb: Verb, rest: list[TypedWord]) -> list[TypedWord]:
    """Removes the words up to the next option of the verb, and returns them."""
    taken: list[TypedWord] = []
    while rest and not (_looks_like_option(rest[0]) and rest[0].text in verb.options):
        if _looks_like_option(rest[0]) and not _INTEGER.fullmatch(rest[0].text):
            # In a text it may be a misspelled option, which must not be lost without a word.
            raise _unknown_option(verb, rest[0].text, quoted=True)
        taken.append(rest.pop(0))
    return taken


def _take_value(verb: Verb, option: VerbParameter, rest: list[TypedWord]) -> Any:
    """Removes the value of an option from the words, and returns it parsed."""
    if option.kind is ValueKind.FLAG:
        return True
    if option.kind is ValueKind.TEXT:
        taken = _take_text(verb, rest)
        if not taken:
            raise _no_value(verb, option)
        return " ".join(one.text for one in taken)
    if option.kind is ValueKind.CARDS:
        return _take_cards(verb, option, rest)
    if not rest or (_looks_like_option(rest[0]) and not _INTEGER.fullmatch(rest[0].text)):
        raise _no_value(verb, option)
    return _parse_value(option, rest.pop(0).text)


def _take_cards(verb: Verb, option: VerbParameter, rest: list[TypedWord]) -> str:
    taken: list[str] = []
    while rest and _CARDS.fullmatch(rest[0].text):
        taken += filter(None, rest.pop(0).text.split(","))
    if taken:
        return "all" if "all" in taken else ",".join(taken)
    if not rest or rest[0].text in verb.options:
        raise _no_value(verb, option)
    fix = "give the numbers of `showDevices`, such as -d 0 1, or all"
    raise UsageError("is not the number of a card", setting=option.written, received=rest[0].text, fix=fix)


def _parse_value(parameter: VerbParameter, text: str) -> Any:
    kind = parameter.kind
    if kind is ValueKind.MEMORY:
        setting = parameter.written
        return None if text == "-1" else parse_memory(text, setting=setting, min_mb=MIN_CARD_MEMORY_MB)
    if kind in (ValueKind.CHECKPOINT, ValueKind.ANALYZED_CHECKPOINT):
        return _parse_checkpoint(parameter, text)
    if kind is ValueKind.INTEGER:
        if not _INTEGER.fullmatch(text) or abs(int(text)) > HIGHEST_PRIORITY:
            fix = f"give one, at most {HIGHEST_PRIORITY:,}"
            raise UsageError("is not a whole number", setting=parameter.written, received=text, fix=fix)
        return int(text)
    if kind is not ValueKind.TEXT and not text:
        raise UsageError("is empty", setting=parameter.written, fix=f"give {_value_word(parameter)}")
    return text


def _parse_checkpoint(parameter: VerbParameter, text: str) -> int | str | None:
    may_be_untrained = parameter.kind is ValueKind.ANALYZED_CHECKPOINT
    if text in ("last", "-1"):
        return None
    if text == "best":
        return text
    if may_be_untrained and text in ("untrained", "-2"):
        return "untrained"
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        return int(text)
    more = ", or untrained" if may_be_untrained else ""
    what = "is not a checkpoint"
    raise UsageError(what, setting=parameter.written, received=text, fix=f"give an id, best or last{more}")


def _assign_arguments(verb: Verb, words: Sequence[TypedWord]) -> Iterator[tuple[str, Any]]:
    """Yields the arguments of a verb. Where the first may be left out, a single word is the second."""
    parameters, left = list(verb.arguments), list(words)
    required = sum(one.is_required for one in parameters)
    if parameters and not parameters[0].is_required and required and len(left) <= required:
        del parameters[0]
    for parameter in parameters:
        if parameter.kind in _MANY_WORDS:
            if parameter.is_required and not left:
                raise _missing(verb, parameter)
            yield parameter.key, tuple(_require_setting(verb, parameter, one) for one in left)
            left = []
        elif left:
            yield parameter.key, _parse_value(parameter, left.pop(0).text)
        elif parameter.is_required:
            raise _missing(verb, parameter)
    if left:
        raise _unexpected(verb, left[0].text)


def _require_setting(verb: Verb, parameter: VerbParameter, word: TypedWord) -> str:
    if parameter.kind is ValueKind.SETTINGS and "=" not in word.text:
        raise _unexpected(verb, word.text)
    return word.text


def _check_together(verb: Verb, values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values of a verb with what its options imply.

    Raises:
        UsageError: Options exclude each other.
    """
    if values.get("cpu") and (values.get("ddp") or values.get("multi_card")):
        both = "-DDP" if values["ddp"] else "-mc"
        raise UsageError(f"-CPU and {both} exclude each other", fix="leave out one")
    if values.get("ddp"):
        values["multi_card"] = True
    if values.get("no_save"):
        values["use_description"] = False
    if values.get("use_description") and not values["description"]:
        what = "names the package by its description, which is missing"
        raise UsageError(what, setting="-sd", fix="add -d TEXT")
    if values.get("mnist") and values["template"]:
        raise UsageError("-MNIST and -t exclude each other", fix="leave out one")
    if values.get("task_option"):
        if values["task"]:
            raise UsageError("two tasks are named", received=values["task"], fix="name one")
        values["task"] = values["task_option"]
    return values


def _default(parameter: VerbParameter) -> Any:
    if parameter.kind is ValueKind.FLAG:
        return False
    return () if parameter.kind in _MANY_WORDS else None


def _unknown_option(verb: Verb, text: str, *, quoted: bool = False) -> UsageError:
    known = ", ".join(verb.options)
    options = f"its options are {known}" if known else f"write `{verb.usage}`"
    advice = "; quote a text that begins with a dash" if quoted else ""
    usual = f"{did_you_mean(text, verb.options)}{options}{advice}"
    fix = _OF_DLNEST_ONLY.get(f"{verb.name} {text}", usual)
    return UsageError(f"{verb.name} has no option {text!r}", fix=fix)


def _unexpected(verb: Verb, text: str) -> UsageError:
    advice = "quote a value with blanks; " if verb.parameters else ""
    fix = f"{did_you_mean(text, verb.options)}{advice}write `{verb.usage}`"
    return UsageError(f"{verb.name} has no use for the word {text!r}", fix=fix)


def _missing(verb: Verb, parameter: VerbParameter) -> UsageError:
    """Returns the error about a parameter that is required and was not given."""
    written = f"{parameter.written} {parameter.shown}".rstrip()
    return UsageError(f"{verb.name} needs {written}", fix=f"write `{verb.usage}`")


def _no_value(verb: Verb, option: VerbParameter) -> UsageError:
    """Returns the error about an option without its value."""
    what = f"{option.written} of {verb.name} has no value"
    return UsageError(what, fix=f"write {option.written} {option.shown}, as in `{verb.usage}`")


def _value_word(parameter: VerbParameter) -> str:
    return parameter.shown or parameter.written
