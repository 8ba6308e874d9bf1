"""Lines become verbs with values, or errors that name the word at fault."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roost.base.errors import NotFound, RoostError, UsageError
from roost.shell.verbs import VERB_NAMES, VERBS, ParsedVerb, ValueKind, parse
from tests.messages import Messages

RUN = {
    "config": "c.json",
    "tuning": None,
    "memory_mb": None,
    "description": None,
    "no_save": False,
    "multi_card": False,
    "use_description": False,
    "ddp": False,
    "cpu": False,
    "overrides": (),
}
CONTINUE = {
    "package": "p",
    "checkpoint": None,
    "description": None,
    "memory_mb": None,
    "multi_card": False,
    "ddp": False,
    "cpu": False,
    "overrides": (),
}
ANALYZE = {"package": "p", "checkpoint": None, "scripts": None, "memory_mb": None, "cpu": False}


def parsed(line: str) -> ParsedVerb:
    found = parse(line)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("line", "verb", "values"),
    [
        ("new -d a/b", "new", {"folder": "a/b", "mnist": False, "template": None}),
        ("new -MNIST -d 'a b'", "new", {"folder": "a b", "mnist": True, "template": None}),
        ("new -d x -t digits", "new", {"folder": "x", "mnist": False, "template": "digits"}),
        ("run -c c.json", "run", RUN),
        ("  run   -c\tc.json  ", "run", RUN),
        ("run -c c.json -f t.json -m 4000", "run", {**RUN, "tuning": "t.json", "memory_mb": 4000}),
        ("run -c c.json -m 20GB", "run", {**RUN, "memory_mb": 20480}),
        ("run -c c.json -m -1", "run", RUN),
        ("run -c c.json -d a lower rate -CPU", "run", {**RUN, "description": "a lower rate", "cpu": True}),
        ('run -c c.json -d "-CPU  is slow"', "run", {**RUN, "description": "-CPU  is slow"}),
        ("run -c c.json -d -1 degree", "run", {**RUN, "description": "-1 degree"}),
        ("run -d x -c c.json -sd", "run", {**RUN, "description": "x", "use_description": True}),
        ("run -d x -c c.json -sd -ns", "run", {**RUN, "description": "x", "no_save": True}),
        ("run -c c.json -sd -ns", "run", {**RUN, "no_save": True}),
        ("run -c c.json -mc", "run", {**RUN, "multi_card": True}),
        ("run -c c.json -DDP", "run", {**RUN, "ddp": True, "multi_card": True}),
        ("run -c c.json -mc -DDP -m 9000", "run",
         {**RUN, "ddp": True, "multi_card": True, "memory_mb": 9000}),
        ("run epochs=2 -c c.json roost.seed=1", "run", {**RUN, "overrides": ("epochs=2", "roost.seed=1")}),
        ("continue -r p", "continue", CONTINUE),
        ("continue -r p -c 3", "continue", {**CONTINUE, "checkpoint": 3}),
        ("continue -r p -c -1", "continue", CONTINUE),
        ("continue -r p -c best -CPU", "continue", {**CONTINUE, "checkpoint": "best", "cpu": True}),
        ("continue -r p -DDP -m 8GB -d more", "continue",
         {**CONTINUE, "ddp": True, "multi_card": True, "memory_mb": 8192, "description": "more"}),
        ("analyze -r p", "analyze", ANALYZE),
        ("analyze -r p -c -2 -CPU", "analyze", {**ANALYZE, "checkpoint": "untrained", "cpu": True}),
        ("analyze -r p -c untrained", "analyze", {**ANALYZE, "checkpoint": "untrained"}),
        ("analyze -r p -s ~/scripts -m 500", "analyze",
         {**ANALYZE, "scripts": "~/scripts", "memory_mb": 500}),
        ("runExp A_1 getAcc", "runExp", {"task": "A_1", "script": "getAcc"}),
        ("runExp getAcc", "runExp", {"task": None, "script": "getAcc"}),
        ("del T_1", "del", {"task": "T_1"}),
        ("stop T_1", "del", {"task": "T_1"}),
        ("showTask", "showTask", {"all_tasks": False}),
        ("showDevice", "showDevices", {}),
        ("showDevices", "showDevices", {}),
        ("showDL", "showDL", {"styled": False}),
        ("showDL -s", "showDL", {"styled": True}),
        ("showAN A_1", "showAN", {"task": "A_1", "task_option": None, "styled": False}),
        ("showAN -t A_1 -s", "showAN", {"task": "A_1", "task_option": "A_1", "styled": True}),
        ("showAN", "showAN", {"task": None, "task_option": None, "styled": False}),
        ("changeDevices -d 0", "changeDevices", {"cards": "0"}),
        ("changeDevices -d 0 1 -1", "changeDevices", {"cards": "0,1,-1"}),
        ("changeDevices -d 0,1, 3", "changeDevices", {"cards": "0,1,3"}),
        ("changeDevices -d all", "changeDevices", {"cards": "all"}),
        ("clear", "clear", {}),
        ("watch A_1", "watch", {"task": "A_1"}),
        ("withdraw", "withdraw", {}),
        ("interrupt", "interrupt", {"task": None}),
        ("checkpoint -2", "checkpoint", {"task": None, "checkpoint": "untrained"}),
        ("checkpoint A_1 7", "checkpoint", {"task": "A_1", "checkpoint": 7}),
        ("priority T_1 -5", "priority", {"task": "T_1", "priority": -5}),
        ("logs T_1 -f -n 3", "logs", {"task": "T_1", "lines": 3, "follow": True}),
        ("tag T_1 a b,c -r", "tag", {"task": "T_1", "tags": ("a", "b,c"), "remove": True}),
        ("note T_1 it is  better", "note", {"task": "T_1", "text": "it is better"}),
        ("note T_1 ''", "note", {"task": "T_1", "text": ""}),
        ("help", "help", {"verb": None}),
        ("help runExp", "help", {"verb": "runExp"}),
        ("quit", "exit", {}),
    ],
)  # fmt: skip
def test_a_line_is_a_verb_with_its_values(line: str, verb: str, values: dict[str, Any]) -> None:
    found = parsed(line)
    assert (found.verb.name, dict(found.values)) == (verb, values)


@pytest.mark.parametrize("line", ["", "   ", "\t"])
def test_an_empty_line_is_none(line: str) -> None:
    assert parse(line) is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("runn -c a", ["'runn'", "'run'"]),
        ("showTasc", ["'showTasc'", "'showTask'"]),
        ("addP -d x", ["'addP'", "root_config.json"]),
        ("new -d x -p LogInit", ["'-p'", "root_config.json"]),
        ("run -c a -CPUU", ["'-CPUU'", "'-CPU'"]),
        ("run -c a -d lower rate -CPUU", ["'-CPUU'", "'-CPU'"]),
        ("run --config a", ["'--config'", "-c"]),
        ("run -c a b.json", ["'b.json'"]),
        ("run", ["-c CFG"]),
        ("run -c", ["-c CFG"]),
        ("run -c -CPU", ["-c CFG", "no value"]),
        ("run -c a -c b", ["-c", "twice"]),
        ("run -c ''", ["-c", "empty"]),
        ("run -c a -m lots", ["-m", "'lots'"]),
        ("run -c a -m 8", ["-m", "8GB"]),
        ("run -c a -m", ["-m MB"]),
        ("run -c a -d", ["-d TEXT"]),
        ("run -c a -sd", ["-sd", "-d TEXT"]),
        ("run -c a -CPU -DDP", ["-CPU", "-DDP"]),
        ("run -c a -CPU -mc", ["-CPU", "-mc"]),
        ("continue -r p -CPU -DDP", ["-CPU", "-DDP"]),
        ("continue -r p -c -2", ["-c", "'-2'"]),
        ("continue -r p -c newest", ["-c", "'newest'"]),
        ("analyze -c 3", ["-r PKG"]),
        ("new -d x -MNIST -t digits", ["-MNIST", "-t"]),
        ("runExp", ["SCRIPT"]),
        ("runExp A_1 a b", ["'b'"]),
        ("del", ["TASK"]),
        ("del T_1 T_2", ["'T_2'"]),
        ("showDevices all", ["'all'"]),
        ("showDL -x", ["'-x'", "-s"]),
        ("showAN A_1 -t A_2", ["'A_1'"]),
        ("changeDevices", ["-d ID..."]),
        ("changeDevices -d", ["-d ID..."]),
        ("changeDevices -d one", ["-d", "'one'"]),
        ("changeDevices 0 1", ["-d ID..."]),
        ("priority T_1", ["N"]),
        ("priority T_1 high", ["N", "'high'"]),
        ("clear everything", ["'everything'"]),
        ("withdraw -x", ["'-x'"]),
        ("note T_1", ["TEXT"]),
        ("tag T_1", ["TAG"]),
        ("checkpoint", ["ID"]),
        ("run -c 'a", ["'"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_error_names_the_word_and_the_nearest(line: str, words: list[str], messages: Messages) -> None:
    with pytest.raises((UsageError, NotFound)) as error:
        parse(line)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert "\n" not in str(error.value)
    messages.check(error.value)


WORDS = st.sampled_from(
    [
        *VERB_NAMES,
        *{option for verb in VERBS for option in verb.options},
        *(
            "-",
            "--",
            "-1",
            "-2",
            "0",
            "a=b",
            "'",
            '"',
            "\\",
            "''",
            "T_1",
            "all",
            "x" * 300,
            "\x1b[2J",
            "\ud800",
        ),
    ]
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # of the first texts, on a busy machine
@given(st.lists(WORDS | st.text(max_size=8), max_size=9).map(" ".join))
def test_no_line_raises_anything_but_an_error_for_people(line: str) -> None:
    try:
        found = parse(line)
    except RoostError as error:
        assert str(error)
    else:
        assert found is None or set(found.values) == {one.key for one in found.verb.parameters}


def test_the_table_is_consistent() -> None:
    assert len(VERB_NAMES) == sum(1 + len(verb.aliases) for verb in VERBS)
    for verb in VERBS:
        keys = [one.key for one in verb.parameters]
        assert len(keys) == len(set(keys)) and verb.examples and verb.summary.endswith("."), verb.name
        for one in verb.parameters:
            has_word = bool(one.shown) or not one.is_option
            assert has_word == (one.kind is not ValueKind.FLAG), one.written
        for example in verb.examples:
            assert parsed(example).verb is verb
