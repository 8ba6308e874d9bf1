"""Advice of roost's commands, in the words of the shells."""

from __future__ import annotations

import pytest

from roost.base.errors import NotFound, UsageError
from roost.shell.shell_words import in_shell_words, translate_error


@pytest.mark.parametrize(
    ("advice", "said"),
    [
        ("`roost submit analyze PACKAGE` starts one", "`analyze -r PACKAGE` starts one"),
        ("`roost tasks --all --json` lists them", "`showTask -a` lists them"),
        ("wait, or `roost stop 01m8`", "wait, or `del 01m8`"),
        ("to train more, roost submit continue /x a=6", "to train more, continue -r /x a=6"),
        ("roost continue '/a b', or roost submit continue '/a b'", "continue -r '/a b'"),
        ("add --untrained (in Python: untrained=True) for the weights", "add -c -2 for the weights"),
        ("use `roost run`, see `roost why`", "use `run`, see `why`"),
        ("`roost drain all`; `roost server --detach`", "`roost drain all`; `roost server --detach`"),
        ("/home/roost run/x --untrained-ones roost runs", "/home/roost run/x --untrained-ones roost runs"),
    ],
)
def test_a_command_becomes_the_verb_that_does_the_same(advice: str, said: str) -> None:
    assert in_shell_words(advice) == said


def test_the_fix_of_an_error_is_translated_and_nothing_else_of_it() -> None:
    what, fix = "no `roost tasks`", "see `roost tasks`"
    error = NotFound(what, setting="-s", received="roost tasks", where="x", fix=fix)
    translate_error(error)
    assert str(error) == "-s: no `roost tasks`; received 'roost tasks' (at x); fix: see `showTask`"
    assert error.fix == "see `showTask`" and error.exit_code == 3
    bare = UsageError("nothing to do")
    translate_error(bare)
    assert str(bare) == "nothing to do"


def test_a_setting_at_fault_is_the_option_of_the_verb() -> None:
    for fix, end in (("see `roost tasks`", "; fix: see `showTask`"), (None, "")):
        error = UsageError("is too large", setting="memory_mb", received=9, fix=fix)
        translate_error(error, {"memory_mb": "-m"})
        assert (str(error), error.setting) == (f"-m: is too large; received 9{end}", "-m")
