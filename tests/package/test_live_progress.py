"""The board: what a reader sees is one publication, whole, or the one before."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from roost.package import live_progress
from roost.package.live_progress import PHASES, ProgressFile

READS = 20_000

FLAT_OUT = """
import sys
from pathlib import Path
from roost.package.live_progress import ProgressFile
board = ProgressFile(Path(sys.argv[1]))
print(flush=True)
number = 0
while True:
    number += 1
    board.publish(number, number, number, number % 6, number, number, number, number, number, number)
"""


def publish(board: ProgressFile, number: int) -> None:
    board.publish(number, number, number, 1, number, number, number, float(number), float(number), 0.5)


def test_everything_comes_back(tmp_path: Path) -> None:
    board = ProgressFile(tmp_path / "progress")
    for phase, name in enumerate(PHASES):
        board.publish(-1, 2, 3, phase, 4, 5, 6, 7.5, 8.5, 0.25)
        found = live_progress.read(tmp_path / "progress")
        assert found is not None and abs(found.wall - time.time()) < 60
        assert (found.step, found.epoch, found.batch, found.phase) == (-1, 2, 3, name)
        assert (found.total_steps, found.steps_per_epoch, found.samples) == (4, 5, 6)
        assert (found.seconds, found.samples_per_second, found.fraction) == (7.5, 8.5, 0.25)


def test_a_run_without_end_can_be_published(tmp_path: Path) -> None:
    board = ProgressFile(tmp_path / "progress")
    board.publish(1, 0, 1, 1, 2**63, 2**63, 2**60, 0.0, 0.0, 0.0)
    found = live_progress.read(tmp_path / "progress")
    assert found is not None and found.step == 1 and found.phase == "training"
    assert found.total_steps > 2**50 and found.steps_per_epoch > 2**50 and found.samples == 2**60


def test_a_further_record_is_not_read_and_destroys_none(tmp_path: Path) -> None:
    second, first = ProgressFile(tmp_path / "progress", record=1), ProgressFile(tmp_path / "progress")
    publish(second, 5)
    assert live_progress.read(tmp_path / "progress") is None
    publish(first, 3)
    publish(ProgressFile(tmp_path / "progress", record=1), 6)
    found = live_progress.read(tmp_path / "progress")
    assert found is not None and found.step == 3 and len((tmp_path / "progress").read_bytes()) == 2 * 256


def test_nothing_published_yet(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    assert live_progress.read(path) is None
    path.touch()
    assert live_progress.read(path) is None
    ProgressFile(path)
    assert live_progress.read(path) is None
    assert live_progress.read(tmp_path) is None


@pytest.mark.parametrize("content", [b"x" * 10, b"x" * 1000, b"\xff" * 256, bytes(255) + b"\1"])
def test_a_file_of_something_else_is_no_snapshot(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "progress").write_bytes(content)
    assert live_progress.read(tmp_path / "progress") is None


def test_the_next_session_goes_on_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    first = ProgressFile(path)
    for number in range(1, 8):
        publish(first, number)
    second = ProgressFile(path)
    found = live_progress.read(path)
    assert found is not None and found.step == 7  # until it has something to say
    for number in (3, 4):
        publish(second, number)
        found = live_progress.read(path)
        assert found is not None and found.step == number


def test_a_publication_cut_in_its_middle_leaves_the_one_before(tmp_path: Path) -> None:
    """What a kill inside of the copy leaves: any first part of the new record over the older one."""
    path = tmp_path / "progress"
    board = ProgressFile(path)
    states = []
    for number in range(1, 5):
        publish(board, number)
        states.append(path.read_bytes())
    before, after = states[-2:]
    seen = set()
    for cut in range(len(before) + 1):
        (tmp_path / "cut").write_bytes(after[:cut] + before[cut:])
        found = live_progress.read(tmp_path / "cut")
        assert found is not None
        seen.add(found.step)
    assert seen == {3, 4}


def test_no_read_is_torn_while_another_process_publishes_flat_out(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    with subprocess.Popen([sys.executable, "-c", FLAT_OUT, str(path)], stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            while live_progress.read(path) is None:
                pass
            newest, distinct = 0, 0
            reads = 0
            while reads < READS or distinct < 500:  # on a busy machine the writer may wait for its turn
                reads += 1
                seen = live_progress.read(path)
                assert seen is not None
                number = seen.step
                assert (seen.epoch, seen.batch, seen.total_steps, seen.steps_per_epoch) == (number,) * 4
                assert (seen.samples, seen.seconds, seen.samples_per_second, seen.fraction) == (number,) * 4
                assert seen.phase == PHASES[number % 6]
                assert number >= newest
                distinct += number > newest
                newest = number
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
    last = live_progress.read(path)  # it survives the death of who wrote it
    assert last is not None and last.step >= newest


def test_a_full_disk_is_an_error_at_once_and_no_crash_later(tmp_path: Path) -> None:
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from roost.package.live_progress import ProgressFile\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "try:\n"
        "    ProgressFile(Path(sys.argv[1]))\n"
        "except OSError as error:\n"
        "    print(error.errno)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "p")], capture_output=True, text=True
    )
    assert done.stdout.strip() == str(errno.EFBIG), done.stderr
    ProgressFile(tmp_path / "progress")
    assert (tmp_path / "progress").stat().st_blocks > 0  # no hole that a full disk could not fill


def test_a_reader_follows_changes_and_a_file_in_the_place_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    reader = live_progress.ProgressReader(path)
    assert reader.read() is None
    for number in (1, 2):
        live_progress.reset(path)
        assert reader.read() is None or number == 2
        writer = ProgressFile(path)
        for step in (1, 2, 3):
            writer.publish(step * number, 0, 0, 1, 0, 0, 0, 0.0, 0.0, 0.0)
            found = reader.read()
            assert found is not None
            assert found.step == step * number
            assert reader.read() is found, "not parsed again"
            assert live_progress.read(path) == found
