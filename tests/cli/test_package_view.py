"""The text of one package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from roost.analysis import analysis_folder
from roost.cli.package_view import format_package
from roost.display import terminal
from roost.operations.reading.show import show
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.results import predictions, skipped_steps
from roost.package.results.evaluations import evaluation_folder
from roost.package.results.predictions import PredictionMeta
from roost.package.results.skipped_steps import SkippedStep
from tests.evaluation.made_evaluation import write_cells
from tests.messages import Messages
from tests.operations.packages import ROWS, TIMES, VALUES, package, session
from tests.package.results.test_black_box import box


def text(path: Path) -> str:
    return click.unstyle("\n".join(format_package(show(path))))


def test_everything_has_its_place(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="failed", error="ValueError: \x1b[2J", exit_code=1)
    made.output.touch()
    shown = text(made.path)
    places = ["runs/one  failed", "a test", "step 30/30", "sessions", "checkpoints", "fast best", "newest"]
    places += ["valid/loss", "optimizers.main.lr", "_output.txt", "error: ValueError: \\x1b[2J"]
    for said in places:
        assert said in shown
    assert "\x1b[2J" not in shown


def test_the_source_of_a_program_is_shown(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    request = json.loads((made.path / "request.json").read_bytes())
    request["source"], request["git"] = "git+https://host/repo@v1", {"commit": "abc", "dirty": False}
    (made.path / "request.json").write_text(json.dumps(request))
    assert "  from git+https://host/repo@v1  git abc\n" in text(made.path)


def test_what_nobody_has_set_is_counted(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs")
    origins = {"max_epochs": "config.yaml:1", "runner": "config.yaml:2", "model.features": "default"}
    (made.path / "provenance.json").write_text(json.dumps({**origins, "optimizers.main.lr": "default"}))
    manifest = made.manifest
    manifest["left_out"] = [{"path": "data", "reason": "ignored by git"}]
    manifest["links"] = {"data": "/elsewhere/data"}
    (made.path / "manifest.json").write_text(json.dumps(manifest))
    made.new_session({"overrides": ["optimizers.main.lr=0.5"]})
    assert show(made.path).defaults == ["model.features"]
    shown = text(made.path)
    assert "max_epochs" in shown and "optimizers.main.lr" in shown and "model.features" not in shown
    assert "/elsewhere" not in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("not shown: ")]
    messages.check(line)
    everything = click.unstyle("\n".join(format_package(show(made.path), is_all=True)))
    assert all(
        word in everything for word in ("model.features", "data: ignored by git", "-> /elsewhere/data")
    )
    assert "not shown" not in everything


def test_ranks_are_shown_if_there_were_several(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    assert "RANKS" not in text(made.path)
    made.new_session({"overrides": [], "strategy": "ddp", "ranks": 3, "num_nodes": 2})
    header, first, second = text(made.path).partition("sessions\n")[2].splitlines()[:3]
    at = header.index("RANKS")
    assert first[at:].startswith("1 single") and second[at:].startswith("6 ddp")


def test_a_warm_start_is_shown(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    assert "WARM" not in text(made.path)
    session(made, "succeeded", warm=True, reason="early stop")
    assert [one.warm for one in show(made.path).sessions] == [False, True]
    header, _, second = text(made.path).partition("sessions\n")[2].splitlines()[:3]
    assert second[header.index("WARM") :].startswith("yes")
    assert second[header.index("REASON") :].startswith("early stop")


def test_a_killed_guard_is_shown(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs")
    assert "  session 2: " not in text(made.path)
    session(made, "succeeded", guard_lost=1_700_000_000.0)
    (line,) = (line for line in text(made.path).splitlines() if line.startswith("  session 2: "))
    assert "guard" in line and " 2023-11-1" in line
    messages.check(line)


CARD = {"id": "GPU-1", "name": "H100", "total_mb": 81_920, "utilization": 93.0, "peak_memory_mb": 20_480.0}
USE: dict[str, Any] = {
    "cards": [
        {**CARD, "power": 350.4, "temperature": 71.0, "energy_kwh": 1.25}, {**CARD, "utilization": 3.0},
    ],
    "energy_kwh": 1.25, "cost": 0.4, "currency": "EUR", "cpu_seconds": 7200.0, "read_mb": 2048.0,
    "host": {"name": "vm", "cores": 8, "memory_mb": 65_536, "cpu": 41.0, "peak_memory_mb": 8192.0},
    "trouble": "\x1b[2J",
}  # fmt: skip


def test_cards_processes_and_host_have_their_lines(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs")
    assert "system" not in text(made.path), "a package of an older roost"
    session(made, "succeeded", system=USE)
    found = text(made.path).partition("\nsystem\n")[2].partition("\n\n")[0]
    said = ["vm", "8 cores 41 % busy", "8.0 GB of 64.0 GB", "2h", "2.0 GB", "93 % busy", "350 W", "1.25 kWh"]
    assert [one for one in [*said, "0.4 EUR", "GPU 1 was idle", "\\x1b"] if one not in found] == []
    assert "GPU 0 was idle" not in found and "\x1b" not in found
    messages.check(found)


@pytest.mark.parametrize(
    "system", [7, [], {"cards": 7}, {"seconds": -1}, {"cards": [{"id": 1}]}, {"host": []}]
)
def test_a_record_that_roost_cannot_have_written_has_no_system(tmp_path: Path, system: Any) -> None:
    made = package(tmp_path / "runs")
    session(made, "succeeded", system=system)
    assert show(made.path).sessions[1].system is None


def test_without_numbers_in_the_record_those_of_the_rows(tmp_path: Path) -> None:
    """The session runs, or its supervisor was killed."""
    made = package(tmp_path / "runs")
    (made.path / "system").mkdir()
    header = {"columns": ["gpu0/power"], "cards": [CARD], "host": USE["host"]}
    rows = [json.dumps(header), *(f"[{1000 + n},1.0,[3600]]" for n in range(100))]
    (made.path / "system" / "1.jsonl").write_text("\n".join(rows))
    use = show(made.path).sessions[0].system
    assert use is not None and use.energy_kwh == 0.1 and use.cards[0].name == "H100" and use.host.name == "vm"


def test_where_the_time_went(tmp_path: Path, messages: Messages) -> None:
    shown = text(package(tmp_path / "runs", rows=[{**row, **TIMES} for row in ROWS]).path)
    (time,) = (line for line in shown.splitlines() if line.startswith("time: "))
    assert time.startswith("time: 0.2s, 1,000 samples/s  ") and time.count(" 17%") > 3
    assert time.endswith(" 400 MB") and "perf/" not in shown
    messages.check(time)


def test_skipped_steps_have_one_line(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs")
    assert "ValueError" not in text(made.path)
    for count, step in ((1, 7), (2, 9)):
        skipped = SkippedStep(
            session=1, step=step, epoch=0, batch=6, kind="error", error="ValueError: \x1b[2J", samples=[3]
        )
        skipped_steps.append(made.path / skipped_steps.NAME, skipped)
        (line,) = (one for one in text(made.path).splitlines() if "ValueError" in one)
        assert line.startswith(f"{count} ") and line.endswith(f" {step}, ValueError: \\x1b[2J")
        messages.check(line)


def test_the_black_box_has_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    made = package(tmp_path / "runs", state="failed")
    assert "roost debug" not in text(made.path)
    box(made.blackbox, 0, 7, error="ValueError: \x1b[2J")
    monkeypatch.chdir(tmp_path)
    (line,) = (one for one in text(made.path).splitlines() if "roost debug runs/one" in one)
    assert "step 7, ValueError: \\x1b[2J" in line
    messages.check(line)


def test_values_are_shown_as_they_are(tmp_path: Path) -> None:
    values = {**VALUES, "mine": {"list": [1, [2]], "text": "[bold]x[/bold]", "none": None, "empty": {}}}
    shown = text(package(tmp_path / "runs", values=values).path)
    assert all(said in shown for said in ("[1,[2]]", "[bold]x[/bold]", "null", "{}"))


@pytest.mark.parametrize(
    ("asked", "stack"),
    [
        (
            "off",
            {
                "threads": 1,
                "matmul_precision": "tf32",
                "convolution_precision": "tf32",
                "cudnn_benchmark": True,
            },
        ),
        (
            "strict",
            {"threads": 2, "deterministic": True, "convolution_precision": "none", "cudnn_benchmark": False},
        ),
        (
            "se\x1b[2Jeded",
            {"deterministic": True, "deterministic_warn_only": True, "rnn_precision": "tf32"},
        ),
        (None, {"threads": 4}),
    ],
    ids=["off", "strict", "seeded", "none"],
)
def test_determinism_has_one_line(
    asked: str | None, stack: dict[str, Any], tmp_path: Path, messages: Messages
) -> None:
    made = package(tmp_path / "runs")
    (made.path / "environment.json").write_text(json.dumps({"determinism": asked, "stack": stack}))
    (line,) = (one for one in text(made.path).splitlines() if one.startswith("determinism "))
    known = asked.replace("\x1b", "\\x1b") if asked else ""
    assert line.startswith(f"determinism {known}") and ("TF32" in line) and ("\x1b" not in line)
    assert f" {stack.get('threads', '')}" in line
    messages.check(line)
    made.new_session({"overrides": ["+determinism=other"]})
    (later,) = (one for one in text(made.path).splitlines() if one.startswith("determinism "))
    assert later.startswith(f"determinism {known}") and (" other:" in later) == bool(asked)
    messages.check(later)


def test_analyses_have_a_line_each(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    for asked in ({"checkpoint": 1}, {"untrained": True}):
        place = analysis_folder.create(made.path / analysis_folder.NAME)
        analysis_folder.write_request(place, {"script": {"path": "/home/me/lo\x1b[2Jok.py"}, **asked})
        (place / analysis_folder.RECORD).write_text(json.dumps({"state": "succeeded", "seconds": 2.0}))
    lines = [line.split() for line in text(made.path).splitlines() if "ok.py" in line]
    assert lines == [
        ["1", "succeeded", "lo\\x1b[2Jok.py", "1", "2.0s"],
        ["2", "succeeded", "lo\\x1b[2Jok.py", "untrained", "2.0s"],
    ]
    assert "\x1b[2J" not in text(made.path)


def test_what_is_empty_is_left_out(tmp_path: Path) -> None:
    shown = text(package(tmp_path / "runs", state="new").path)
    assert (
        "checkpoints" not in shown
        and "inexact" not in shown
        and "determinism" not in shown
        and "new" in shown
    )


def test_a_name_with_brackets(tmp_path: Path) -> None:
    assert "runs/[red]x" in text(package(tmp_path / "runs", "[red]x").path)


def test_media_have_one_line(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    assert "\nmedia\n" not in text(made.path)
    for step in range(10, 120, 10):
        (made.path / "media" / str(step)).mkdir(parents=True)
        (made.path / "media" / str(step) / "a.png").write_text("x")
    line = text(made.path).partition("\nmedia\n")[2].splitlines()[0]
    assert line.startswith("  11 ") and " 11 " in line[5:] and " 3 " in line.partition("80")[2]
    assert ": 10, 20, 30, 40, 50, 60, 70, 80" in line and "90" not in line.partition("  in ")[0]


def test_predictions_have_a_line_each(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    meta = PredictionMeta(
        package="one",
        checkpoint=1,
        step=2,
        source="ph\x1b[2Jotos",
        count=3,
        values={"x": {}, "y": {}},
        averaged="slow",
    )
    place = made.path / predictions.NAME / "4"
    place.mkdir(parents=True)
    (place / predictions.META_FILE).write_bytes(msgspec.json.encode(meta))
    (line,) = [line.split() for line in text(made.path).splitlines() if "otos" in line]
    assert line[:5] == ["4", "ph\\x1b[2Jotos", "1", "slow", "3"] and line[-2:] == ["x", "y"]


def test_evaluations_have_a_line_each(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    assert "\nevaluations\n" not in text(made.path)
    for name, states in (("beam", ["finished", "finished"]), ("cut", ["finished", "waiting"])):
        place = made.path / evaluation_folder.NAME / name
        place.mkdir(parents=True)
        write_cells(place, [{"folder": "x", "state": state} for state in states])
    (made.path / evaluation_folder.NAME / "beam" / evaluation_folder.REPORT).touch()
    (made.path / evaluation_folder.NAME / "no-grid").mkdir()
    said = [line.split() for line in text(made.path).partition("\nevaluations\n")[2].splitlines()[:4]]
    assert (
        said[:3]
        == [
            ["NAME", "CELLS", "REPORT"],
            ["beam", "2/2", terminal.format_path(made.path / "evaluations/beam/report.html")],
            ["cut", "1/2", terminal.format_path(made.path / "evaluations/cut")],
        ]
        and not said[3]
    )


def test_of_many_metrics_a_checkpoint_shows_those_that_decide(tmp_path: Path) -> None:
    others = {f"valid/m{n}": 2.0 for n in range(9)}
    rows = [{"step": n, "epoch": 0, **others, "valid/loss": 1.0 / n} for n in (1, 2)]
    said = [
        line for line in format_package(show(package(tmp_path / "runs", rows=rows).path)) if "… 9 " in line
    ]
    assert [line.partition("… 9 ")[0].split("kB")[-1].split(" B ")[-1].strip() for line in said] == [
        "valid/loss 1",
        "valid/loss 0.5",
    ]


def test_a_checkpoint_that_was_left_behind_says_so(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    assert not any("behind" in line for line in format_package(show(made.path)))
    info = Manifest(id=3, step=40, epoch=4, batch=0, line=[(0, 0), (3, 3)], session=1)
    checkpoint.write(made.checkpoints, {"model": {"weight": [1.0]}}, info)
    made.write_derived({"fast": [0, 3], "slow": [], "held": [], "best": [3]}, [])
    assert [one.id for one in show(made.path).checkpoints if one.left_behind] == [1, 2]
    assert [line.split()[0] for line in format_package(show(made.path)) if "behind" in line] == ["1", "2"]


def test_a_long_value_is_cut(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", values={**VALUES, "mine": {"text": "x" * 1000}})
    (line,) = [line for line in format_package(show(made.path)) if "mine.text" in line]
    assert line.endswith("xx…") and len(line) < 300
