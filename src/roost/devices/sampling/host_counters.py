"""CPU, memory, disks and network of the host, from /proc."""

# Standard library only

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_MB, _SECTOR_BYTES = 2**20, 512
_DEVICES_SECONDS = 60.0
"""How often disks and network devices are listed again."""
_MAX_BYTES = 1 << 20
_STAT_CPU_FIELDS = 8
"""user nice system idle iowait irq softirq steal; guest time is part of user."""
_IDLE, _IOWAIT = 3, 4

Reading = list[float | None]


class HostCounters:
    """Reads the columns `machine_columns.HOST_COLUMNS`. What the kernel counts becomes a rate between two
    calls; the first call has no rates.

    Args:
        proc: The folder /proc.
        sys: The folder /sys.
        clock: Returns seconds.
    """

    def __init__(
        self, *, proc: str = "/proc", sys: str = "/sys", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._proc, self._sys, self._clock = proc, sys, clock
        self._fds: dict[str, int] = {}
        self._before: tuple[float, list[float], list[float]] | None = None
        self._listed_at = float("-inf")
        self._disks: frozenset[bytes] = frozenset()
        self._networks: frozenset[bytes] = frozenset()

    def sample(self) -> Reading:
        """Returns one value for each column; None where the kernel gives no number."""
        now = self._clock()
        if now - self._listed_at >= _DEVICES_SECONDS or now < self._listed_at:
            self._listed_at = now
            self._disks, self._networks = self._list_disks(), self._list_networks()
        cpu, counts = self._cpu_ticks(), [*self._disk_bytes(), *self._network_bytes()]
        before, self._before = self._before, (now, cpu, counts)
        memory_mb, swap_mb = self._memory_mb()
        if before is None or now <= before[0]:
            return [None, memory_mb, swap_mb, *(None for _ in counts)]
        seconds = now - before[0]
        rates = [
            (new - old) / seconds / _MB if new >= old else None
            for new, old in zip(counts, before[2], strict=True)
        ]
        return [_busy_percent(before[1], cpu), memory_mb, swap_mb, *rates]

    def close(self) -> None:
        """Closes the files."""
        fds, self._fds = self._fds, {}
        for fd in fds.values():
            os.close(fd)

    def _read(self, name: str) -> bytes:
        """The content of a file of /proc, which stays open: opening it takes as long as reading it."""
        try:
            if name not in self._fds:
                self._fds[name] = os.open(f"{self._proc}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._fds[name], _MAX_BYTES, 0)
        except OSError:
            return b""

    def _cpu_ticks(self) -> list[float]:
        line = self._read("stat").partition(b"\n")[0].split()
        return [float(ticks) for ticks in line[1 : 1 + _STAT_CPU_FIELDS]] if line[:1] == [b"cpu"] else []

    def _memory_mb(self) -> tuple[float | None, float | None]:
        kb: dict[bytes, int] = {}
        for line in self._read("meminfo").split(b"\n"):
            name, _, size = line.partition(b":")
            if name in (b"MemTotal", b"MemAvailable", b"SwapTotal", b"SwapFree"):
                kb[name] = int(size.split()[0])
        found = []
        for total, free in ((b"MemTotal", b"MemAvailable"), (b"SwapTotal", b"SwapFree")):
            found.append((kb[total] - kb[free]) / 1024 if total in kb and free in kb else None)
        return found[0], found[1]

    def _disk_bytes(self) -> tuple[float, float]:
        read = written = 0
        for line in self._read("diskstats").split(b"\n"):
            fields = line.split(maxsplit=10)
            if len(fields) > 10 and fields[2] in self._disks:
                read += int(fields[5])
                written += int(fields[9])
        return float(read * _SECTOR_BYTES), float(written * _SECTOR_BYTES)

    def _network_bytes(self) -> tuple[float, float]:
        received = sent = 0
        for line in self._read("net/dev").split(b"\n"):
            name, _, counts = line.partition(b":")
            if counts and name.strip() in self._networks:
                fields = counts.split()
                received += int(fields[0])
                sent += int(fields[8])
        return float(received), float(sent)

    def _list_disks(self) -> frozenset[bytes]:
        """Disks with hardware: a logical volume, a RAID or a loop device would count the same bytes again."""
        return frozenset(
            os.fsencode(name).replace(b"!", b"/")
            for name in _list(f"{self._sys}/block")
            if os.path.exists(f"{self._sys}/block/{name}/device")  # noqa: PTH110
        )

    def _list_networks(self) -> frozenset[bytes]:
        """Network devices with hardware, for the same reason: bridges and bonds. In a container there is none
        of them: then all but loopback."""
        names = [
            line.partition(b":")[0].strip() for line in self._read("net/dev").split(b"\n") if b":" in line
        ]
        folder = f"{self._sys}/class/net"
        real = [name for name in names if os.path.exists(f"{folder}/{os.fsdecode(name)}/device")]  # noqa: PTH110
        return frozenset(real or (name for name in names if name != b"lo"))


def host_facts() -> dict[str, Any]:
    """Returns the name of the machine, its number of cores, and its memory in MB."""
    facts: dict[str, Any] = {"name": os.uname().nodename, "cores": os.cpu_count()}
    with suppress(OSError, ValueError):
        pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        facts["memory_mb"] = pages * page_bytes // _MB
    return facts


def _busy_percent(before: list[float], after: list[float]) -> float | None:
    if len(before) != _STAT_CPU_FIELDS or len(after) != _STAT_CPU_FIELDS:
        return None
    passed = [max(0.0, new - old) for new, old in zip(after, before, strict=True)]
    total = sum(passed)
    return 100 * (1 - (passed[_IDLE] + passed[_IOWAIT]) / total) if total else None


def _list(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []
