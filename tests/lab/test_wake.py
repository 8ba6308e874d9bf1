"""How the daemon is woken."""

from __future__ import annotations

import select
import subprocess
import sys
from pathlib import Path

import pytest

from roost.lab import wake


def test_whoever_sends_wakes_it_once(tmp_path: Path) -> None:
    with wake.listen(tmp_path) as bell:
        assert not wake.drain(bell)
        program = (
            "import sys; from pathlib import Path; from roost.lab import wake; wake.send(Path(sys.argv[1]))"
        )
        subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
        wake.send(tmp_path)
        assert select.select([bell], [], [], 10)[0]
        assert wake.drain(bell)
        assert not wake.drain(bell)


def test_nobody_there_is_no_matter(tmp_path: Path) -> None:
    wake.send(tmp_path)
    wake.listen(tmp_path).close()
    wake.send(tmp_path)
    wake.send(tmp_path / "gone")


def test_one_that_does_not_look_holds_nobody_up(tmp_path: Path) -> None:
    with wake.listen(tmp_path) as bell:
        for _ in range(2000):
            wake.send(tmp_path)
        assert wake.drain(bell)


def test_the_next_one_takes_the_place_of_one_that_was_killed(tmp_path: Path) -> None:
    old = wake.listen(tmp_path)
    with wake.listen(tmp_path) as bell:
        wake.send(tmp_path)
        assert wake.drain(bell)
        assert not wake.drain(old)
    old.close()


def test_a_path_longer_than_a_sockets_may_be(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    with wake.listen(folder) as bell:
        wake.send(folder)
        assert wake.drain(bell)


def test_a_folder_that_is_not_there_cannot_be_listened_in(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        wake.listen(tmp_path / "gone")
