from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from roost.train.mirrors.record_feed import MediaFeed, RecordFeed
from roost.train.mirrors.sink import SinkPosition
from tests.train.mirrors.recorded import Log, folded, session, show


def test_rows_come_once_and_in_order_as_they_are_recorded(tmp_path: Path) -> None:
    writer, sink = session(tmp_path, 1, 0, [1, 2]), Log()
    feed = RecordFeed(tmp_path, sink)
    assert feed.open() == 2
    assert feed.send_new() == 0
    writer.row(3, 0, {"train/loss": float("nan")})
    assert feed.send_new() == 1
    assert sink.steps == [1, 2, 3] and str(sink.values[-1][1]["train/loss"]) == "nan"


def test_nothing_is_recorded_yet(tmp_path: Path) -> None:
    sink = Log()
    feed = RecordFeed(tmp_path, sink)
    assert feed.open() == 0
    session(tmp_path, 1, 0, [1])
    assert feed.send_new() == 1 and sink.values == folded(tmp_path)


def test_a_new_session_takes_back_what_it_does_again(tmp_path: Path) -> None:
    session(tmp_path, 1, 0, [1, 2, 3, 4])
    sink = Log()
    feed = RecordFeed(tmp_path, sink)
    feed.open()
    session(tmp_path, 2, 2, [3, 5], **{"train/loss": 7.0})
    feed.send_new()
    assert sink.values == folded(tmp_path) and sink.steps == [1, 2, 3, 5]


def test_a_rollback_inside_a_session(tmp_path: Path) -> None:
    writer, sink = session(tmp_path, 1, 0, [1, 2, 3]), Log()
    feed = RecordFeed(tmp_path, sink)
    feed.open()
    writer.go_back(1)
    writer.row(2, 0, {"train/loss": 9.0})
    feed.send_new()
    assert sink.values == folded(tmp_path) and sink.steps == [1, 2]


@pytest.mark.parametrize("back_to", [3, 5])
def test_a_rollback_and_the_rows_before_it_in_one_look(tmp_path: Path, back_to: int) -> None:
    writer, sink = session(tmp_path, 1, 0, [1, 2, 3]), Log()
    feed = RecordFeed(tmp_path, sink)
    feed.open()
    for step in (4, 5, 6):
        writer.row(step, 0, {"train/loss": 1.0})
    writer.go_back(back_to)
    writer.row(7, 0, {"train/loss": 9.0})
    feed.send_new()
    assert sink.values == folded(tmp_path) and sink.steps == [*range(1, back_to + 1), 7]


def test_a_test_that_is_done_again_replaces_itself(tmp_path: Path) -> None:
    """Killed after the test was recorded: the next session goes on from the same step, and tests again."""
    writer, sink = session(tmp_path, 1, 0, [1, 2]), Log()
    writer.row(2, 0, {"test/loss": 1.0})
    feed = RecordFeed(tmp_path, sink)
    feed.open()
    again = session(tmp_path, 2, 2, [])
    feed.send_new()
    again.row(2, 0, {"test/loss": 1.0})
    feed.send_new()
    assert sink.values == folded(tmp_path)
    assert [sorted(values) for _, values in sink.values][1:] == [sorted(sink.values[0][1]), ["test/loss"]]


def test_a_line_that_a_full_disk_left_twice_counts_once(tmp_path: Path) -> None:
    writer, sink = session(tmp_path, 1, 0, [1, 2]), Log(can_rewind=False)
    path = tmp_path / "records" / "1.jsonl"
    path.write_bytes(path.read_bytes() + path.read_bytes().splitlines(keepends=True)[-1])
    writer.row(3, 0, {"train/loss": 9.0})
    RecordFeed(tmp_path, sink).open()
    assert sink.steps == [1, 2, 3]


# ---- the next session -------------------------------------------------------------------------------------


def noted(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "mirrors" / "log.json").read_bytes()))


def resumed(package: Path, sink: Log) -> Log:
    """Another session's feed."""
    RecordFeed(package, sink, package / "mirrors" / "log.json").open()
    return sink


@pytest.mark.parametrize("start", [0, 2, 4], ids=["from the start", "from between", "from the end"])
def test_the_next_session_brings_what_lacks_and_takes_back_what_is_gone(tmp_path: Path, start: int) -> None:
    writer, first = session(tmp_path, 1, 0, [1, 2, 3]), Log()
    feed = RecordFeed(tmp_path, first, tmp_path / "mirrors" / "log.json")
    feed.open()
    feed.save_position()
    assert noted(tmp_path)["last_step"] == 3 and noted(tmp_path)["run_id"] == "seven"
    writer.row(4, 0, {"train/loss": 1.0})  # and killed before the mirror has seen it
    session(tmp_path, 2, start, [])
    second = Log(held=SinkPosition(3))
    second.rows = list(first.rows)
    resumed(tmp_path, second)
    assert second.values == folded(tmp_path) and second.steps == list(range(1, start + 1))
    assert second.connected_with["token"] == first.connected_with["token"] != ""


def test_a_kill_before_the_note_makes_no_doubles(tmp_path: Path) -> None:
    writer, first = session(tmp_path, 1, 0, [1, 2, 3]), Log()
    feed = RecordFeed(tmp_path, first, tmp_path / "mirrors" / "log.json")
    feed.open()
    feed.save_position()
    writer.row(4, 0, {"train/loss": 1.0})
    feed.send_new()  # and killed before the next note
    second = Log(held=SinkPosition(3))
    second.rows = list(first.rows)
    resumed(tmp_path, second)
    assert second.calls[0] == "back to 2" and second.values == folded(tmp_path)


def test_a_sink_that_was_removed_gets_everything(tmp_path: Path) -> None:
    session(tmp_path, 1, 0, [1, 2, 3])
    feed = RecordFeed(tmp_path, Log(), tmp_path / "mirrors" / "log.json")
    feed.open()
    feed.save_position()
    assert resumed(tmp_path, Log(held=SinkPosition())).steps == [1, 2, 3]


@pytest.mark.parametrize("note", [b"", b"[]", b"{", b'{"last_step": "x", "token": 7}'])
def test_a_damaged_note_costs_work_alone(tmp_path: Path, note: bytes) -> None:
    session(tmp_path, 1, 0, [1, 2, 3])
    (tmp_path / "mirrors").mkdir()
    (tmp_path / "mirrors" / "log.json").write_bytes(note)
    assert resumed(tmp_path, Log(held=SinkPosition())).steps == [1, 2, 3]


# ---- what takes nothing back ------------------------------------------------------------------------------


def test_what_takes_nothing_back_gets_each_step_once(tmp_path: Path) -> None:
    session(tmp_path, 1, 0, [1, 2, 3])
    sink = Log(can_rewind=False)
    feed = RecordFeed(tmp_path, sink)
    feed.open()
    writer = session(tmp_path, 2, 1, [2, 3])
    feed.send_new()
    writer.row(4, 0, {"train/loss": 1.0})
    feed.send_new()
    assert sink.steps == [1, 2, 3, 4] and not any("back" in call for call in sink.calls)


def test_it_is_asked_what_it_has(tmp_path: Path) -> None:
    """A kill between sending and noting: of step 2 a part has come."""
    writer = session(tmp_path, 1, 0, [1, 2])
    writer.row(2, 0, {"test/loss": 3.0})
    writer.row(3, 0, {"train/loss": 4.0})
    held = SinkPosition(2, frozenset(["train/loss", "train/accuracy"]))
    sink = Log(can_rewind=False, held=held)
    RecordFeed(tmp_path, sink, tmp_path / "mirrors" / "log.json").open()
    assert sink.values == [(2, {"perf/other_ms": 5.0}), (2, {"test/loss": 3.0}), (3, {"train/loss": 4.0})]


def test_its_id_is_noted_before_anything_is_sent(tmp_path: Path) -> None:
    session(tmp_path, 1, 0, [1])
    sink = Log(can_rewind=False)
    sink.error = OSError("gone")
    with pytest.raises(OSError, match="gone"):
        resumed(tmp_path, sink)
    assert noted(tmp_path)["run_id"] == "seven" and noted(tmp_path)["last_step"] == -1


# ---- media ------------------------------------------------------------------------------------------------


def test_media_come_before_the_row_of_their_step(tmp_path: Path) -> None:
    writer, sink = session(tmp_path, 1, 0, [1]), Log()
    show(tmp_path, 1, "a.txt")
    feed = RecordFeed(tmp_path, sink)
    feed.open()
    show(tmp_path, 2, "a.txt")
    writer.row(2, 0, {"train/loss": 1.0})
    feed.send_new()
    assert sink.media_ == [(1, "a.txt"), (2, "a.txt")]


def test_media_of_a_past_that_was_left_are_not_shown_until_they_are_made_again(tmp_path: Path) -> None:
    session(tmp_path, 1, 0, [1, 2, 3])
    paths = [show(tmp_path, step, "a.txt") for step in (1, 3)]
    sink = Log()
    feed = RecordFeed(tmp_path, sink)
    feed.open()
    assert sink.media_ == [(1, "a.txt"), (3, "a.txt")]
    for path in paths:
        os.utime(path, (1e9, 1e9))  # long ago
    writer = session(tmp_path, 2, 2, [])
    feed.send_new()
    assert sink.media_ == [(1, "a.txt")]
    show(tmp_path, 3, "a.txt")
    writer.row(3, 0, {"train/loss": 1.0})
    feed.send_new()
    assert sink.media_ == [(1, "a.txt"), (3, "a.txt")]


def test_files_that_came_are_not_sent_again(tmp_path: Path) -> None:
    session(tmp_path, 1, 0, [1, 2, 3])
    for step in (1, 3):
        show(tmp_path, step, "a.txt")
    for expected in ([1, 3], [3]):  # of the last step more may have come since it was noted
        sink = Log(can_rewind=False, held=SinkPosition(3))
        feed = RecordFeed(tmp_path, sink, tmp_path / "mirrors" / "log.json")
        feed.open()
        feed.save_position()
        assert [step for step, _ in sink.media_] == expected


def test_media_are_found_once_and_when_they_are_made_anew(tmp_path: Path) -> None:
    media = MediaFeed(tmp_path / "media")
    assert media.new() == []
    show(tmp_path, 10, "a.txt")
    show(tmp_path, 9, "b.txt")
    assert [(one.step, one.path.name) for one in media.new()] == [(9, "b.txt"), (10, "a.txt")]
    assert media.new() == []
    show(tmp_path, 10, "c.txt")
    assert [one.path.name for one in media.new()] == ["c.txt"]
    show(tmp_path, 9, "b.txt", b"other")
    assert [one.path.name for one in media.new()] == ["b.txt"]


def test_what_is_no_medium(tmp_path: Path) -> None:
    show(tmp_path, 1, "a.txt")
    (tmp_path / "media" / "1" / ".b.txt.tmp-0123456789ab").write_text("half")
    (tmp_path / "media" / "1" / "folder").mkdir()
    (tmp_path / "media" / "1" / "link.txt").symlink_to("/etc/passwd")
    (tmp_path / "media" / "notes").mkdir()
    (tmp_path / "media" / "2").symlink_to("/etc")
    assert [one.path.name for one in MediaFeed(tmp_path / "media").new()] == ["a.txt"]
