from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from roost.analysis.analyzers.call_inbox import CallInbox, CallRequest


def test_calls_wait_in_order(tmp_path: Path) -> None:
    inbox = CallInbox(tmp_path / "calls")
    assert inbox.waiting() == inbox.begun() == [] and inbox.interrupted() is None
    inbox.add_analysis(7)
    inbox.add_switch("untrained")
    inbox.add_switch(3)
    first, second, third = inbox.waiting()
    assert (first, second.checkpoint, third.checkpoint) == (CallRequest(1, 7, None), "untrained", 3)
    assert inbox.begin(first) and inbox.begun() == [first] and inbox.waiting() == [second, third]
    assert inbox.is_queued(7) and not inbox.begin(first), "it has begun already"
    inbox.end(first)
    inbox.end(second)
    assert not inbox.is_queued(7) and inbox.waiting() == [third] and inbox.add_analysis(8) == 4
    inbox.request_interrupt(8)
    assert inbox.interrupted() == 8
    inbox.remove_interrupt()
    inbox.remove_interrupt()
    assert inbox.interrupted() is None


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
