"""Two machines on one package: another hostname and boot, the same files, and a lock that does not reach."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from roost.package.owner import owner_file
from roost.package.package import PackageFolder
from tests.mounting import may_mount
from tests.package.owner import other_machine
from tests.processes import kill_all_in, living_in
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(not may_mount(), reason="only root may be another machine")
ROOST = str(Path(sys.executable).parent / "roost")
PROGRAM = """
import pathlib, time
n = 0
while not pathlib.Path("{end}").exists():
    print("step", n, "loss", 1 / (n + 1), flush=True)
    n += 1
    time.sleep(0.02)
"""
FAR = """
hostname far
mount --bind boot /proc/sys/kernel/random/boot_id
mount --bind lock_of_far runs/one/lock
exec "$@"
"""
QUICK = (
    "import sys; from roost.package.owner import other_owner; other_owner.SECOND_LOOK_SECONDS = 0.1; "
    "from roost.cli.__main__ import main; main()"
)
"""The real program; it need not wait 15 s for a second look."""
STEALS = """
import os, pathlib, time
from roost.cli.__main__ import main
from roost.package.owner import other_owner
find_other = other_owner.find_other

def found_at_the_same_moment(package):
    found = find_other(package)
    pathlib.Path("ready_" + os.uname().nodename).touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    return found

other_owner.find_other = found_at_the_same_moment
main()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "train.py").write_text(PROGRAM.format(end=tmp_path / "end"))
    (tmp_path / "boot").write_text("22222222-2222-2222-2222-222222222222\n")
    (tmp_path / "lock_of_far").touch()
    yield tmp_path
    (tmp_path / "end").touch()
    kill_all_in(tmp_path)


def here(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [ROOST, "run", "--name", "one", *words, "--", sys.executable, "train.py"]
    started = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: "step 3 " in output(folder))
    return started


def far(folder: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs a command on the other machine."""
    return subprocess.run(of_far(command), cwd=folder, capture_output=True, text=True, timeout=100)


def of_far(command: Sequence[str], name: str = "far") -> list[str]:
    isolated = ["unshare", "--uts", "--mount", "--fork", "bash", "-ec", FAR.replace("far", name), name]
    return [*isolated, *command]


def output(folder: Path) -> str:
    path = folder / "runs" / "one" / "_output.txt"
    return path.read_text() if path.exists() else ""


def record(folder: Path, session: int) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / f"runs/one/sessions/{session}.json").read_text())
    return found


def test_a_second_machine_is_refused_and_with_steal_takes_over(folder: Path) -> None:
    package = folder / "runs" / "one"
    run = here(folder)
    again = [ROOST, "run", "--name", "one", "--detach", "--", sys.executable, "train.py"]
    for command in ([ROOST, "continue", "runs/one", "--detach"], again):
        refused = far(folder, command)
        assert refused.returncode == 5, refused.stderr
        host = os.uname().nodename
        assert f"in use by host {host} (session 1, user" in refused.stderr and "--steal" in refused.stderr
    assert [one.number for one in PackageFolder.open(package).sessions()] == [1]

    stolen = far(folder, [ROOST, "continue", "runs/one", "--steal", "--detach"])
    assert stolen.returncode == 0 and "which has stopped" in stolen.stderr, stolen.stderr
    run.communicate(timeout=100)
    assert run.returncode == 5
    first = record(folder, 1)
    assert (first["state"], first["exit_code"], first["reason"]) == ("failed", 5, "taken over")
    assert str(first["error"]).startswith("taken over by host far (session 2")
    assert not (package / "sessions" / "1.seal.json").exists()

    wait_for(lambda: output(folder).count("step 3 ") == 2)
    (folder / "end").touch()
    wait_for(lambda: record(folder, 2)["state"] == "succeeded")
    wait_for(lambda: not owner_file.path_of(package).exists())
    lines = output(folder).splitlines()
    assert lines.count("step 0 loss 1.0") == 2
    second = lines[len(lines) - lines[::-1].index("step 0 loss 1.0") - 1 :]
    assert [line.split()[1] for line in second] == [str(n) for n in range(len(second))], "only its own lines"
    request = json.loads((package / "sessions" / "2.request.json").read_text())
    assert request["host"] == "far" and request["taken_over"].startswith("taken over from host")
    assert not living_in(package)


def test_of_two_that_steal_at_the_same_moment_one_wins(folder: Path) -> None:
    package, run = folder / "runs" / "one", here(folder)
    for name, boot in (("b", "2" * 8), ("c", "3" * 8)):
        (folder / f"boot_of_{name}").write_text(f"{boot}-2222-2222-2222-222222222222\n")
        (folder / f"lock_of_{name}").touch()
    steal = [sys.executable, "-c", STEALS, "continue", "runs/one", "--steal", "--detach"]
    both = [
        subprocess.Popen(
            [word.replace("--bind boot ", f"--bind boot_of_{name} ") for word in of_far(steal, name)],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("b", "c")
    ]
    wait_for(lambda: (folder / "ready_b").exists() and (folder / "ready_c").exists())
    (folder / "go").touch()
    said = [one.communicate(timeout=90)[1] for one in both]
    assert sorted(one.returncode for one in both) == [0, 5], said
    (loser,) = (text for one, text in zip(both, said, strict=True) if one.returncode)
    assert "at the same moment" in loser and "Traceback" not in loser, loser
    run.communicate(timeout=100)
    assert run.returncode == 5
    (folder / "end").touch()
    wait_for(lambda: record(folder, 2)["state"] == "succeeded")
    assert [one.number for one in PackageFolder.open(package).sessions()] == [1, 2]


def test_a_machine_that_gave_no_sign_of_life_loses_the_package_and_stops_when_it_wakes(folder: Path) -> None:
    package = folder / "runs" / "one"
    run = here(folder, "--detach")
    run.communicate(timeout=100)
    first = PackageFolder.open(package).sessions()[0]
    assert first.guard is not None and first.supervisor is not None
    asleep = [first.guard.pid, first.supervisor.pid, *living_in(package)]
    for pid in asleep:
        os.kill(pid, signal.SIGSTOP)
    other_machine.beat(owner_file.path_of(package), idle=other_machine.LONG_AGO)
    taken = far(folder, [sys.executable, "-c", QUICK, "continue", "runs/one", "--detach"])
    assert taken.returncode == 0 and "gave no sign of life for 3m" in taken.stderr, taken.stderr
    for pid in asleep:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: record(folder, 1)["state"] == "failed")
    assert record(folder, 1)["reason"] == "taken over"
    owner = owner_file.read(owner_file.path_of(package))
    assert owner is not None and (owner.host, owner.session) == ("far", 2)
    (folder / "end").touch()
    wait_for(lambda: record(folder, 2)["state"] == "succeeded")
