"""`roost analyze`, as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roost.analysis import analysis_folder
from roost.display.terminal import format_duration
from roost.operations.reading.show import show
from roost.package.package import PackageFolder
from tests.cli.programs import Terminal, roost
from tests.messages import Messages
from tests.project.trained import trained

LOOK = """
import sys
def experience(self):
    print("looking at", self.checkpoint.id)
    print("a warning", file=sys.stderr)
    self.save("note", "x")
    return {"loss": self.log["valid/loss"][1][-1], "weights": self.model.net[0].weight, "bad": float("nan")}
"""

WAITS = """
import threading
def experience(self):
    print("waiting", flush=True)
    threading.Event().wait()
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> PackageFolder:
    """A trained package with AnalyzeScripts of its own."""
    package = trained(tmp_path_factory.mktemp("trained"))
    scripts = package.path / "AnalyzeScripts"
    scripts.mkdir()
    (scripts / "look.py").write_text(LOOK)
    (scripts / "waits.py").write_text(WAITS)
    (scripts / "prints.py").write_text("def experience(self): print('only this')")
    (scripts / "fails.py").write_text("def experience(self): raise ValueError('no good')")
    return package


def test_output_then_the_value_then_the_files(made: PackageFolder) -> None:
    said = roost("analyze", "run", "-s", "look", "-CPU", cwd=made.path.parent)
    assert said.returncode == 0, said.stderr
    number = analysis_folder.read_all(made.path / "analysis")[-1].number
    place = f"run/analysis/{number}"
    lines = said.stdout.splitlines()
    assert sorted(lines[:2]) == ["a warning", "looking at 2"]
    assert lines[2].startswith("loss  0.") and lines[3:5] == ["bad   null", "weights"]
    assert lines[-2:] == [f"{place}/result.json", f"{place}/note.txt"]
    assert "value.bad" in lines[-3] and "nan" in lines[-3]
    assert max(map(len, lines)) <= 120
    script, end = said.stderr.splitlines()
    assert script.endswith(f": {made.path / 'AnalyzeScripts' / 'look.py'}")
    seconds = show(made.path).analyses[-1].seconds
    assert end.startswith("succeeded ") and end.endswith(f" checkpoint 2, step 6, cpu; {place}")
    assert f" {format_duration(seconds)}" in end


def test_a_script_without_a_value_prints_none(made: PackageFolder) -> None:
    said = roost("analyze", "run", "-s", "prints", "-CPU", cwd=made.path.parent)
    assert said.returncode == 0, said.stderr
    first, *files = said.stdout.splitlines()
    assert first == "only this" and [Path(one).name for one in files] == ["result.json"]


def test_an_error_is_shown_once(made: PackageFolder) -> None:
    said = roost("analyze", "run", "-s", "fails", "-CPU", cwd=made.path.parent)
    assert said.returncode == 1 and (said.stdout + said.stderr).count("ValueError: no good") == 1
    found = show(made.path).analyses[-1]
    place = f"run/analysis/{found.number}"
    last = said.stderr.splitlines()[-1]
    assert last.startswith("failed ") and last.endswith(f" {format_duration(found.seconds)}; {place}")


@pytest.mark.parametrize("out", ["run", "run/Checkpoints", "run/analysis/../records"])
def test_not_among_the_packages_own_files(made: PackageFolder, out: str) -> None:
    said = roost("analyze", "run", "-s", "look", "-CPU", "-o", out, cwd=made.path.parent)
    assert said.returncode == 5 and "-o" in said.stderr
    assert not (made.path.parent / out / "1").exists()


def test_help_of_the_device(messages: Messages) -> None:
    looks, trains = (
        " ".join(roost(name, "--help").stdout.partition("--device [")[2].partition("-CPU")[0].split())
        for name in ("analyze", "run")
    )
    assert looks and trains and looks != trains
    messages.check(looks)


def test_json_alone_on_stdout(made: PackageFolder) -> None:
    said = roost("analyze", "-r", made.path, "-s", "look", "-c", "1", "--device", "cpu", "--json")
    body = json.loads(said.stdout)
    assert said.returncode == 0 and body["state"] == "succeeded" and body["exit_code"] == 0
    assert body["result"]["checkpoint"]["id"] == 1 and body["result"]["saved"] == ["note.txt"]
    assert body["result"]["value"]["bad"] is None and body["result"]["nonfinite"] == {"value.bad": "nan"}
    assert Path(body["folder"], "note.txt").is_file()
    assert "looking at 1" in said.stderr and "a warning" in said.stderr


def test_ctrl_c_ends_it_at_once(made: PackageFolder) -> None:
    terminal = Terminal("analyze", made.path, "-s", "waits", "-CPU")
    try:
        terminal.wait_for("waiting")
        terminal.press_ctrl_c()
        code, shown = terminal.end()
    finally:
        terminal.kill()
    assert code == 130 and "stopped" in shown and "Traceback" not in shown
    last = analysis_folder.read_all(made.path / "analysis")[-1]
    assert last.state == "stopped" and last.record is not None and last.record["exit_code"] == 130


def test_what_is_wrong_with_the_command_line(made: PackageFolder, messages: Messages) -> None:
    for arguments, code, says in (
        (["-s", "look"], 2, "roost analyze runs/NAME"),
        (["a", "-r", "b", "-s", "look"], 2, "roost analyze runs/NAME"),
        ([made.path], 2, "--script"),
        ([made.path, "-s", "look", "-c", "1", "--untrained"], 2, "untrained"),
        ([made.path, "-s", "look", "-CPU", "--device", "cuda"], 2, "-CPU"),
        ([made.path, "-s", "loko"], 3, "'look'"),
        ([made.path, "-s", "look", "-c", "9"], 3, " 0, 1, 2"),
        (["nowhere", "-s", "look"], 3, "'nowhere'"),
    ):
        said = roost("analyze", *arguments)
        assert said.returncode == code and says in said.stderr, said.stderr
        messages.check(said.stderr.replace(str(made.path.parent), "<folder>"))
        assert said.stdout == "" and "Traceback" not in said.stderr
