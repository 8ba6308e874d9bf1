"""Packages and a queue that commit e21167d made (tests/data): they are listed, analysed and continued."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import pwd
import re
import shutil
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import roost as library
from roost.lab.background import daemon_presence
from tests import processes
from tests.cli.programs import ROOST, Terminal, roost

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the lab needs Linux"),
    pytest.mark.timeout(240),
]

DATA = Path(__file__).parents[1] / "data" / "made_by_e21167d"
FACTS: dict[str, Any] = json.loads((DATA / "facts.json").read_text())
REPORTS = FACTS["told"]
ENDED = ("succeeded", "failed", "stopped", "crashed")
LAST_STEP = 24

_RENEWED = ("why", "can_go_on")
"""What `roost why` says otherwise now: its words; and commands can be continued."""


class Old:
    """A copy of all that was made, as if it had been made where the copy is, by who runs the tests.

    Args:
        folder: Takes the place of the one in which it was made; it is not there yet.
    """

    def __init__(self, folder: Path) -> None:
        self.project, self.runs = folder / "project", folder / "project" / "runs"
        self._moved = [
            (f"{FACTS['host']}:{FACTS['root']}", f"{os.uname().nodename}:{folder}"),
            (FACTS["root"], str(folder)),
            (f"{FACTS['venv']}/bin/python", sys.executable),
            (FACTS["venv"], sys.prefix),
        ]
        shutil.copytree(DATA / "made", folder)
        for name in FACTS["empty_folders"]:
            (folder / name).mkdir(parents=True, exist_ok=True)
        for path in folder.rglob("*.json*"):
            text = path.read_text()
            if (moved := self.moved(text)) != text:
                path.write_text(moved)
        lab = folder / "state" / "lab"
        lab.chmod(0o700)
        for path in (*lab.iterdir(), *self.runs.glob("*/sessions/task-*"), *folder.glob("xdg/**/*.yaml")):
            path.chmod(0o600)
        self._move_queue(lab / "lab.db")

    def moved(self, text: str) -> str:
        for old, new in self._moved:
            text = text.replace(old, new)
        return text

    def report(self, what: str) -> Any:
        """What e21167d said of it."""
        return json.loads(self.moved(json.dumps(REPORTS[what])))

    def _move_queue(self, path: Path) -> None:
        """Whatever its tables are: each text, and what is in each packed column."""
        db = sqlite3.connect(path)
        names = [row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for table in (name for name in names if not name.startswith("sqlite_")):
            for column in [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')]:
                rows = db.execute(f'SELECT DISTINCT "{column}" FROM "{table}"').fetchall()
                changes = [(new, old) for (old,) in rows if (new := self._moved_value(old)) != old]
                db.executemany(f'UPDATE "{table}" SET "{column}" = ? WHERE "{column}" = ?', changes)
        for number, variables in db.execute("SELECT number, variables FROM environment").fetchall():
            digest = hashlib.sha256(variables).digest()
            db.execute("UPDATE environment SET digest = ? WHERE number = ?", (digest, number))
        db.execute("UPDATE task SET user = ?", (pwd.getpwuid(os.geteuid()).pw_name,))
        db.commit()
        db.close()

    def _moved_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.moved(value)
        if isinstance(value, bytes) and value.startswith(b"x\x01"):
            return zlib.compress(self.moved(zlib.decompress(value).decode()).encode(), 1)
        return value

    def __call__(self, *arguments: object, code: int = 0) -> str:
        """Runs a command of the present program where the old one was run; gives its stdout."""
        said = roost(*arguments, cwd=self.project)
        assert said.returncode == code, (arguments, said.returncode, said.stdout + said.stderr)
        return said.stdout

    def json(self, *arguments: object, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code))

    def tasks(self) -> dict[str, dict[str, Any]]:
        """By id."""
        return {task["id"]: task for task in self.json("tasks", "--all")}


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Old]:
    folder = tmp_path / "old"
    monkeypatch.setenv("ROOST_STATE", str(folder / "state"))
    monkeypatch.setenv("ROOST_LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "xdg" / "config"))
    found = Old(folder)
    yield found
    roost("lab", "stop")
    processes.kill_all_in(folder)


def ids(name: str) -> list[str]:
    """Those of the old tasks called so, or of a sweep."""
    return [task["id"] for task in REPORTS["tasks"] if name in (task["name"], task["sweep_name"])]


def contains(new: Any, old: Any) -> bool:
    """Whether ``new`` has everything of ``old``; mappings may have more, and an error may have another
    wording."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(
            bool(new.get(key)) == bool(old[key]) if key == "error" else contains(new.get(key), old[key])
            for key in old
        )
    if isinstance(old, list):
        return isinstance(new, list) and len(new) == len(old) and all(map(contains, new, old))
    return bool(new == old)


# --- bits -------------------------------------------------------------------------------------------------


def is_same_machine() -> bool:
    """Whether this one adds up as the one did on which the data was made, as far as that was written down."""
    match = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    here = {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }
    is_same_cpu = match is not None and match[1] == FACTS["cpu"]
    return is_same_cpu and all(FACTS["stack"][name] == value for name, value in here.items())


def differences(one: Any, other: Any, where: str = "") -> Iterator[str]:
    """Where two nests of values differ: to the bit on a machine like the one of the data. On another CPU, or
    with another torch, sums are added up otherwise, and numbers need only be near."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in {**one, **other}:
            yield from differences(one.get(key), other.get(key), f"{where}/{key}")
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        for number, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from differences(a, b, f"{where}/{number}")
    elif not _is_equal(one, other):
        yield f"{where}: {one} {other}"


def _is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor | np.ndarray) and isinstance(other, torch.Tensor | np.ndarray):
        a, b = np.asarray(one), np.asarray(other)
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return False
        return a.tobytes() == b.tobytes() or (not is_same_machine() and np.allclose(a, b, 1e-2, 1e-3))
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (not is_same_machine() and bool(np.isclose(one, other, 1e-2, 1e-3)))
    return type(one) is type(other) and bool(one == other)


def state_of(package: Path) -> Any:
    """All that the newest checkpoint holds: weights, optimizers, averages, hooks, generators; but no time."""
    state = library.open_package(package).load()
    state["trainer"]["progress"].pop("seconds")
    inexact = state["trainer"].pop("inexact")
    derived = json.loads((package / "_package.json").read_bytes())
    assert bool(inexact) == bool(derived["inexact"])
    return state


def rows_of(old: Old, name: str) -> list[dict[str, float]]:
    """What is recorded, without times; folded and written by the present program."""
    path = old.project / f"{name}.csv"
    old("export", f"runs/{name}", "--records", "csv", "-o", path)
    with path.open(newline="") as file:
        return [
            {key: float(value) for key, value in row.items() if value and _is_exact(key)}
            for row in csv.DictReader(file)
        ]


def _is_exact(key: str) -> bool:
    return key not in ("time", "session") and not key.startswith("perf/")


def require_no_more_inexact(old: Old, name: str) -> None:
    """Where nothing differs from then the program says so, and where something does."""
    derived = json.loads((old.runs / name / "_package.json").read_bytes())
    assert bool(derived["inexact"]) != is_same_machine(), derived["inexact"]


def require_as_uninterrupted(old: Old, name: str) -> None:
    """That a package has come to where the uninterrupted run of e21167d came."""
    require_no_more_inexact(old, name)
    whole = old.runs / "finished"
    assert not list(differences(state_of(old.runs / name), state_of(whole)))
    assert not list(differences(rows_of(old, name), rows_of(old, "finished")))
    for media in (whole / "media").rglob("*.json"):
        assert (old.runs / name / media.relative_to(whole)).is_file()
    assert old.json("show", f"runs/{name}")["summary"]["state"] == "succeeded"


def require_recorded_result(old: Old, name: str) -> None:
    """Likewise, where that run is kept as numbers alone. On another CPU the rows tell, not the digests."""
    require_no_more_inexact(old, name)
    reference = FACTS["reference"][name]
    expected = [{key: float(value) for key, value in row.items()} for row in reference["rows"]]
    assert not list(differences(rows_of(old, name), expected))
    weights = state_of(old.runs / name)["model"]["state"]
    digests = {key: hashlib.sha256(one.numpy().tobytes()).hexdigest() for key, one in weights.items()}
    assert digests.keys() == reference["weights"].keys()
    assert digests == reference["weights"] or not is_same_machine()


# --- packages ---------------------------------------------------------------------------------------------


def test_they_are_listed_as_they_were(old: Old) -> None:
    now = old.json("ls", "runs")
    assert contains(now, old.report("ls"))
    states = {one["name"]: (one["state"], one["step"], one["parent"]) for one in now}
    assert states["finished"] == ("succeeded", LAST_STEP, None)
    assert states["forked"][:2] == ("succeeded", LAST_STEP) and states["forked"][2]
    assert states["killed"][0] == "crashed" and states["stopped"][0] == states["ranks"][0] == "stopped"
    assert states["failed"][0] == states["lab_failed"][0] == "failed" and states["lab_held"][0] == "new"
    best = old.json("ls", "runs", "status:succeeded", "step=24", "sort:valid/ema/clean/loss")
    assert [one["name"] for one in best] == ["finished", "forked"]


def test_each_shows_what_it_showed(old: Old) -> None:
    for name, expected in old.report("show").items():
        shown = old.json("show", f"runs/{name}")
        if shown["output"] is None:  # that version named a file that was never written
            assert not Path(expected.pop("output")).exists()
        assert contains(shown, expected), name
    assert old.json("show", "runs/failed")["black_box"]["step"] == 7


def test_every_byte_is_as_it_was(old: Old) -> None:
    for name in ("finished", "killed", "ranks", "by_hand"):
        parts = old.json("verify", f"runs/{name}")
        found = {(part["what"], part["verdict"]) for part in parts}
        assert {verdict for _, verdict in found} == {"good", "unsealed"}  # that version wrote no seals
        assert {("settings", "unsealed"), ("records", "unsealed"), ("checkpoint", "good")} <= found
    weights = next((old.runs / "finished" / "Checkpoints").glob("*/model.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    (bad,) = (part for part in old.json("verify", "runs/finished", code=1) if part["verdict"] == "damaged")
    assert bad["path"] == f"Checkpoints/{weights.parent.name}"


def test_curves_are_drawn_and_output_is_printed(old: Old) -> None:
    picture = old.project / "curves.png"
    old("plot", "runs/finished", "runs/forked", "runs/killed", "runs/by_hand", "-o", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert old("logs", "runs/ranks", "--rank", 1) == (old.runs / "ranks" / "_output_1.txt").read_text()
    assert old("logs", ids("lab_command")[0]) == "printed by a command\n"


def test_a_checkpoint_is_analysed_as_it_was(old: Old) -> None:
    results = old.runs / "finished" / "analysis"
    then = json.loads((results / "1" / "result.json").read_bytes())["value"]
    now = old.json("analyze", "runs/finished", "-s", "accuracy", "-CPU")["result"]["value"]
    assert not list(differences(now, then)) and now["step"] == LAST_STEP
    assert json.loads((results / "2" / "result.json").read_bytes())["value"] == now
    assert len(old.json("show", "runs/finished")["analyses"]) == 2


def test_it_predicts_as_it_did(old: Old) -> None:
    results = old.runs / "finished" / "predictions"
    old("predict", "runs/finished", "--data", "samples.txt", "-CPU", "-c", "last")
    then, now = (
        [json.loads(line) for line in (results / number / "predictions.jsonl").read_text().splitlines()]
        for number in "12"
    )
    assert len(now) == 3 and not list(differences(now, then))


def test_one_that_was_killed_goes_on(old: Old) -> None:
    (record,) = (json.loads(path.read_bytes()) for path in (old.runs / "killed").glob("sessions/1.json"))
    assert record["state"] == "running", "no process was left to record its end"
    old("continue", "runs/killed")
    require_as_uninterrupted(old, "killed")


def test_one_that_was_stopped_goes_on(old: Old) -> None:
    """By the command that made it, typed again; with other settings it is refused."""
    old("continue", "runs/stopped", "optimizers.head.lr=1", code=5)
    old("run", "config.yaml", "-CPU", "--name", "stopped")
    require_as_uninterrupted(old, "stopped")


def test_one_of_two_ranks_goes_on(old: Old) -> None:
    old("continue", "runs/ranks")
    session = old.json("show", "runs/ranks")["sessions"][-1]
    assert (session["number"], session["state"]) == (2, "succeeded")
    assert (session["ranks"], session["strategy"]) == (2, "ddp")
    require_recorded_result(old, "ranks")


def test_a_fork_of_an_old_checkpoint(old: Old) -> None:
    old("fork", "runs/finished", "--at", 11, "--name", "again")
    one, other = state_of(old.runs / "again"), state_of(old.runs / "finished")
    for name in ("model", "optimizers", "rank-0"):
        assert not list(differences(one[name], other[name]))
    found = {info["name"]: info for info in old.json("ls", "runs")}
    assert (found["again"]["parent"], found["again"]["parent_step"]) == (found["forked"]["parent"], 11)


def test_a_step_that_failed_is_taken_again(old: Old) -> None:
    terminal = Terminal("debug", old.runs / "failed", cwd=old.project)
    try:
        terminal.wait_for("(Pdb) ")
        terminal.type("p 'step', self.progress.step + 40, len(batch[0])")
        terminal.wait_for("('step', 46, 6)")
        terminal.type("q")
        assert terminal.end()[0] == 0
    finally:
        terminal.kill()


def test_one_made_by_hand_is_written_on(old: Old) -> None:
    package = library.open_package(old.runs / "by_hand")
    state = package.load()
    assert state["step"] == 6 and set(state["model"]) == {"weight", "bias"}
    with package as run:
        run.save({**state, "step": 8}, step=8, metrics={"loss": 0.5})
    assert library.open_package(old.runs / "by_hand").load()["step"] == 8
    assert [row["step"] for row in rows_of(old, "by_hand")] == [2, 4, 6, 8]


# --- the queue --------------------------------------------------------------------------------------------


def wait_for_end(old: Old, id: str) -> None:
    """Follows what a task prints until it has ended."""
    subprocess.run(
        [*ROOST, "logs", id, "-f"],
        cwd=old.project,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=100,
        check=True,
    )


def test_the_queue_is_read_as_it_was(old: Old, tmp_path: Path) -> None:
    daemon_presence.stop(tmp_path / "old" / "state" / "lab")  # otherwise it is started, as it was lost
    assert contains(list(old.tasks().values()), old.report("tasks"))
    for name, expected in old.report("why").items():
        found = old.json("why", name)
        assert contains(
            found, [{key: value for key, value in one.items() if key not in _RENEWED} for one in expected]
        )
        assert all(one["reason"] in one["why"] for one in found)
    assert contains(old.json("notices"), old.report("notices"))
    assert old.json("lab", "status", code=3)["daemon"] is None


def test_a_daemon_goes_on_with_the_old_queue(old: Old) -> None:
    """What ran when the machine went down goes on, what waited runs; what is held, or hopeless, waits."""
    (cut,), (held,), (hopeless,) = ids("lab_cut"), ids("lab_held"), ids("lab_hopeless")
    had_ended = {id for id, task in old.tasks().items() if task["state"] in ENDED}
    assert old.json("devices")["cores"] == 1, "as it was set"
    old("devices", "--cores", 2)
    old("lab", "start")
    will_run = [id for id in old.tasks() if id not in (*had_ended, held, hopeless)]
    assert len(will_run) == 6
    for id in will_run:  # in this order: one that fails is named before another one waits for it in vain
        wait_for_end(old, id)
        (why,) = old.json("why", id)
        assert why["state"] == "succeeded", (why, old("logs", id))
    after = old.tasks()
    assert [after[id]["state"] for id in (held, hopeless)] == ["pending", "pending"] and after[held]["held"]
    expected = [task for task in old.report("tasks") if task["id"] in had_ended]
    assert contains([after[task["id"]] for task in expected], expected)
    assert (after[cut]["attempt"], after[cut]["session"]) == (2, 2)
    steps = {one["name"]: one["step"] for one in old.json("ls", "runs", "lab_")}
    will_have = {"lab_cut": 12, "lab_waits": 4, "lab_done": 8, "lab_sweep_seed-0": 4, "lab_sweep_seed-1": 4}
    assert contains(steps, will_have)
    (waits,), (next_one,) = ids("lab_waits"), ids("lab_after")
    assert after[next_one]["started"] >= after[waits]["ended"]
    assert old("logs", next_one) == "after it\n"
    require_recorded_result(old, "lab_cut")
    old("release", held)
    wait_for_end(old, held)
    assert old.tasks()[held]["state"] == "succeeded"


def test_a_lost_queue_is_made_anew_from_old_packages(old: Old) -> None:
    """But for the environments, and what only the queue knew."""
    old("devices", "--cores", 0)  # so that nothing starts then
    old("lab", "stop")
    before = old.tasks()
    old("lab", "rebuild")
    found = old.tasks()
    known = ("name", "package", "state", "priority", "held", "after", "sweep", "sweep_name", "exit_code")
    for id, expected in before.items():
        if expected["name"] != "lab_cut":
            assert {key: found[id][key] for key in known} == {key: expected[key] for key in known}
    assert found[ids("lab_cut")[0]]["state"] == "pending" and found.keys() == before.keys()
    assert old.json("devices")["cores"] == 0
