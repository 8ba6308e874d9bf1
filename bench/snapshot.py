"""The cost of copying a project into a package, compared with plain copies.

    python bench/snapshot.py [--rounds 9] [--disk DIR]

2,000 files, 12 MB, 100 folders, in a git repository; on the disk, and on /dev/shm where there is one. roost
selects the files (with git and without), hashes each, and copies them; `shutil.copytree` and `cp -r` copy the
same tree without its `.git`. Each round runs all methods in turn, each into a new folder; figures are the
median over rounds, and its ratio to `cp -r`. Goal: at most 1.2 times a plain copy.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from roost.package import snapshot

FILES, FOLDERS, BYTES = 2000, 100, 12_000_000
Method = Callable[[Path, Path], object]


def make(project: Path) -> None:
    choose = random.Random(0)
    folders = [project / f"package_{n % 10}" / f"module_{n}" for n in range(FOLDERS)]
    for folder in folders:
        folder.mkdir(parents=True)
    for number in range(FILES):
        size = choose.randint(1000, 2 * BYTES // FILES - 1000)
        (folders[number % FOLDERS] / f"file_{number}.py").write_bytes(choose.randbytes(size))


def roost_copy(project: Path, target: Path) -> None:
    target.mkdir()
    manifest = snapshot.copy(snapshot.select(project), target)
    assert len(manifest["files"]) == FILES


def copytree(project: Path, target: Path) -> None:
    shutil.copytree(project, target, ignore=shutil.ignore_patterns(".git"))


def cp(project: Path, target: Path) -> None:
    target.mkdir()
    names = [path for path in project.iterdir() if path.name != ".git"]
    subprocess.run(["cp", "-r", *names, target], check=True)


def measure(parent: Path, rounds: int) -> None:
    with tempfile.TemporaryDirectory(dir=parent) as name:
        home = Path(name)
        plain, tracked = home / "plain", home / "tracked"
        make(plain)
        shutil.copytree(plain, tracked)
        for command in (["init", "-q"], ["add", "."]):
            subprocess.run(["git", "-C", tracked, *command], check=True, capture_output=True)
        methods: dict[str, tuple[Method, Path]] = {
            "roost select + copy, git": (roost_copy, tracked),
            "roost select + copy, no git": (roost_copy, plain),
            "  select alone, git": (lambda project, _: snapshot.select(project), tracked),
            "  select alone, no git": (lambda project, _: snapshot.select(project), plain),
            "shutil.copytree": (copytree, tracked),
            "cp -r": (cp, tracked),
        }
        times: dict[str, list[float]] = {name: [] for name in methods}
        for round_ in range(-1, rounds):  # the first one warms up
            for name, (method, project) in methods.items():
                begin = time.perf_counter()
                method(project, home / "target")
                seconds = time.perf_counter() - begin
                shutil.rmtree(home / "target", ignore_errors=True)
                if round_ >= 0:
                    times[name].append(seconds * 1000)
        reference = statistics.median(times["cp -r"])
        print(f"\n{parent}: {FILES} files, {BYTES / 1e6:.0f} MB{'':14} ms   min – max          × cp -r")
        for name, found in sorted(times.items(), key=lambda item: statistics.median(item[1])):
            median, spread = statistics.median(found), f"{min(found):.0f} – {max(found):.0f}"
            print(f"{name:44} {median:7.0f}   {spread:15}  {median / reference:7.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--disk", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args()
    for parent in (arguments.disk, Path("/dev/shm")):
        if parent.is_dir():
            measure(parent, arguments.rounds)


if __name__ == "__main__":
    main()
