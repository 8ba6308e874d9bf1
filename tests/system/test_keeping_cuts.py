"""Every system call by which a removal, a restoring, a deletion, a pruning or a label changes the disk is
refused once, and killed once: each package is whole, or in the trash, and the next command ends the work."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from roost.operations.keeping import trash
from roost.operations.listing.list_packages import list_packages
from roost.operations.reading.verify import verify
from roost.package import labels
from roost.package.checkpoints import checkpoint
from tests.system import keeping_cuts

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="strace is of Linux"),
              pytest.mark.needs_program("strace")]  # fmt: skip

ROOT = Path(__file__).parents[2]
CALLS = ("write", "fsync", "rename", "mkdir", "unlink", "unlinkat", "rmdir")
ACTIONS = {"ENOSPC": "error=ENOSPC", "EACCES": "error=EACCES", "SIGKILL": "signal=SIGKILL"}
AT = 1000
"""Which call of its process is cut; an operation makes fewer of each kind."""
NUMBERS = itertools.count()


def program(folder: Path, operation: str, call: str, at: int, names: list[str], *strace: str) -> Any:
    """Runs `keeping_cuts` in a new folder; gives the folder and what it prints."""
    here = folder / f"{next(NUMBERS)}"
    here.mkdir()
    log = str(folder / "log")
    under = ["strace", "-f", "-qq", "-o", log, *strace]
    command = [
        *under,
        sys.executable,
        "-B",
        "-m",
        "tests.system.keeping_cuts",
        operation,
        call,
        str(at),
        *names,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(here / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=here, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return here, json.loads(done.stdout)


def count(folder: Path, operation: str) -> Counter[str]:
    """How often an operation makes each call."""
    trace = f"trace={','.join(CALLS)}"
    _, (found,) = program(folder, operation, "rmdir", 1, ["counted"], "-e", trace, "-e", "signal=none")
    assert found.get("done"), found
    lines = [line.split(maxsplit=1) for line in (folder / "log").read_text().splitlines()]
    calls = (call for pid, call in lines if pid == str(found["pid"]) and "<..." not in call)
    counted = Counter(call.partition("(")[0] for call in calls)
    counted["write"] -= counted["write"] > 0  # the report to the test
    return counted


def is_whole(package: Path) -> bool:
    return not [one for one in verify(package) if one.is_bad or "interrupted" in one.reason]


def judge(root: Path, operation: str, found: dict[str, Any]) -> None:
    """Compares what was reported with what is true, and finishes the work."""
    package, entries = root / "a", trash.entries([root])
    listed = [row.name for row in list_packages(root)] if package.exists() else []
    assert listed == (["a"] if (package / "request.json").exists() else []), found
    if operation in ("rm", "restore", "gc"):
        places = [*([package] if listed else []), *(one.path for one in entries)]
        if operation == "gc":
            assert len(places) <= 1, (found, places)
        else:
            assert len(places) == 1, (found, places)
        assert all(map(is_whole, places)), found
        if "done" in found:
            assert bool(listed) == (operation == "restore") and (operation == "rm") == bool(entries), found
        if operation == "gc":
            left = list(trash.delete([root], entries))
            assert all(one.error is None for one in left), left
            assert list((root / trash.FOLDER).iterdir()) == [], found
    elif operation == "tag":
        assert is_whole(package) and labels.read(package).tags in ([], ["baseline"]), found
        assert "done" not in found or labels.read(package).tags, found
        assert labels.add_tags(package, ["baseline"]).tags == ["baseline"]
    else:
        assert not [one for one in verify(package) if one.is_bad], found
        keeping_cuts.OPERATIONS[operation](root)
        assert is_whole(package), found
        kept = {"prune --keep": [1, 2], "prune --weights-only": [0, 1, 2], "prune --records-only": []}[
            operation
        ]
        assert checkpoint.ids(package / "Checkpoints") == kept, found
        for path in (package / "Checkpoints").iterdir():
            names = {"MANIFEST.json", "model.json", "trainer.json", "rank-0.json"}
            only = {"MANIFEST.json", "model.json"}
            assert {one.name for one in path.iterdir()} == (only if "weights" in operation else names), found


@pytest.mark.timeout(900)
@pytest.mark.parametrize("operation", keeping_cuts.OPERATIONS)
def test_an_operation_that_is_killed_anywhere_leaves_each_run_whole(
    operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    counted = count(tmp_path, operation)
    assert counted["rename"] and counted["fsync"], counted
    outcomes = cut(tmp_path, operation, counted, "SIGKILL", CALLS)
    assert outcomes == {"killed": counted.total()}, (outcomes, counted)
    cut(tmp_path, operation, counted, "ENOSPC", ("fsync",))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("action", ["ENOSPC", "EACCES"])
@pytest.mark.parametrize("operation", keeping_cuts.OPERATIONS)
def test_an_operation_that_is_refused_anywhere_leaves_each_run_whole(
    operation: str, action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    counted = count(tmp_path, operation)
    assert cut(tmp_path, operation, counted, action, CALLS).total() == counted.total()


def cut(
    folder: Path, operation: str, counted: Counter[str], action: str, calls: tuple[str, ...]
) -> Counter[str]:
    """Cuts the operation at each of these calls; gives the number of each outcome."""
    outcomes: Counter[str] = Counter()
    for call in (one for one in calls if counted[one]):
        names = [f"{call}-{action}-{number}" for number in range(1, counted[call] + 1)]
        inject = f"inject={call}:{ACTIONS[action]}:when={AT}"
        here, answers = program(folder, operation, call, AT, names, "-e", f"trace={call}", "-e", inject)
        for found in answers:
            outcomes[next((key for key in ("done", "error") if key in found), "killed")] += 1
            assert found["status"] in (0, -9), found
            judge(here / found["name"], operation, found)
    return outcomes
