"""The file of a machine's samples: what its readers get, whoever wrote it."""

from __future__ import annotations

import json
import math
import os
import random
import time
from pathlib import Path

import pytest

from roost.devices.sampling import sample_ring
from roost.devices.sampling.sample_ring import LiveSamples, RingHeader, RingWriter, boot_seconds, newest_ring
from tests.devices.sampling import rings


def test_a_sample_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = rings.shared_folder(tmp_path)
    ring = rings.writer(folder)
    live = LiveSamples(str(folder))
    assert live.new() == []
    ring.add(written := rings.sample(ring, host__cpu=25.0, GPU0__power=300.5))
    (found,) = live.new()
    assert found.boot_seconds == written.boot_seconds and found.time == written.time
    values = dict(zip(ring.columns, found.values, strict=True))
    assert values["host/cpu"] == 25 and values["GPU-0/power"] == 300.5 and math.isnan(values["GPU-1/power"])
    assert live.header is not None and live.header.pid == os.getpid()
    assert live.new() == [], "each sample once"
    assert live.missed_seconds() == 0


def test_a_day_is_kept_at_growing_intervals_within_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rings.boot_a_day_ago(monkeypatch)
    folder = rings.shared_folder(tmp_path)
    many = [{"id": f"GPU-{n:036d}", "name": "NVIDIA H100 80GB HBM3", "total_mb": 81_559} for n in range(64)]
    for cards in (rings.TWO_CARDS, many):
        size = rings.writer(folder, cards)
        assert (folder / f"{os.geteuid()}.samples").stat().st_size <= sample_ring.MAX_BYTES
        size.close()
    ring = rings.writer(folder)
    end = sample_ring.boot_seconds()
    monkeypatch.setattr(sample_ring, "boot_seconds", lambda: end)  # writing takes seconds
    begin = end - 30_000
    for second in range(30_000):
        ring.add(rings.sample(ring, begin + second, host__cpu=float(second % 100)))
    found = newest_ring(str(folder))
    assert found is not None
    seconds, tens, minutes = (found.level(level) for level in range(3))
    assert [len(seconds), len(tens)] == pytest.approx([900, 720], abs=2)
    assert len(minutes) == pytest.approx(500, abs=2) and minutes[0].boot_seconds < begin + 120
    assert [one.values[0] for one in minutes[3:9]] == pytest.approx([49.5] * 6, abs=25)
    assert sorted(one.boot_seconds for one in tens) == [one.boot_seconds for one in tens]


def test_a_new_ring_keeps_the_history_of_the_columns_that_both_have(tmp_path: Path) -> None:
    folder = rings.shared_folder(tmp_path)
    ring = rings.writer(folder)
    ring.add(rings.sample(ring, host__cpu=70.0, GPU1__power=200.0))
    ring.close()
    former = newest_ring(str(folder))
    assert former is not None
    fd = os.open(folder, os.O_RDONLY)
    cards = [{"id": "GPU-9", "name": "A100", "total_mb": 1}, rings.TWO_CARDS[1]]
    RingWriter(fd, RingHeader(cards=cards, host={}), former).close()
    assert former.is_replaced()
    found = newest_ring(str(folder))
    assert found is not None
    (one,) = found.level(0)
    values = dict(zip(found.columns, one.values, strict=True))
    assert values["host/cpu"] == 70 and values["GPU-1/power"] == 200 and math.isnan(values["GPU-9/power"])


def test_no_change_of_the_clock_hides_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = rings.shared_folder(tmp_path)
    ring, live = rings.writer(folder), LiveSamples(str(folder))
    for jump in (0.0, 86_400.0, -86_400.0):
        ring.add(rings.sample(ring)._replace(time=time.time() + jump))
        assert len(live.new()) == 1


def _header(**changes: object) -> bytes:
    header = RingHeader(
        cards=[], host={}, boot_id=sample_ring.process_identity.boot_id(), levels=((1.0, 9),) * 3
    )
    return json.dumps({**header._asdict(), **changes}).encode() + b"\n"


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\n", b"garbage\n", b"[1]\n", b"null\n", b"[" * 100_000, b"{}\n",
        _header(levels=[]), _header(levels=[[1, 10**9]] * 3), _header(levels=[[0, 9]] * 3),
        _header(levels=[[math.nan, 9]] * 3), _header(cards=[7]), _header(cards=[{"id": 1}]),
        _header(cards=[{"id": "x", "name": "y", "total_mb": 1}] * 65), _header(card_columns=["x"] * 99),
        _header(card_columns=[1]), _header(format=2), _header(boot_id="another"), _header(more=1),
        _header(host=[]), _header(levels=[["x", 1]] * 3), os.urandom(50_000),
    ],
)  # fmt: skip
def test_what_is_no_ring_is_left_out(tmp_path: Path, content: bytes) -> None:
    folder = rings.shared_folder(tmp_path)
    (folder / f"{os.geteuid()}.samples").write_bytes(content)
    assert newest_ring(str(folder)) is None
    assert LiveSamples(str(folder)).new() == []


def test_no_link_fifo_folder_or_file_of_another_name_is_followed(tmp_path: Path) -> None:
    folder = rings.shared_folder(tmp_path)
    ring = rings.writer(folder)
    ring.add(rings.sample(ring))
    own = folder / f"{os.geteuid()}.samples"
    elsewhere = own.rename(tmp_path / "elsewhere")
    own.symlink_to(elsewhere)
    assert newest_ring(str(folder)) is None
    own.unlink()
    os.mkfifo(own)
    assert newest_ring(str(folder)) is None, "and opening it did not wait"
    own.unlink()
    own.mkdir()
    assert newest_ring(str(folder)) is None
    own.rmdir()
    elsewhere.rename(folder / f"{os.geteuid() + 1}.samples")
    assert newest_ring(str(folder)) is None, "it does not belong to the user in its name"
    assert newest_ring(str(tmp_path / "missing")) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_of_two_users_the_one_who_samples_counts(tmp_path: Path) -> None:
    folder = rings.shared_folder(tmp_path)
    ring = rings.writer(folder)
    ring.add(rings.sample(ring, boot_seconds() - 60, host__cpu=1.0))
    other = (folder / "0.samples").rename(folder / "4711.samples")
    os.chown(other, 4711, 4711)
    ring = rings.writer(folder)
    ring.add(rings.sample(ring, host__cpu=2.0))
    newest = newest_ring(str(folder))
    assert newest is not None and newest.level(0)[-1].values[0] == 2
    assert (found := newest_ring(str(folder), is_fresh=True)) is not None and found.level(0)[-1].values[
        0
    ] == 2


def test_a_flipped_bit_hides_only_its_record(tmp_path: Path) -> None:
    folder = rings.shared_folder(tmp_path)
    ring = rings.writer(folder)
    now = boot_seconds()
    for ago in range(100, 0, -1):
        ring.add(rings.sample(ring, now - ago, host__cpu=50.0))
    ring.close()
    path = folder / f"{os.geteuid()}.samples"
    data, chance = bytearray(path.read_bytes()), random.Random(1)
    for _ in range(200):
        data[chance.randrange(1 << 14, len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    found = newest_ring(str(folder))
    assert found is not None
    left = found.level(0)
    assert 0 < len(left) <= 100 and all(one.values[0] == 50 for one in left)
