"""The host from files as the kernel writes them, and from the kernel."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from roost.devices.sampling import host_counters
from roost.devices.sampling.host_counters import HostCounters
from roost.devices.sampling.machine_columns import HOST_COLUMNS

MEMINFO = (
    "MemTotal:  8192 kB\nMemFree: 1 kB\nMemAvailable:   2048 kB\nSwapTotal: 4096 kB\nSwapFree: 4096 kB\n"
)
DISKS = """   8       0 sda 1 0 {0} 0 1 0 {1} 0 0 0 0 0 0 0 0 0 0
   8       1 sda1 1 0 {0} 0 1 0 {1} 0 0 0 0 0 0 0 0 0 0
 253       0 dm-0 1 0 {0} 0 1 0 {1} 0 0 0 0 0 0 0 0 0 0
"""
NETWORK = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets
    lo: 999999999 1 0 0 0 0 0 0 999999999 1 0 0 0 0 0 0
  eth0:{0} 1 0 0 0 0 0 0 {1} 1 0 0 0 0 0 0
docker0: {0} 1 0 0 0 0 0 0 {1} 1 0 0 0 0 0 0
"""


class FakeHost:
    """Files of /proc and /sys, which change as a kernel's do."""

    def __init__(self, folder: Path, *, has_hardware: bool = True) -> None:
        self.proc, self.sys, self.now = folder / "proc", folder / "sys", 100.0
        (self.proc / "net").mkdir(parents=True)
        for name in ("block/sda", "block/dm-0", "class/net/eth0", "class/net/docker0"):
            (self.sys / name).mkdir(parents=True)
        if has_hardware:
            (self.sys / "block/sda/device").mkdir()
            (self.sys / "class/net/eth0/device").mkdir()
        self.counters = HostCounters(proc=str(self.proc), sys=str(self.sys), clock=lambda: self.now)

    def says(self, cpu: str, *, sectors: tuple[int, int] = (0, 0), sent: tuple[int, int] = (0, 0)) -> None:
        for name, text in {
            "stat": f"cpu  {cpu}\ncpu0 {cpu}\nintr 1\n",
            "meminfo": MEMINFO,
            "diskstats": DISKS.format(*sectors),
            "net/dev": NETWORK.format(*sent),
        }.items():
            (self.proc / name).write_text(text)

    def sampled(self) -> dict[str, float | None]:
        return dict(zip(HOST_COLUMNS, self.counters.sample(), strict=True))


def test_what_the_kernel_counts_becomes_rates(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.says("100 0 100 800 0 0 0 0 50 0")
    first = host.sampled()
    assert first["memory_mb"] == 6 and first["swap_mb"] == 0
    assert {first[name] for name in first if name not in ("memory_mb", "swap_mb")} == {None}
    host.now += 2
    host.says("130 0 110 850 10 0 0 0 70 0", sectors=(4096, 8192), sent=(4 << 20, 2 << 20))
    assert host.sampled() == {
        "cpu": 40.0,
        "memory_mb": 6.0,
        "swap_mb": 0.0,
        "disk_read_mb_s": 1.0,
        "disk_write_mb_s": 2.0,
        "receive_mb_s": 2.0,
        "send_mb_s": 1.0,
    }, "guest time counts once, so do a partition, a logical volume and a bridge; waiting for a disk is idle"


def test_a_container_without_hardware_has_all_its_network_but_loopback(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, has_hardware=False)
    host.says("0 0 0 100 0 0 0 0 0 0")
    host.sampled()
    host.now += 1
    host.says("0 0 0 200 0 0 0 0 0 0", sent=(1 << 20, 1 << 20))
    found = host.sampled()
    assert found["receive_mb_s"] == 2.0 and found["disk_read_mb_s"] == 0


def test_a_counter_that_begins_again_gives_no_rate(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.says("0 0 0 100 0 0 0 0 0 0", sent=(1 << 30, 0))
    host.sampled()
    host.now += 1
    host.says("0 0 0 100 0 0 0 0 0 0", sent=(5, 0))
    found = host.sampled()
    assert found["receive_mb_s"] is None and found["cpu"] is None, "no time has passed for the kernel"


def test_without_proc_there_is_nothing(tmp_path: Path) -> None:
    counters = HostCounters(proc=str(tmp_path), sys=str(tmp_path))
    counters.sample()
    assert counters.sample()[:3] == [None] * 3
    counters.close()


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_this_machine() -> None:
    counters = HostCounters()
    counters.sample()
    sum(range(2_000_000))
    found = dict(zip(HOST_COLUMNS, counters.sample(), strict=True))
    counters.close()
    assert found["cpu"] is not None and 0 < found["cpu"] <= 100
    facts = host_counters.host_facts()
    assert found["memory_mb"] is not None and 0 < found["memory_mb"] < facts["memory_mb"]
