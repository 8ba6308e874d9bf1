"""The inbox of an analyzer, with several processes at it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from roost.analysis.analyzers.call_inbox import CallInbox, CallRequest


def test_calls_wait_in_order(tmp_path: Path) -> None:
    inbox = CallInbox(tmp_path / "calls")
    assert inbox.waiting() == inbox.begun() == [] and not inbox.interrupted()
    inbox.add_analysis(7)
    inbox.add_switch("untrained")
    inbox.add_switch(3)
    first, second, third = inbox.waiting()
    assert (first, second.checkpoint, third.checkpoint) == (CallRequest(1, 7, None), "untrained", 3)
    assert inbox.begin(first) and inbox.begun() == [first] and inbox.waiting() == [second, third]
    assert inbox.is_queued(7) and not inbox.begin(first), "it has begun already"
    inbox.end(first)
    inbox.withdraw(second)
    assert not inbox.is_queued(7) and inbox.waiting() == [third] and inbox.add_analysis(8) == 4
    inbox.request_interrupt(8)
    assert inbox.interrupted() == {8}


def test_many_at_once_get_a_place_each(tmp_path: Path) -> None:
    inbox = CallInbox(tmp_path / "calls")
    with ThreadPoolExecutor(8) as pool:
        places = list(pool.map(inbox.add_analysis, range(1, 65)))
    assert sorted(places) == list(range(1, 65))
    assert sorted(call.analysis or 0 for call in inbox.waiting()) == list(range(1, 65))
    assert len(list(inbox.folder.iterdir())) == 64, "nothing is left behind"


def test_files_of_others_are_no_calls(tmp_path: Path) -> None:
    inbox = CallInbox(tmp_path)
    for name, text in (("1.json", "3"), ("2.json", '{"analysis": "x"}'), ("x.json", "{}"), ("3.tmp", "{}")):
        (tmp_path / name).write_text(text)
    assert inbox.waiting() == [CallRequest(2, None, None)], "which does nothing"


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
