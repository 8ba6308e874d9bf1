"""What README and the first page of the guide promise, typed as they say."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import roost
from roost.config import layers
from roost.config.settings import parse_settings
from roost.operations.lifecycle.run import RunRequest, run
from roost.package.package import PackageFolder
from tests.cli.programs import Terminal
from tests.lab.labs import Lab
from tests.operations.packages import project
from tests.warming import templates

ROOT = Path(__file__).parents[2]


def blocks(language: str, section: str, page: str = "README.md") -> str:
    """All code blocks of a language in one section of a page."""
    body = (ROOT / page).read_text().split(f"## {section}\n")[1].split("\n## ")[0]
    return "\n".join(re.findall(rf"```{language}\n(.*?)```", body, re.DOTALL))


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """Bash on a terminal; its prompt shows how the command before it ended, and which one it was. Its runs
    start warm: in its environment eight of them would import torch."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PS1", "exit=$? n=\\#> ")
    monkeypatch.setenv("HISTFILE", "")
    with templates(tmp_path / "warm"):
        terminal = Terminal(program=["bash", "--noprofile", "--norc", "-i"], cwd=tmp_path)
        yield terminal
        terminal.kill()


@pytest.mark.timeout(300)
def test_the_walk_typed_at_a_terminal(shell: Terminal, tmp_path: Path) -> None:
    lines = [line for line in blocks("bash", "A walk", "docs/guide/start.md").splitlines() if line]
    assert lines.pop(0) == "source .venv/bin/activate" and len(lines) >= 15
    plotted = ""
    shell.wait_for("n=1> ")
    for number, line in enumerate(lines, 2):
        shell.seen = ""
        shell.type(line)
        interrupted = line.startswith("roost run -c config.yaml  ")
        if interrupted:
            shell.wait_for("epoch 3/")
            shell.press_ctrl_c()
        expected = f"exit={75 if interrupted else 0} n={number}> "
        assert expected in shell.wait_for(f" n={number}> ", 200), (line, shell.seen[-2000:])
        if line.startswith("roost plot"):
            plotted = shell.seen
    project = tmp_path / "digits"
    packages = [PackageFolder.open(path) for path in sorted((project / "runs").iterdir())]
    assert [len(made.sessions()) for made in packages] == [2, 1, 1, 1]
    assert [made.sessions()[0].state for made in packages] == ["stopped", *["succeeded"] * 3]
    assert all(made.state == "succeeded" for made in packages)
    assert [made.request["parent"]["package"] for made in packages if "parent" in made.request] == [
        packages[0].path.name
    ]
    assert packages[0].records().last()["test/accuracy"] >= 0.97
    (picture,) = packages[0].path.glob("analysis/1/*.png")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "valid" in plotted and "┤" in plotted, plotted
    assert (packages[0].path / "exports" / "weights.pt").is_file()
    copied, *later = [made.manifest["files"].keys() for made in packages]
    assert {path.name for path in project.iterdir()} == {"runs", *(name.split("/")[0] for name in copied)}
    assert all(files == copied for files in later), "no result of a run is in the project"


def test_the_lab_as_it_is_typed(tmp_path: Path) -> None:
    config = project(tmp_path / "p")
    lab = Lab(tmp_path, "sim:2x24GB")
    try:
        with lab.here():
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            lines = blocks("bash", "The lab: a queue for one machine")
            done = subprocess.run(
                ["bash", "-euc", lines],
                cwd=config.parent,
                env={**os.environ, "PATH": path},
                capture_output=True,
            )
        assert done.returncode == 0, done.stderr.decode()
        first, *sweep = lab.tasks()
        assert (first.name, first.state, len(sweep)) == ("first", "succeeded", 5), lab.log()
        assert {(task.state, task.after) for task in sweep} == {("pending", (first.id,))}
        assert b"epoch 1/1" in done.stdout and b" 5 tasks" in done.stdout
    finally:
        lab.close()


SCRIPT = """
import argparse, pickle
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--resume")
typed = parser.parse_args()
begin = pickle.load(open(typed.resume, "rb")) + 1 if typed.resume else 0
for epoch in range(begin, typed.epochs):
    print(f"epoch {epoch + 1}/{typed.epochs} loss {1 / (epoch + 1):.3f}")
    pickle.dump(epoch, open("last.ckpt", "wb"))
    if begin == 0 and epoch == 0:
        raise SystemExit("the session has ended")
"""


def test_a_script_and_a_loop_that_somebody_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "main.py").write_text(SCRIPT)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    typed = ["bash", "-c", f"{blocks('bash', 'What you may have already')} roost continue runs/*"]
    done = subprocess.run(typed, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    [package] = map(PackageFolder.open, (tmp_path / "runs").iterdir())
    assert [one.state for one in package.sessions()] == ["failed", "succeeded"]
    assert roost.open_package(package.path).metrics()["loss"].values.tolist() == [1.0, 0.5]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.py").write_text(blocks("python", "What you may have already"))
    run = runpy.run_path("loop.py", {"roost": roost, "loss": 0.3})["run"]
    run.finish()
    assert run.package.metrics()["train/loss"].values.tolist() == [0.3]


def test_the_contract_in_readme_is_python_and_its_config_is_understood(tmp_path: Path) -> None:
    compile(blocks("python", "What you write"), "README.md", "exec")
    text = blocks("yaml", "What you write")
    assert yaml.safe_load(text)["runner"] == "Model/Runner.py:Runner"
    (tmp_path / "config.yaml").write_text(text)
    settings = parse_settings(layers.load(tmp_path / "config.yaml").values)
    assert settings.max_epochs == 30


def test_the_project_may_be_changed_and_deleted_once_run_has_started(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(Path(__file__).parents[2] / "src" / "roost" / "templates" / "clean", project)
    started = run(RunRequest(config=project / "config.yaml", overrides=[f"save_root={tmp_path / 'runs'}"]))
    for file in project.rglob("*.py"):
        file.write_text("raise SystemExit('this must never be imported')")
    shutil.rmtree(project)
    assert started.process is not None and started.process.wait(timeout=60) == 0
    assert PackageFolder.open(started.package).state == "succeeded"
