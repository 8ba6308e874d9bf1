"""Kills of an evaluation: however it was cut, and with however many ranks it went on, its files must equal
those of the uninterrupted one byte for byte.

    python tests/system/soak_evaluation.py [--kills 50] [--seed 0]

Two checkpoints, six variants and two sets of real data with groups. Sessions are forked from this process and
are otherwise the worker's real program, ended at a random moment by SIGKILL or SIGTERM, all ranks or one.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from roost.operations.evaluating.evaluation_request import EvaluateRequest, check_request, make_folder
from roost.package.package import PackageFolder
from roost.package.session_folder import SessionFolder
from roost.supervisor.output.output_file import rank_output_path
from roost.worker.__main__ import main as work
from roost.worker.results import evaluate_task  # noqa: F401  - imported once, before the forks
from tests.evaluation.digits import digits_package

VARIANTS = "grid: {temperature: [1.0, 2.0, 0.5], noise: [0, 1]}\n"
RANKS = (1, 2, 3)
_SAME = ("rows.parquet", "rows.jsonl", "columns.json", "batches.jsonl", "summary.json", "cell.json")


def new_evaluation(package: PackageFolder, variants: Path, name: str) -> SessionFolder:
    """The folder of a new evaluation of the grid."""
    request = EvaluateRequest(package=package.path, checkpoints="best,1", variants=variants)
    return make_folder(check_request(request), name)


def fork_ranks(folder: SessionFolder, count: int) -> list[int]:
    """Starts a session with so many ranks; gives their pids."""
    number = folder.new_session({"kind": "evaluate", "device": "cpu"})
    pids = []
    for rank in range(count):
        pid = os.fork()
        if pid == 0:
            _become_worker(folder, number, rank, count)
        pids.append(pid)
    return pids


def _become_worker(folder: SessionFolder, number: int, rank: int, count: int) -> None:
    os.setsid()
    if count > 1:
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
        os.environ.update({name: str(value) for name, value in place.items()})
    output = os.open(rank_output_path(str(folder.output), rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(folder.package_path)
    code = 1
    try:
        code = work([str(folder.package_path), str(folder.path), str(number)])
    finally:
        os._exit(code)


def run_to_end(folder: SessionFolder, ranks: int) -> None:
    """Runs a session that nobody ends."""
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in fork_ranks(folder, ranks)]
    assert not any(codes), f"{codes}: {folder.output.read_text()[-3000:]}"


def run_until(folder: SessionFolder, ranks: int, seconds: float, way: str) -> bool:
    """Runs a session and ends it after some time, a number of parts or cells; whether it was ended."""
    pids = fork_ranks(folder, ranks)
    time.sleep(seconds)
    ending = pids if way.endswith("all") else pids[-1:]
    for pid in ending:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM if way.startswith("stop") else signal.SIGKILL)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    wrong = [code for code in codes if code not in (0, -signal.SIGKILL, -signal.SIGTERM)]
    outputs = [Path(rank_output_path(str(folder.output), rank)) for rank in range(ranks)]
    assert not wrong, f"{codes}: {[path.read_text()[-3000:] for path in outputs]}"
    return any(codes)


def digests(folder: Path) -> dict[str, str]:
    """The digest of each file of the cells."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and (path.name in _SAME or "/files/" in name):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        assert "parts" not in path.parts, f"{name} remains"
    return found


def soak(root: Path, *, kills: int, seed: int) -> None:
    """Cuts evaluations until there were so many kills; each is compared with the uninterrupted one."""
    package = digits_package(root)
    variants = root / "variants.yaml"
    variants.write_text(VARIANTS)
    chance, ways, began = random.Random(seed), Counter[str](), time.monotonic()
    first = new_evaluation(package, variants, "whole")
    before = time.monotonic()
    run_to_end(first, 1)
    duration = time.monotonic() - before
    expected = digests(first.path)
    assert len(expected) >= 24 * 3, sorted(expected)
    # Finished cells would be found again in the first evaluation.
    first.path.rename(root / "whole")
    turn = 0
    while ways.total() < kills:
        turn += 1
        folder = new_evaluation(package, variants, f"cut-{turn}")
        while ways.total() < kills:
            ranks = chance.choice(RANKS)
            way = chance.choice(["kill all", "kill all", "kill one", "stop all"])
            if not run_until(folder, ranks, chance.uniform(0.1, duration / 3), way):
                break
            ways[f"{way} of {ranks}"] += 1
        run_to_end(folder, chance.choice(RANKS))
        found = digests(folder.path)
        different = [name for name in {*found, *expected} if found.get(name) != expected.get(name)]
        assert not different, different
        shutil.rmtree(folder.path)
        seconds = time.monotonic() - began
        print(
            f"{turn} evaluations, {ways.total()} kills, all byte-identical, {seconds:.0f} s; {dict(ways)}",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)  # before anything computes: a pool of threads does not survive a fork
    with tempfile.TemporaryDirectory(prefix="roost-soak-") as folder:
        soak(Path(folder), kills=asked.kills, seed=asked.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
