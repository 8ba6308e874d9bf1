"""Which process samples the machine, of one user and of two."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.devices import lease_files
from roost.devices.sampling import machine_sampler, sample_ring
from roost.devices.sampling.machine_sampler import MachineSampler
from roost.devices.sampling.sample_ring import newest_ring
from tests.devices.leasing import NEEDS_ROOT, NOBODY, Child, shared_root
from tests.devices.sampling import rings
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
CPU = {"ROOST_DEVICES": "cpu"}


@contextlib.contextmanager
def sampler(folder: Path, devices: str = "cpu") -> Iterator[MachineSampler]:
    made = MachineSampler(str(folder), {"ROOST_DEVICES": devices})
    yield made
    pids = made.child_pids
    made.close()
    for pid in pids:
        os.waitpid(pid, 0)


def test_one_of_many_samples_and_the_next_one_goes_on(tmp_path: Path) -> None:
    folder = rings.shared_folder(tmp_path)
    with sampler(folder) as second:
        with sampler(folder) as first:
            first.sample(0.0)
            assert not first.is_sampling, "no sample is missed"
            first.sample(1.0)
            second.sample(1.0)
            assert first.is_sampling and not second.is_sampling and second.error == ""
        wait_for(lambda: (second.sample(1.0), second.is_sampling)[1])
    found = newest_ring(str(folder), is_fresh=True)
    assert found is not None
    assert len(found.level(0)) >= 1 and found.header.host["cores"] == os.cpu_count()


def test_the_cards_come_when_they_have_answered_and_the_host_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_sampler, "_INTERVAL_PER_COST", 0)  # a busy machine has dear samples
    folder = rings.shared_folder(tmp_path)
    with sampler(folder, "sim:2x24GB") as own:
        own.sample(1.0)
        found = newest_ring(str(folder))
        assert found is not None and found.header.cards == [] and found.level(0)[-1].state == 3
        # The ring has one place for each second: a sample of the same second would take that of the first.
        wait_for(lambda: int(sample_ring.boot_seconds()) > int(found.level(0)[0].boot_seconds))

        def has_cards() -> bool:
            own.sample(0.0)
            ring = newest_ring(str(folder))
            return ring is not None and len(ring.header.cards) == 2 and ring.level(0)[-1].state == 0

        wait_for(has_cards)
    found = newest_ring(str(folder))
    assert found is not None and len(found.level(0)) > 1, "the samples of the host before are kept"
    newest = dict(zip(found.columns, found.level(0)[-1].values, strict=True))
    assert newest["SIM-1/memory_mb"] == 0 and math.isnan(newest["SIM-1/power"])


def test_what_a_sample_costs_bounds_how_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.2 % of a core, whatever the host's files take to read."""
    monkeypatch.setattr(machine_sampler, "_INTERVAL_PER_COST", 1e9)
    with sampler(rings.shared_folder(tmp_path)) as own:
        own.sample(1.0)
        own._sampling._next = 0.0  # type: ignore[union-attr]
        own.sample(0.0)
        assert own._sampling._next > time.monotonic() + 1000  # type: ignore[union-attr]


def test_a_folder_that_cannot_be_written_is_said_and_tried_again_later(tmp_path: Path) -> None:
    with sampler(tmp_path / "missing") as own:
        own.sample(1.0)
        own.sample(1.0)
        assert not own.is_sampling and own.error == "No such file or directory"


@NEEDS_ROOT
def test_two_users_have_one_process_that_samples(tmp_path: Path) -> None:
    root = shared_root(tmp_path)
    folder = lease_files.make_shared_folder(root / lease_files.SAMPLES_FOLDER)

    def sample() -> MachineSampler:
        made = MachineSampler(str(folder), CPU)
        made.sample(1.0)
        assert made.is_sampling
        return made

    other = Child(sample, uid=NOBODY)
    assert other.is_done
    with sampler(folder) as own:
        own.sample(1.0)
        assert not own.is_sampling
        found = newest_ring(str(folder), is_fresh=True)
        assert found is not None and found.header.pid == other.pid, "its samples are ours, too"
        assert other.end() == 0
        wait_for(lambda: (own.sample(1.0), own.is_sampling)[1])
        assert sorted(path.name for path in folder.glob("*.samples")) == ["0.samples", f"{NOBODY}.samples"]
        found = newest_ring(str(folder), is_fresh=True)
        assert found is not None and found.header.pid == os.getpid()
        assert len(found.level(0)) >= 2, "with the history of the other"


@NEEDS_ROOT
def test_a_user_who_keeps_the_lock_stops_the_others_for_seconds_only(tmp_path: Path) -> None:
    import fcntl

    root = shared_root(tmp_path)
    folder = lease_files.make_shared_folder(root / lease_files.SAMPLES_FOLDER)

    def lock() -> int:
        fd = os.open(folder, os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX)
        return fd

    other = Child(lock, uid=NOBODY)
    with sampler(folder) as own:
        own.sample(1.0)
        assert not own.is_sampling
        wait_for(lambda: (own.sample(60.0), own.is_sampling)[1])
    assert sample_ring.newest_ring(str(folder), is_fresh=True) is not None and other.end() == 0


def test_a_process_of_the_same_user_that_is_stopped_stops_the_others_for_seconds_only(tmp_path: Path) -> None:
    folder = rings.shared_folder(tmp_path)

    with sampler(folder) as stopped, sampler(folder) as second, sampler(folder) as third:
        stopped.sample(1.0)
        assert stopped.is_sampling
        second.sample(5.0)
        assert not second.is_sampling, "it may only be late"
        wait_for(lambda: (second.sample(60.0), second.is_sampling)[1])
        third.sample(1.0)
        assert not third.is_sampling
        wait_for(lambda: (stopped.sample(0.0), not stopped.is_sampling)[1])
        second.sample(0.0)
        assert second.is_sampling
        found = newest_ring(str(folder), is_fresh=True)
        assert found is not None and len(found.level(0)) >= 2, "with the history of the first"


def test_a_process_that_takes_over_a_day_of_samples_goes_on_at_once(tmp_path: Path) -> None:
    """To copy them costs some hundred times as much as a sample."""
    folder = rings.shared_folder(tmp_path)
    with sampler(folder) as first:
        first.sample(1.0)
        ring = first._sampling._ring  # type: ignore[union-attr]
        assert ring is not None
        last = newest_ring(str(folder)).level(0)[-1]  # type: ignore[union-attr]
        for level, (seconds, count) in enumerate(ring.header.levels):
            for back in range(1, count):
                ring._write(level, last._replace(boot_seconds=last.boot_seconds - back * seconds))
    with sampler(folder) as second:
        wait_for(lambda: (second.sample(1.0), second.is_sampling)[1])
        assert second._sampling._next < time.monotonic() + 2  # type: ignore[union-attr]
