"""The time to stage an archive, compared with what people type.

    python bench/stage.py [--rounds 5] [--disk DIR]

Two data sets of noise, which does not compress: 1,000 files of 100 kB, and 10,000 of 5 kB. Each is packed as
tar, tar.gz, tar.zst and zip. roost reads the archive, computes its SHA-256, unpacks it and publishes the
folder by a rename. Next to it, in the same round: `tar xf` or `unzip -q` of the archive where it is; and with
the steps of a careful person, `cp` to the scratch folder, `sha256sum`, then the same. Nothing is synced by
any of them; the archive is in the page cache, so reading it costs little. Wall time and CPU time of all
processes, medians over rounds; the folder is on ``--disk``, by default /dev/shm.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from roost.config.sections.staging import StagedArchiveSettings
from roost.project.staging import archive_staging

SETS = {"1,000 × 100 kB": (1000, 100_000), "10,000 × 5 kB": (10_000, 5_000)}
PACK = {
    "data.tar": "tar cf {archive} -C {folder} .",
    "data.tar.gz": "tar czf {archive} -C {folder} .",
    "data.tar.zst": "tar --zstd -cf {archive} -C {folder} .",
    "data.zip": "cd {folder} && zip -qr {archive} .",
}
Method = Callable[[Path, Path], None]


def make(folder: Path, number: int, size: int) -> None:
    choose = random.Random(0)
    for one in range(number):
        path = folder / f"class_{one % 100}" / f"{one}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(choose.randbytes(size))


def unpack(archive: Path, target: Path) -> None:
    is_zip = archive.suffix == ".zip"
    words = ["unzip", "-q", archive, "-d", target] if is_zip else ["tar", "xf", archive, "-C", target]
    subprocess.run(list(map(str, words)), check=True)


def carefully(archive: Path, target: Path) -> None:
    copy = target / archive.name
    subprocess.run(["cp", archive, copy], check=True)
    subprocess.run(["sha256sum", copy], check=True, stdout=subprocess.DEVNULL)
    (target / "files").mkdir()
    unpack(copy, target / "files")
    copy.unlink()


def stage(archive: Path, target: Path) -> None:
    with open(os.devnull, "w") as nothing, contextlib.redirect_stderr(nothing):
        archive_staging.stage(StagedArchiveSettings(archive=str(archive), to=str(target)), project=target)


METHODS: dict[str, Method] = {"stage": stage, "tar or unzip": unpack, "cp, sha256sum, it": carefully}


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measure(home: Path, archive: Path, rounds: int) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in METHODS}
    names = list(METHODS)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            target = Path(tempfile.mkdtemp(dir=home))
            began, cpu = time.perf_counter(), cpu_seconds()
            METHODS[name](archive, target)
            found[name].append((time.perf_counter() - began, cpu_seconds() - cpu))
            shutil.rmtree(target)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--disk", type=Path, default=Path("/dev/shm"))
    given = parser.parse_args()
    print(f"{given.disk}, {given.rounds} rounds, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print("| data | archive | method | s | × tar or unzip | MB/s | CPU s |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=given.disk) as made:
        home = Path(made)
        for title, (number, size) in SETS.items():
            folder = home / "source"
            make(folder, number, size)
            for name, command in PACK.items():
                archive = home / name
                words = command.format(archive=archive, folder=folder)
                subprocess.run(["sh", "-c", words], check=True)
                times = measure(home, archive, given.rounds)
                plain = statistics.median(wall for wall, _ in times["tar or unzip"])
                for method, values in times.items():
                    wall = statistics.median(one for one, _ in values)
                    low, high = min(one for one, _ in values), max(one for one, _ in values)
                    cpu = statistics.median(one for _, one in values)
                    speed = archive.stat().st_size / 1e6 / wall
                    print(
                        f"| {title} | {name} | {method} | {wall:.2f} ({low:.2f} … {high:.2f}) | "
                        f"{wall / plain:.2f} | {speed:.0f} | {cpu:.2f} |",
                        flush=True,
                    )
                archive.unlink()
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
