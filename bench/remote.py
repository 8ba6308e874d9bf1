"""What a remote copy costs a step, and how fast a package is uploaded to a folder.

    python bench/remote.py [--rounds 5] [--mb 512]

*A step*: `roost run` of a small MLP, 4,000 steps, a checkpoint every 200, with a remote copy in a folder (an
upload each second) and without, in turns; µs of wall time per step, as the run itself counts them, without
its start. The upload is a process of its own, niced: it costs a step what it takes of the cores.

*An upload*: a package with a checkpoint of so many MB, to a folder of the same disk, and its restore, beside
`shutil.copytree`, and beside the least that a verified copy takes: copytree, fsync of each file, and the
SHA-256 of each file and of its copy. The page cache has the files.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from roost.config.values.store_url import parse_url
from roost.package import live_progress
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.package import PackageFolder
from roost.package.remote import remote_status
from roost.package.remote.remote_copy import RemoteCopy
from roost.package.remote.restore import restore
from roost.package.remote.upload import Uploader, UploadOptions

STEPS = 4000


def step_microseconds(project: Path, name: str, remote: Path | None) -> float:
    """The wall time of a step of one run."""
    words = [f"max_steps={STEPS}", "~max_epochs", "checkpoint.every=200", "threads=1", "validate_every=1000"]
    command = [sys.executable, "-P", "-m", "roost", "run", "config.yaml", *words, "--name", name]
    command += [] if remote is None else ["--remote", str(remote), "+remote.every=1s"]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    progress = live_progress.read(project / "runs" / name / "progress")
    assert progress is not None
    assert progress.step == STEPS
    if remote is not None:
        status = remote_status.read(project / "runs" / name)
        assert status is not None
        assert status.step == STEPS
    return progress.seconds / STEPS * 1e6


def time_steps(root: Path, rounds: int) -> None:
    project = root / "project"
    new = [sys.executable, "-P", "-m", "roost", "new", str(project), "--template", "clean"]
    subprocess.run(new, check=True, capture_output=True)
    found: dict[str, list[float]] = {"without": [], "with": []}
    for number in range(rounds):
        for case in sorted(found, reverse=bool(number % 2)):
            remote = root / "store" if case == "with" else None
            found[case].append(step_microseconds(project, f"{case}-{number}", remote))
    print("| a step | µs | ratio |\n|---|---|---|")
    base = statistics.median(found["without"])
    for case, values in found.items():
        middle = statistics.median(values)
        print(f"| {case} | {middle:.1f} ({min(values):.1f} … {max(values):.1f}) | {middle / base:.3f} |")


def verify_copy(source: Path, copy: Path) -> None:
    """Syncs the files of a copy and compares their SHA-256 with those of the source."""
    for path in sorted(path for path in copy.rglob("*") if path.is_file()):
        with path.open("rb") as copied, (source / path.relative_to(copy)).open("rb") as given:
            os.fsync(copied.fileno())
            digests = [hashlib.file_digest(file, "sha256").digest() for file in (given, copied)]
            assert digests[0] == digests[1]


def time_uploads(root: Path, rounds: int, mb: int) -> None:
    import numpy as np

    package = PackageFolder.create(root / "large", name="A", values={}, request={"created": time.time()})
    state = {"model": {"weight": np.frombuffer(os.urandom(mb * 10**6), np.uint8)}}
    checkpoint.write(package.checkpoints, state, Manifest(id=0, step=1, epoch=0, batch=0, line=[(0, 0)]))
    found: dict[str, list[float]] = {"copytree": [], "verified copy": [], "upload": [], "restore": []}
    for number in range(rounds):
        store, back, copied = (root / f"{name}-{number}" for name in ("store", "back", "copied"))
        url = parse_url(str(store))
        begin = time.perf_counter()
        shutil.copytree(package.path, copied)
        copied_at = time.perf_counter()
        verify_copy(package.path, copied)
        verified_at = time.perf_counter()
        Uploader(package, RemoteCopy.at(url, "A"), UploadOptions()).upload(is_live=False)
        uploaded_at = time.perf_counter()
        restore(RemoteCopy.at(url, "A"), back)
        restored_at = time.perf_counter()
        times = (
            copied_at - begin,
            verified_at - begin,
            uploaded_at - verified_at,
            restored_at - uploaded_at,
        )
        for case, seconds in zip(found, times, strict=True):
            found[case].append(mb / seconds)
        for made in (store, back, copied):
            shutil.rmtree(made)
    print(f"\n| {mb} MB, a folder | MB/s |\n|---|---|")
    for case, values in found.items():
        print(f"| {case} | {statistics.median(values):.0f} ({min(values):.0f} … {max(values):.0f}) |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mb", type=int, default=512)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as folder:
        time_steps(Path(folder), asked.rounds)
        time_uploads(Path(folder), asked.rounds, asked.mb)


if __name__ == "__main__":
    main()
