"""The reasons why a run is inexact: recorded once, printed once for each session."""

from __future__ import annotations

import pytest

from roost.train.distributed.ranks import ALONE
from roost.train.inexact_reasons import InexactReasons


def test_a_reason_is_recorded_and_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    reasons = InexactReasons(ALONE)
    for text in ("a", "b", "a"):
        reasons.note(text)
    assert reasons.texts == ["a", "b"]
    assert capsys.readouterr().out == "inexact: a\ninexact: b\n"


def test_reasons_of_earlier_sessions_come_first_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    reasons = InexactReasons(ALONE)
    reasons.note("b")
    reasons.load(["a", "b", "c"])
    assert reasons.texts == ["a", "b", "c"]
    assert capsys.readouterr().out == "inexact: b\ninexact in earlier sessions: a; c\n"


def test_an_earlier_reason_that_holds_again_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    reasons = InexactReasons(ALONE)
    reasons.load(["a"])
    capsys.readouterr()
    reasons.note("a")
    assert (reasons.texts, capsys.readouterr().out) == (["a"], "inexact: a\n")


def test_loading_leaves_what_was_read_as_it_is() -> None:
    saved = ["a"]
    reasons = InexactReasons(ALONE)
    reasons.load(saved)
    reasons.note("b")
    assert saved == ["a"]
