"""Makes `made/` and `facts.json` with the program of commit e21167d: packages of each kind and end, a queue.

    git clone REPOSITORY /tmp/base && cd /tmp/base && git checkout e21167d && make lint    # its own .venv
    python3 tests/data/made_by_e21167d/make.py /tmp/base/.venv/bin/roost

Made again it holds other times, ids and process numbers, and the same otherwise. It is Python's own library
alone, and drives the program as a person would. What the data holds is told in README.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import pwd
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MADE = HERE / "made"
COMMIT = "e21167d"
ROOT = Path("/tmp/roost-made-by-e21167d")
"""Where it is made: this path stands in the packages and in the queue."""
BY_HAND = """
import sys, torch, roost
torch.manual_seed(0)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
x = torch.linspace(-1, 1, 8).unsqueeze(1)
settings = {"lr": 0.1, "checkpoint": {"fast": 2, "held": 1}}
package = roost.Package.new(settings, root=sys.argv[1], name="by_hand")
with package as run:
    for step in range(1, 7):
        loss = (model(x) - 3 * x - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 2 == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            run.save(state, step=step, hold=step == 2, metrics={"loss": loss.detach()})
"""


class Program:
    """The program, with a home of its own and nothing else in its environment.

    Args:
        path: Of its console script.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.project = path, ROOT / "project"
        self.runs = self.project / "runs"
        self.env = {
            "HOME": str(ROOT / "home"),
            "PATH": f"{path.parent}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "ROOST_STATE": str(ROOT / "state"),
            "ROOST_LEASES": str(ROOT / "leases"),
            **{
                f"XDG_{name.upper()}_HOME": str(ROOT / "xdg" / name)
                for name in ("config", "state", "cache", "data")
            },
        }

    def __call__(self, *arguments: object, code: int = 0) -> str:
        """Runs a command in the project to its end; gives its stdout."""
        command = [str(self.path), *map(str, arguments)]
        said = subprocess.run(command, cwd=self.project, env=self.env, capture_output=True, text=True)
        assert said.returncode == code, (command, said)
        return said.stdout

    def json(self, *arguments: object, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """What a package's newest session has recorded so far."""
        files = sorted((self.runs / name / "records").glob("*.jsonl"))
        lines = files[-1].read_text().split("\n")[:-1] if files else []
        return [row for line in lines if "step" in (row := json.loads(line))]

    def saved(self, name: str) -> int:
        """The step of its newest checkpoint."""
        found = (self.runs / name / "Checkpoints").glob("state_*.ckpt/MANIFEST.json")
        return max((json.loads(path.read_bytes())["step"] for path in found), default=0)

    def step(self, name: str) -> int:
        rows = self.rows(name)
        return int(rows[-1]["step"]) if rows else 0


def wait_for(condition: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.005)


def kill(pids: list[int]) -> None:
    """All of them at once, as when the machine goes down: none can write down the other's end."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not any(Path(f"/proc/{pid}/stat").exists() for pid in pids))


def pids_of(package: Path, session: int = 1) -> list[int]:
    """Those who watch over a session, and its worker."""
    record = json.loads((package / "sessions" / f"{session}.json").read_bytes())
    return [record["guard_pid"], record["pid"], record["worker_pid"]]


def weights(program: Program, name: str) -> dict[str, str]:
    """The digest of each tensor of a package's newest weights."""
    path = ROOT / "weights.safetensors"
    program("export", f"runs/{name}", "--weights", path, "--overwrite")
    data = path.read_bytes()
    path.unlink()
    (size,) = struct.unpack("<Q", data[:8])
    header, data = json.loads(data[8 : 8 + size]), data[8 + size :]
    header.pop("__metadata__", None)
    return {name: hashlib.sha256(data[slice(*of["data_offsets"])]).hexdigest() for name, of in header.items()}


def exact(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without times."""
    return [{k: v for k, v in row.items() if k != "time" and not k.startswith("perf/")} for row in rows]


# --- packages ---------------------------------------------------------------------------------------------


def uninterrupted(roost: Program, *words: object) -> dict[str, Any]:
    """What a run comes to that nobody disturbs; kept as its numbers alone."""
    roost("run", "config.yaml", "-CPU", *words, "--name", "whole")
    found = {"weights": weights(roost, "whole"), "rows": exact(roost.rows("whole"))}
    shutil.rmtree(roost.runs / "whole")
    return found


def make_packages(roost: Program) -> dict[str, Any]:
    """Those of `roost run`; gives what those come to that were cut, where no package of that is kept."""
    slow = roost.project / "slow"
    config = ("run", "config.yaml", "-CPU")
    roost(*config, "--name", "finished")
    roost("analyze", "runs/finished", "-s", "accuracy", "-CPU")
    (roost.project / "samples.txt").write_text("1,2,3,4,5,6\n-1,0,1,0,-1,0\n0.5,0.25,0,0,0.25,0.5\n")
    roost("predict", "runs/finished", "--data", "samples.txt", "-CPU")
    roost("fork", "runs/finished", "--at", 11, "optimizers.head.lr=0.02", "--name", "forked")
    roost(*config, "bad.error_at=7", "--name", "failed", code=1)

    slow.touch()
    roost(*config, "--name", "killed", "--detach")
    wait_for(lambda: roost.step("killed") >= 14 > roost.saved("killed") >= 10)
    kill(pids_of(roost.runs / "killed"))
    roost(*config, "--name", "stopped", "--detach")
    wait_for(lambda: roost.step("stopped") >= 6)
    roost("stop", "runs/stopped")
    roost(*config, "--devices", 2, "-DDP", "--name", "ranks", "--detach")
    wait_for(lambda: roost.step("ranks") >= 10)
    roost("stop", "runs/ranks")
    slow.unlink()
    assert roost.saved("killed") < 14 and 6 <= roost.step("stopped") < 20 and 10 <= roost.step("ranks") < 20

    reference = {
        "ranks": uninterrupted(roost, "--devices", 2, "-DDP"),
        "lab_cut": uninterrupted(roost, "max_epochs=3"),
    }
    python = [str(roost.path.with_name("python")), "-c", BY_HAND, str(roost.runs)]
    subprocess.run(python, cwd=roost.project, env=roost.env, check=True)
    return reference


# --- the queue --------------------------------------------------------------------------------------------


def make_queue(roost: Program) -> None:
    """Tasks that have ended in every way, one that runs, and others that wait for it; then all is killed."""

    def state(name: str) -> str:
        (task,) = (task for task in roost.json("tasks", "--all") if task["name"] == name)
        return str(task["state"])

    def ends(name: str, *words: object, state_then: str = "succeeded") -> None:
        roost("submit", *words)
        wait_for(lambda: state(name) == state_then)

    roost("devices", "--cores", 1)
    train = ("config.yaml", "-CPU", "max_epochs=1", "--name")
    ends("lab_done", *train, "lab_done")
    ends("lab_command", "--name", "lab_command", "--", "sh", "-c", "echo printed by a command")
    ends(
        "lab_failed", "--name", "lab_failed", "--", "sh", "-c", "echo broken >&2; exit 3", state_then="failed"
    )

    (roost.project / "slow").touch()
    roost("submit", "config.yaml", "-CPU", "max_epochs=3", "--name", "lab_cut", "--priority", 3)
    wait_for(lambda: state("lab_cut") == "running")
    # All the rest waits: there is one core.
    roost("submit", *train, "lab_waits", "--priority", 1)
    roost("submit", "--name", "lab_after", "--after", "lab_waits", "--", "sh", "-c", "echo after it")
    roost("submit", *train, "lab_sweep", "seed=0..1", "--max-parallel", 1)
    roost("submit", "continue", "runs/lab_done", "max_epochs=2")
    roost("submit", "--name", "lab_held", "--", "sh", "-c", "exit 0")
    roost("hold", "lab_held")
    roost("submit", "--name", "lab_stopped", "--", "true")
    roost("submit", "--name", "lab_hopeless", "--after", "lab_stopped", "--", "true")
    roost("stop", "lab_stopped")
    wait_for(lambda: roost.step("lab_cut") >= 6 > roost.saved("lab_cut") >= 5)
    about = json.loads((ROOT / "state" / "lab" / "daemon.json").read_bytes())
    kill([about["keeper"]["pid"], about["pid"], *pids_of(roost.runs / "lab_cut")])
    (roost.project / "slow").unlink()
    connection = sqlite3.connect(ROOT / "state" / "lab" / "lab.db")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # one file, not three
    connection.close()


# --- what is kept -----------------------------------------------------------------------------------------


def told(roost: Program) -> dict[str, Any]:
    """What the program says of all this."""
    names = ("finished", "failed", "forked", "killed", "ranks", "by_hand", "lab_done")
    return {
        "ls": roost.json("ls", "runs"),
        "tasks": roost.json("tasks", "--all"),
        "show": {name: roost.json("show", f"runs/{name}") for name in names},
        "why": {name: roost.json("why", name) for name in ("lab_failed", "lab_held", "lab_sweep")},
        "notices": roost.json("notices"),
    }


def keep() -> list[str]:
    """Copies what was made here; gives the folders that git does not keep, for they are empty."""
    new = MADE.with_name("new")
    left_out = shutil.ignore_patterns("__pycache__", "wake", "warm", "lab.db-*")
    for name in ("project", "state", "xdg/config"):
        shutil.copytree(ROOT / name, new / name, ignore=left_out)
    shutil.rmtree(MADE)
    new.rename(MADE)
    folders = [path for path in MADE.rglob("*") if path.is_dir() and not any(path.iterdir())]
    return sorted(str(path.relative_to(MADE)) for path in folders)


def main() -> None:
    roost = Program(Path(sys.argv[1]).absolute())
    base = roost.path.parent.parent.parent
    commit = subprocess.run(
        ["git", "-C", str(base), "rev-parse", "HEAD"], capture_output=True, text=True
    ).stdout
    assert commit.startswith(COMMIT) and not ROOT.exists(), (commit, ROOT)
    shutil.copytree(MADE / "project", roost.project, ignore=shutil.ignore_patterns("runs", "samples.txt"))
    settings = ROOT / "xdg" / "config" / "roost" / "notices.yaml"
    settings.parent.mkdir(parents=True)
    # Of nothing but stalls anybody is told, and nobody listens there.
    settings.write_text(
        "receivers: {nobody: {kind: webhook, url: 'http://127.0.0.1:9/hook'}}\nevents: [stall]\n"
    )
    settings.chmod(0o600)
    reference = make_packages(roost)
    make_queue(roost)
    environment = json.loads((roost.runs / "finished" / "environment.json").read_bytes())
    facts = {
        "commit": commit.strip(),
        "root": str(ROOT),
        "venv": str(roost.path.parent.parent),
        "host": platform.node(),
        "user": pwd.getpwuid(os.geteuid()).pw_name,
        "cpu": environment["cpu"],
        "stack": environment["stack"],
        "reference": reference,
        "told": told(roost),
        "empty_folders": keep(),
    }
    (HERE / "facts.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    shutil.rmtree(ROOT)


if __name__ == "__main__":
    main()
