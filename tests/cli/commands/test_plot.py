"""`roost plot`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.programs import Terminal, roost
from tests.messages import Messages
from tests.operations.packages import ROWS, TIMES, VALUES, package


def test_failed_runs_are_left_out_and_named(tmp_path: Path) -> None:
    good = package(tmp_path / "runs", "2026-07-01_12-00-00_481 good")
    bad = [
        package(tmp_path / "runs", f"{i}\x1b " + "long " * 20, state="failed", rows=[], checkpoints=False)
        for i in range(3)
    ]
    said = roost("plot", *(one.path for one in [*bad, good]), "-o", "c.png", cwd=tmp_path)
    assert said.returncode == 0 and said.stdout == "c.png\n" and (tmp_path / "c.png").is_file()
    panels, left_out = said.stderr.splitlines()
    assert panels == "loss, lr" and ": 0\\x1b long" in left_out
    assert left_out.count("long ") == 60 and "good" not in left_out


def test_of_several_those_that_cannot_be_read_are_left_out_aloud(tmp_path: Path) -> None:
    package(tmp_path / "runs", "good")
    (package(tmp_path / "runs", "lacking").path / "args.json").unlink()
    (package(tmp_path / "runs", "torn").path / "request.json").write_text("{")
    said = roost("plot", "runs", "-o", "c.png", cwd=tmp_path)
    assert said.returncode == 0 and (tmp_path / "c.png").is_file()
    _, lacking, torn = said.stderr.splitlines()
    assert "lacking is left out: the package lacks args.json" in lacking
    assert "torn is left out: request.json is damaged" in torn
    for words in (["runs/torn"], ["runs/torn", "runs/lacking"], ["runs/good", "runs/nothing"]):
        assert roost("plot", *words, "-o", "d.png", cwd=tmp_path).returncode != 0
    assert not (tmp_path / "d.png").exists()


def test_what_is_named(tmp_path: Path) -> None:
    made = [
        package(tmp_path / "runs", "new", rows=[{**row, **TIMES} for row in ROWS]),
        package(tmp_path / "runs", "old"),
    ]
    said = roost("plot", *(one.path for one in made), "-m", "perf/*_mb", "-o", "c.png", cwd=tmp_path)
    assert said.returncode == 0 and (tmp_path / "c.png").is_file()
    panel, left_out = said.stderr.splitlines()
    assert panel == "perf/host_mb" and left_out.endswith(": old")
    wrong = roost("plot", made[0].path, "-m", "perf/hots_mb", "-o", "d.png", cwd=tmp_path)
    assert wrong.returncode == 3 and " perf/host_mb" in wrong.stderr


def test_a_terminal_shows_the_plot_itself(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    screen = Terminal("plot", made.path, NO_COLOR="")
    try:
        code, seen = screen.end()
    finally:
        screen.kill()
    assert code == 0 and "\x1b[38;5;" in seen and "└" in seen and "valid" in seen
    assert not (made.path / "exports").exists()


def test_through_a_pipe_it_is_a_file_unless_text_is_requested(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    said = roost("plot", made.path, cwd=tmp_path)
    assert said.stdout == f"{made.path}/exports/curves.png\n"
    said = roost("plot", made.path, "--terminal", "--x", "epoch", cwd=tmp_path)
    assert said.returncode == 0 and "loss" in said.stdout and "epoch" in said.stdout


def test_json_has_the_points(tmp_path: Path) -> None:
    for number, name in enumerate(("a", "b\udcff")):
        package(tmp_path / "runs", name, values={**VALUES, "width": number})
    said = roost("plot", "runs", "-m", "valid/loss", "--json", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    body = json.loads(said.stdout)
    assert [one["label"] for one in body["legend"]] == ["width=0", "width=1"]
    assert body["panels"][0]["curves"][1]["y"] == [row["valid/loss"] for row in ROWS]
    said = roost("plot", "runs", "--scatter", "width", "--json", cwd=tmp_path)
    assert json.loads(said.stdout)["keys"][0]["positions"] == [0, 1]


def test_settings_as_a_picture_and_as_text(tmp_path: Path) -> None:
    for number in range(3):
        package(tmp_path / "runs", f"r{number}", values={**VALUES, "width": number, "kind": f"k{number}"})
    for option in ("--scatter", "--parallel"):
        said = roost("plot", "runs", option, "width,kind", "-o", "s.svg", cwd=tmp_path)
        assert said.returncode == 0 and said.stdout == "s.svg\n", said.stderr
    said = roost("plot", "runs", "--scatter", "width", "--terminal", cwd=tmp_path)
    assert said.returncode == 0 and "valid/loss by width" in said.stdout
    said = roost("plot", "runs", "--parallel", "width,kind", "--terminal", cwd=tmp_path)
    assert said.returncode == 0 and {"width", "kind", "valid/loss", "r2"} <= set(said.stdout.split())


@pytest.mark.parametrize(
    "options",
    [
        ["--scatter", "width", "--parallel", "width", "-o", "a.png"],
        ["--scatter", "widht", "-o", "a.png"],
        ["--scatter", " ,", "-o", "a.png"],
        ["--scatter", "max_epochs", "--smooth", "0.9", "-o", "a.png"],
        ["--parallel", "max_epochs"],
        ["--value", "max", "-o", "a.png"],
        ["--terminal", "-o", "a.png"],
        ["--follow", "--json"],
        ["--group-by", "widht", "-o", "a.png"],
        ["--x", "epochs", "-o", "a.png"],
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, options: list[str], messages: Messages) -> None:
    for name in "ab":
        package(tmp_path / "runs", name)
    said = roost("plot", "runs", *options, cwd=tmp_path)
    assert said.returncode == 2 and "Traceback" not in said.stderr and not list(tmp_path.glob("*.png"))
    messages.check(said.stderr)
