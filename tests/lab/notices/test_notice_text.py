from __future__ import annotations

import re
from pathlib import Path

from roost.lab.notices import notice_text
from roost.lab.queue.history import QueueEvent
from roost.lab.queue.task import FAILED, RUNNING, SUCCEEDED
from tests.lab.queued import task
from tests.messages import Messages


def event(kind: str, text: str = "", *, seq: int = 1, at: float = 1000.0) -> QueueEvent:
    return QueueEvent(seq, at, "any", kind, text)


def test_one_task_with_all_that_is_known(tmp_path: Path, messages: Messages) -> None:
    (tmp_path / "records").mkdir()
    rows = (
        '{"session": 2, "start_step": 0}\n{"step": 1, "loss": 2}\n{"step": 2, "loss": 0.125, "perf/x": 1}\n'
    )
    (tmp_path / "records" / "2.jsonl").write_text(rows)
    one = task(name="net", state=FAILED, package=str(tmp_path), session=2, started=100.0, ended=3820.0)
    found = notice_text.compose([(event(FAILED, "exit code 7"), one)])
    assert (found.id, found.event, found.title) == (f"{one.id}.1", "fail", "roost: net failed")
    lines = found.text.splitlines()
    for line, fact in zip(lines, ("exit code 7", "1h 02m", "loss 0.125", str(tmp_path)), strict=False):
        assert line.endswith(f"  {fact}")
    assert lines[-1].endswith(f": roost why {one.id}")
    text = re.sub(r"(?m)^(machine +).*", r"\1<host>", found.text)
    messages.check(text.replace(one.id, "<id>"))
    assert found.tasks[0]["metrics"] == {"loss": 0.125} and found.tasks[0]["seconds"] == 3720


def test_names_break_no_header_and_no_terminal() -> None:
    bad = "a\r\nBcc: all@x.org\x1b[2J\u202e" + "n" * 200
    one = task(name=bad, state=FAILED)
    found = notice_text.compose([(event(FAILED, bad), one)])
    assert found.title.isprintable() and "\\r\\nBcc" in found.title and len(found.title) < 100
    assert all(line.isprintable() for line in found.text.splitlines())
    assert not any(line.startswith("Bcc") for line in found.text.splitlines())


def test_how_long_it_ran() -> None:
    ended = task(state=SUCCEEDED, started=100.0, ended=160.0)
    running = task(state=RUNNING, started=100.0)
    assert notice_text.duration_seconds(event(SUCCEEDED), ended) == 60
    assert notice_text.duration_seconds(event("stalled", at=130.0), running) == 30
    assert notice_text.duration_seconds(event(FAILED), running) is None, "it has begun anew since"
    assert notice_text.duration_seconds(event(FAILED), task(state=FAILED)) is None


def test_many_are_counted_and_the_worst_counts() -> None:
    found = [(event(SUCCEEDED, seq=n), task(name=f"t{n}", state=SUCCEEDED)) for n in range(1, 40)]
    found.append((event(FAILED, "exit code 1", seq=50), task(name="bad", state=FAILED)))
    one = notice_text.compose(found, skipped=10)
    assert one.event == "fail" and one.id == f"{found[0][1].id}.1-50"
    assert one.title.startswith("roost: 50 ") and "39 succeeded, 1 failed" in one.title
    assert one.text.splitlines()[0] == "roost: t1 succeeded" and "20" in one.text


def test_no_two_notices_have_one_id() -> None:
    """A mail server drops the second message with one id; two machines may have equal event numbers."""
    several = [[(event(FAILED, seq=n), task(state=FAILED)) for n in (1, 2)] for _ in range(2)]
    assert (
        len(
            {notice_text.compose(found).id for found in several}
            | {notice_text.compose_test().id, notice_text.compose_test().id}
        )
        == 4
    )
