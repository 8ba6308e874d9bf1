"""`roost plot`."""

from __future__ import annotations

from pathlib import Path

from tests.cli.programs import roost
from tests.operations.packages import ROWS, TIMES, package


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
