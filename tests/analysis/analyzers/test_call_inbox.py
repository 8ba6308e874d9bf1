"""The inbox of an analyzer, with several processes at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.analysis.analyzers.call_inbox import CallInbox


@pytest.fixture
def inbox(tmp_path: Path) -> CallInbox:
    return CallInbox(tmp_path / "calls")


def test_a_call_that_came_under_the_number_of_one_that_runs(inbox: CallInbox) -> None:
    inbox.add_analysis(7)
    (first,) = inbox.waiting()
    assert inbox.begin(first)
    # Another process has listed the folder before the first call was added.
    inbox.add_analysis(8)
    (inbox.folder / "2.json").rename(inbox.folder / "1.json")
    inbox.end(first)
    (second,) = inbox.waiting()
    assert second.analysis == 8 and not inbox.begun()
    inbox.withdraw(second)
    assert not list(inbox.folder.iterdir())


def test_several_interrupts_at_once(inbox: CallInbox) -> None:
    inbox.request_interrupt(3)
    inbox.request_interrupt(4)
    assert inbox.interrupted() == {3, 4}
    inbox.remove_interrupt(3)
    inbox.remove_interrupt(3)
    assert inbox.interrupted() == {4} and not inbox.waiting()
    assert inbox.add_analysis(9) == 1
