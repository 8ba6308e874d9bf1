"""Keeping and throwing away runs, through the real program."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.operations.keeping import trash
from roost.operations.listing.list_packages import list_packages
from roost.operations.reading.verify import verify
from roost.package import labels
from tests.cli.programs import ROOST, Terminal, roost
from tests.lab.labs import Lab
from tests.mounting import may_mount
from tests.operations.packages import package


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "c"):
        package(tmp_path / "runs", name)
    return tmp_path / "runs"


def said(*arguments: object, code: int = 0) -> str:
    """What a command prints, without tracebacks; an error is one line."""
    done = roost(*arguments)
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert len([line for line in done.stderr.splitlines() if "error:" in line]) == (code not in (0,)), (
        done.stderr
    )
    return done.stdout + done.stderr


def test_a_run_is_labelled_removed_restored_and_deleted(runs: Path) -> None:
    assert "a: baseline, lr-study" in said("tag", "baseline,lr-study", "a", "b")
    assert said("tag").split() == ["TAG", "PACKAGES", "baseline", "2", "lr-study", "2"]
    assert said("tag", "a") == "a: baseline, lr-study\n"
    said("tag", "baseline", "--remove", "tag:baseline")
    said("note", "a", "two\nlines \x1b]0;title\x07")
    assert said("note", "a") == "two\nlines \\x1b]0;title\\x07\n"
    said("note", "a", "--delete")
    assert "no note" in said("note", "a")
    said("star", "c")
    assert "c is starred" in said("rm", "runs", "--yes", code=5)
    assert "--yes" in said("rm", "tag:lr-study", code=2)
    shown = said("rm", "tag:lr-study", "--yes")
    assert "lr-study" in shown and "valid/loss 0.75" in shown and "moved 2 packages" in shown
    assert [row.name for row in list_packages(runs)] == ["c"]
    listed = json.loads(said("restore", "--json"))
    assert [one["name"] for one in listed] == ["a", "b"] and all(one["num_bytes"] > 0 for one in listed)
    assert said("restore", "runs/a") == "runs/a\n"
    assert "kept: 1 removed later" in said("gc")
    assert "freed" in said("gc", "--all", "--yes")
    assert "is empty" in said("restore")
    said("unstar", "c")
    assert "moved 2 packages" in said("rm", "runs", "--yes")


def test_a_person_is_asked(runs: Path) -> None:
    for key, left in (("n", 3), ("y", 2)):
        asked = Terminal("rm", "runs/a")
        asked.wait_for("to the trash? [y/N]:")
        asked.type(key)
        code, _ = asked.end()
        assert code == (0 if key == "y" else 1)
        assert len(list_packages(runs)) == left


def test_sizes_before_and_after_a_pruning(runs: Path) -> None:
    before = json.loads(said("du", "runs", "--json"))
    assert {one["name"] for one in before["packages"]} == {"a", "b", "c"} and before["trash"] == 0
    assert "state_0" in said("prune", "a", "--keep", "best,last", "--dry-run")
    assert "nothing was removed" in said("prune", "a", "--keep", "best,last", "--dry-run")
    said("prune", "a", "--keep", "best,last", code=2)
    said("prune", "a", "--keep", "best,last", "--yes")
    after = {one["name"]: one for one in json.loads(said("du", "--json"))["packages"]}
    assert after["a"]["checkpoints"] < after["b"]["checkpoints"]
    assert after["a"]["prunable"] == 0 < after["b"]["prunable"]
    assert "pruned    checkpoint _pruned.json" in said("verify", "a")
    said("prune", "a", "--records-only", "--yes")
    assert "its checkpoints were removed on" in said("continue", "a", code=5)


def both(*arguments: str) -> None:
    """Runs a command in two processes at the same time; neither has a traceback."""
    started = [
        subprocess.Popen([*ROOST, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    errors = [one.communicate(timeout=90)[1] for one in started]
    assert not any("Traceback" in error for error in errors), errors
    assert {one.returncode for one in started} <= {0, 3, 5}, errors


def test_two_processes_remove_and_restore_the_same_runs(runs: Path) -> None:
    both("rm", "a", "b", "c", "--yes")
    entries = trash.entries([runs])
    assert sorted(one.name for one in entries) == ["a", "b", "c"] and list_packages(runs) == []
    assert not any(finding.is_bad for one in entries for finding in verify(one.path))
    both("restore", "a", "b", "c")
    left = [Path(one.path) for one in trash.entries([runs])]
    restored = [runs / row.name for row in list_packages(runs)]
    assert len(left) + len(restored) == 3 and restored
    assert not any(finding.is_bad for path in (*left, *restored) for finding in verify(path))
    both("prune", "runs", "--records-only", "--yes")
    assert not any(finding.is_bad for path in restored for finding in verify(path))


def test_bad_input_is_one_line(runs: Path) -> None:
    request = runs / "b" / "request.json"
    request.write_text(request.read_text().replace('"format": 1', '"format": 9'))
    shutil.rmtree(runs / "c" / "records")
    (runs / "c" / "request.json").unlink()
    assert [row.name for row in list_packages(runs)] == ["a", "b"], "a newer one is listed"
    for arguments, code in (
        (("rm", "b", "--yes"), 5),
        (("prune", "b", "--records-only", "--yes"), 5),
        (("tag", "x", "b"), 5),
        (("rm", "runs/c", "--yes"), 3),
        (("rm", "--", "--all"), 3),
        (("rm", "no\x1b[31msuch"), 3),
        (("tag", "--", "-debug", "a"), 2),
        (("tag", ",".join(f"t{number}" for number in range(10_000)), "a"), 2),
        (("note", "a", "x" * 70_000), 2),
        (("note", "a", b"\xff\xfe".decode(errors="surrogateescape")), 2),
        (("restore", "nothing"), 3),
        (("gc", "nowhere"), 3),
        (("gc", "--older", "soon"), 4),
        (("gc", "--all", "--older", "3d"), 2),
        (("prune", "a", "--keep", "99", "--yes"), 5),
    ):
        said(*arguments, code=code)
    assert labels.read(runs / "a") == labels.Labels() and (runs / "a").is_dir()


def test_the_commands_of_the_guide_run_as_they_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for name in ("A", "B", "C"):
        package(tmp_path / "runs", name, state="failed" if name == "C" else "succeeded")
    page = (Path(__file__).parents[2] / "docs" / "guide" / "keeping.md").read_text()
    lines = [
        line for block in re.findall(r"```bash\n(.*?)```", page, re.DOTALL) for line in block.splitlines()
    ]
    assert len(lines) == 20
    for line in lines:
        _, *words = shlex.split(line, comments=True)
        shown = said(*words)
        if words[0] == "ls":
            assert [row.split()[0] for row in shown.splitlines()[1:]] == ["A"]
    assert [row.name for row in list_packages(tmp_path)] == ["A", "B"]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path / "lab")
    with lab.here():
        yield lab
    lab.close()


def test_the_queue_knows_a_task_whose_package_was_removed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(lab.folder / "cache"))
    task = lab.queue("true")
    assert f"waits in the queue: task {task.id}" in said("rm", task.id, "--yes", code=5)
    with lab.store() as store:
        store.request_stop(task.id, "stop")
    said("rm", task.id, "--yes")
    assert task.name in said("tasks")
    assert "its package was removed" in said("tasks") and "its package was removed" in said("why", task.id)
    assert "roost restore" in said("logs", task.id, code=3)
    rebuilt = said("lab", "rebuild", task.package.rpartition("/")[0])
    assert "none" in rebuilt.splitlines()[0], rebuilt
    said("restore", task.package)
    assert Path(task.package).is_dir()


@pytest.mark.skipif(not may_mount(), reason="only root may mount a small disk")
def test_a_full_disk_and_a_read_only_one_lose_nothing(tmp_path: Path) -> None:
    made, program = package(tmp_path / "made", "a"), " ".join(ROOST)
    script = f"""
    set -u
    mount -t tmpfs -o size=1m tmpfs {tmp_path}/disk && cp -a {made.path} {tmp_path}/disk/a
    cd {tmp_path}/disk
    {program} tag first a; echo "tag: $?"
    head -c 2m /dev/zero > full 2> /dev/null; [ $(stat -f -c %a .) = 0 ] && echo "the disk is full"
    {program} tag second a; echo "tag on a full disk: $?"
    {program} prune a --records-only --yes; echo "prune on a full disk: $?"
    {program} verify a > /dev/null; echo "verify: $?"
    {program} rm a --yes; echo "rm on a full disk: $?"
    {program} gc --all --yes; echo "gc on a full disk: $?"
    mount -o remount,ro {tmp_path}/disk
    {program} gc --all --yes; echo "gc read-only: $?"
    """
    (tmp_path / "disk").mkdir()
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", script], capture_output=True, text=True, env=environment
    )
    output = done.stdout + done.stderr
    for line in ("tag: 0", "the disk is full", "tag on a full disk: 1", "prune on a full disk: 1",
                 "verify: 0", "rm on a full disk: 0", "gc on a full disk: 0", "gc read-only: 0"):  # fmt: skip
        assert f"{line}\n" in output, output
    assert "Traceback" not in output and done.stderr.count("No space left on device") == 2
