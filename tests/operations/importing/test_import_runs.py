"""Runs of other systems become packages: round trips by `export`, foreign files, and what is refused."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.tensorboard import SummaryWriter

from roost.base.errors import ConfigError, NotFound, Refused, RoostError, UsageError
from roost.operations.comparing.compare import compare
from roost.operations.curves.export_records import export_records
from roost.operations.importing import aim_runs
from roost.operations.importing.import_runs import ImportedPackage, import_runs
from roost.operations.listing.list_packages import list_packages
from roost.operations.listing.run_listing import list_runs
from roost.operations.queue.continue_interrupted import find_interrupted
from roost.operations.reading.verify import verify
from roost.package import labels
from roost.package.package import PackageFolder
from roost.package.project_preflight import require_runner
from roost.package.records import Row
from tests.cli.programs import roost
from tests.messages import Messages
from tests.operations.packages import package
from tests.package.dlnest.original import original
from tests.train.mirrors.recorded import keep_exit

ROWS = (
    {"step": 10, "epoch": 1, "train/loss": 0.1 + 0.2, "valid/loss": math.nan, "lr": 0.1},
    {"step": 20, "epoch": 2, "train/loss": 1e-300, "valid/loss": -math.inf, "count": 3},
    {"step": 20, "epoch": 2, "test/loss": 5e-324, "valid/loss": 1 / 3},
    {"step": 30, "epoch": 3, "train/loss": -0.0, "perf/data_ms": 2.5},
)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "state"))


def imported(source: Path, **how: Any) -> list[ImportedPackage]:
    return list(import_runs(source, root=source.parent / "imported", **how))


def only(source: Path, **how: Any) -> PackageFolder:
    (one,) = imported(source, **how)
    assert one.is_new
    return PackageFolder.open(one.package)


def bits(value: float) -> Any:
    return ("nan",) if math.isnan(value) else struct.pack("<d", value)


def bitwise(rows: list[Row], *, without: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """The rows with the bits of each number."""
    return [
        {name: bits(value) for name, value in row.items() if name not in ("nonfinite", *without)}
        for row in rows
    ]


def exported(tmp_path: Path, kind: str) -> tuple[PackageFolder, Path]:
    made = package(tmp_path / "runs", "first run", rows=ROWS, checkpoints=False)
    output = tmp_path / f"out.{kind}"
    export_records(made.path, kind=kind, output=output)
    return made, output


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_come_back_bit_for_bit(tmp_path: Path, kind: str) -> None:
    made, output = exported(tmp_path, kind)
    found = only(output)
    assert bitwise(found.records().rows) == bitwise(made.records().rows)
    assert found.path.name == "out" and found.request["imported"]["system"] == kind


def test_tensorboard_keeps_32_bits_and_no_epochs(tmp_path: Path) -> None:
    made, output = exported(tmp_path, "tensorboard")
    found, given = only(output).records(), made.records()
    for name, (steps, values) in given.series.items():
        at, back = found.series[name]
        assert at == steps
        assert [bits(value) for value in back] == [bits(as_float32(value)) for value in values]
    assert {row["epoch"] for row in found.rows} == {0}


def as_float32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def test_wandb_keeps_the_bits_and_one_row_for_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_exit(monkeypatch)
    made, output = exported(tmp_path, "wandb")
    found = only(output)
    rows, given = found.records().rows, made.records().rows
    # W&B keeps the first value of a step, and no sign of a zero.
    merged = [given[0], {**given[2], **given[1]}, {**given[3], "train/loss": 0.0}]
    assert bitwise(rows, without=("time",)) == bitwise(merged, without=("time",))
    assert rows[0]["time"] == given[0]["time"] and found.path.name == "first run"
    assert found.settings == made.settings
    assert [one.name for one in list_packages(found.path.parent)] == ["first run"]


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries of MLflow
def test_mlflow_keeps_the_bits_and_no_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Soak: MLflow makes a database in seven seconds of the CPU."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")  # of mirrors, never of an export
    made, output = exported(tmp_path, "mlflow")
    found = only(output)
    rows, given = found.records().rows, made.records().rows
    assert found.path.name == "first run" and found.settings == made.settings
    # As in W&B: SQLite has no sign of a zero either.
    merged = [given[0], {**given[2], **given[1]}, {**given[3], "train/loss": 0.0}]
    lost = ("time", "epoch")
    assert bitwise(rows, without=lost) == bitwise(merged, without=lost)
    assert rows[0]["time"] == pytest.approx(given[0]["time"], abs=0.002)


def test_a_package_that_every_reader_takes(tmp_path: Path, messages: Messages) -> None:
    _, output = exported(tmp_path, "csv")
    found = only(output, name="baseline")
    (row,) = list_packages(found.path.parent)
    assert (row.name, row.state, row.step, row.epoch) == ("baseline", "succeeded", 30, 3)
    assert row.last == 1 / 3 and row.description == "imported from csv"
    assert {finding.verdict for finding in verify(found.path)} == {"good"}
    with pytest.raises(Refused) as caught:
        require_runner(found)
    messages.check(caught.value)


def test_beside_runs_of_roost_it_shows_only_what_it_recorded(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(f"step,loss,model\n1,2,net-{name}\n")
        only(tmp_path / f"{name}.csv")
    root = tmp_path / "imported"
    own = package(root, "own", checkpoints=False)
    rows = {row.name: row for row in list_packages(root)}
    assert (rows["a"].system, rows["a"].started, rows["a"].seconds) == ("csv", None, None)
    assert rows["own"].system is None and rows["own"].seconds is not None
    assert list(list_runs([root]).columns) == ["model"]
    compared = compare([own.path, root / "a", root / "b"])
    assert [(one.name, one.absent) for one in compared.settings] == [("model", [0])]
    assert compared.num_equal_settings == 0 and compared.code.unknown == [1, 2]
    text = roost("compare", own.path, root / "a").stdout
    assert "(not set)" in text and text.count("(not set)") == 1 and "code\n" not in text
    assert "output:" not in roost("show", root / "a").stdout
    package(root, "other", checkpoints=False, values={**own.args, "max_epochs": 4})
    assert set(list_runs([root]).columns) == {"model", "max_epochs"}


def test_a_second_import_is_noticed_and_a_run_that_has_grown_is_another(tmp_path: Path) -> None:
    _, output = exported(tmp_path, "csv")
    (first,) = imported(output)
    before = sorted(tmp_path.joinpath("imported").rglob("*"))
    (again,) = imported(output)
    assert not again.is_new and again.package == first.package
    assert sorted(tmp_path.joinpath("imported").rglob("*")) == before
    moved = output.rename(tmp_path / "moved.csv")
    assert not imported(moved)[0].is_new
    line = moved.read_text().splitlines()[-1]
    moved.write_text(f"{moved.read_text()}{line.replace('30,', '40,', 1)}\n")
    (grown,) = imported(moved)
    assert grown.is_new and grown.package != first.package


def test_a_table_whose_last_line_was_cut(tmp_path: Path) -> None:
    (tmp_path / "cut.csv").write_text("step,loss\n1,2\n2")
    (one,) = imported(tmp_path / "cut.csv")
    assert one.rows == 1 and one.left_out == ["the last line, which was cut"]


def test_tables_of_others(tmp_path: Path) -> None:
    table = tmp_path / "lightning.csv"
    table.write_text(
        "epoch;trainer/global_step;loss;time;model;done;remark\n"
        "0;9;0.5;;net;true;good\n1;19;nan;;net;false;\n1;4;3;;net;false;\n"
    )
    (one,) = imported(table)
    rows = PackageFolder.open(one.package).records().rows
    assert [row["step"] for row in rows] == [4, 9, 19] and [row["epoch"] for row in rows] == [1, 0, 1]
    assert rows[0]["loss"] == 3 and math.isnan(rows[2]["loss"]) and rows[1]["done"] == 1
    assert PackageFolder.open(one.package).settings == {"model": "net"}
    assert one.left_out == ["texts in remark"]
    plain = tmp_path / "plain.tsv"
    plain.write_text("loss\tsession\n2.0\t7\n1.0\t8\n")
    (one,) = imported(plain)
    rows = PackageFolder.open(one.package).records().rows
    assert [(row["step"], row["loss"], row["session_"]) for row in rows] == [(0, 2.0, 7), (1, 1.0, 8)]
    assert "numbered" in one.left_out[0]


def test_event_files_of_torch(tmp_path: Path) -> None:
    for name, first in (("a", 1.0), ("b/inner", 2.0)):
        with SummaryWriter(str(tmp_path / "logs" / name)) as writer:
            for step in range(3):
                writer.add_scalar("loss", first / (step + 1), step)
                writer.add_scalar("lr", 0.5, step)
    with SummaryWriter(str(tmp_path / "logs" / "a"), purge_step=2) as writer:
        writer.add_scalar("loss", 8.0, 2)
    found = imported(tmp_path / "logs")
    assert [Path(one.package).name for one in found] == ["a", "b-inner"]
    rows = PackageFolder.open(found[0].package).records()
    assert rows.series["loss"] == ([0, 1, 2], [1.0, 0.5, 8.0]) and rows.series["lr"] == ([0, 1], [0.5, 0.5])
    assert len(rows.rows) == 3
    assert [one.is_new for one in imported(tmp_path / "logs")] == [False, False]
    with pytest.raises(UsageError, match="several"):
        imported(tmp_path / "logs", name="one")


def mlflow_database(path: Path) -> None:
    """The columns of MLflow's tables that are read, with two runs, one of which is deleted."""
    with sqlite3.connect(path) as database:
        database.executescript(
            "CREATE TABLE runs (run_uuid TEXT, name TEXT, status TEXT, start_time INT, end_time INT, "
            "lifecycle_stage TEXT);"
            "CREATE TABLE params (key TEXT, value TEXT, run_uuid TEXT);"
            "CREATE TABLE tags (key TEXT, value TEXT, run_uuid TEXT);"
            "CREATE TABLE metrics (key TEXT, value REAL, timestamp INT, run_uuid TEXT, step INT, "
            "is_nan BOOL);"
        )
        runs = [
            ("r1", "big one", "FAILED", 1000_000, 1060_000, "active"),
            ("r2", "x", "FINISHED", 0, 0, "deleted"),
        ]
        database.executemany("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?)", runs)
        params = [
            ("lr", "0.1", "r1"),
            ("model.width", "8", "r1"),
            ("name", "on", "r1"),
            ("a", "1", "r1"),
            ("a.b", "2", "r1"),
        ]
        database.executemany("INSERT INTO params VALUES (?, ?, ?)", params)
        tags = [
            ("team", "vision", "r1"),
            ("mlflow.user", "ann", "r1"),
            ("mlflow.note.content", "a note", "r1"),
        ]
        database.executemany("INSERT INTO tags VALUES (?, ?, ?)", [*tags, ("not a tag", "x y", "r1")])
        points = [("loss", 0.5, 1001_500, "r1", 1, False), ("loss", 0, 1002_000, "r1", 2, True)]
        points += [("acc", 1.7976931348623157e308, 1001_600, "r1", 1, False)]
        database.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", points)


def test_a_database_of_mlflow_without_mlflow(tmp_path: Path) -> None:
    mlflow_database(tmp_path / "mlflow.db")
    (one,) = imported(tmp_path / "mlflow.db")
    found = PackageFolder.open(one.package)
    assert found.path.name == "big one"
    assert found.settings == {"lr": 0.1, "model": {"width": 8}, "name": True, "a": 1, "a.b": 2}
    (session,) = found.sessions()
    assert session.state == "failed" and session.recorded.started == 1000.0 and session.recorded.seconds == 60
    first, second = found.records().rows
    assert (first["loss"], first["acc"], first["time"]) == (0.5, math.inf, 1001.5)
    assert math.isnan(second["loss"])
    given = labels.read(found.path)
    assert given.tags == ["team:vision"] and given.note == "a note" and "not a tag" in one.left_out[0]
    assert find_interrupted([str(found.path)]) == []


def test_a_file_store_of_mlflow(tmp_path: Path) -> None:
    for run, stage in (("abc", "active"), ("old", "deleted")):
        folder = tmp_path / "mlruns" / "0" / run
        for name in ("metrics/train", "params", "tags"):
            (folder / name).mkdir(parents=True)
        (folder / "meta.yaml").write_text(
            f"run_id: {run}\nstatus: 3\nstart_time: 5000\nend_time: null\nlifecycle_stage: {stage}\n"
        )
        (folder / "metrics" / "train" / "loss").write_text("6000 0.25 2\n5500 nan 1\n")
        (folder / "params" / "lr").write_text("1e-3")
        (folder / "tags" / "mlflow.runName").write_text("tree")
    found = only(tmp_path / "mlruns")
    assert found.path.name == "tree" and found.settings == {"lr": "1e-3"}
    assert found.records().series["train/loss"][0] == [1, 2] and found.records().rows[1]["time"] == 6.0
    (tmp_path / "mlruns" / "0" / "abc" / "metrics" / "train" / "loss").write_text("6000 many 2\n")
    with pytest.raises(ConfigError, match="loss:1"):
        imported(tmp_path / "mlruns")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries of Aim
def test_aim_keeps_all_of_a_row(tmp_path: Path) -> None:
    pytest.importorskip("aim", reason="Aim is in no extra of the tests: docs/decisions/dependencies.md")
    made, output = exported(tmp_path, "aim")
    before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    found = only(output)
    rows, given = found.records().rows, made.records().rows
    assert bitwise(rows) == bitwise([given[0], {**given[1], **given[2]}, given[3]])
    assert found.path.name == "first run" and found.settings == made.settings
    (session,) = found.sessions()
    assert session.state == "succeeded" and session.recorded.started is not None
    assert before == {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    (manifest,) = (output / ".aim" / "meta" / "chunks").glob("*/MANIFEST-*")
    manifest.write_bytes(b"x" * 200)
    with pytest.raises(ConfigError, match="meta/chunks"):
        imported(output)
    (output / ".aim" / "run_metadata.sqlite").write_bytes(b"SQLite format 3")
    with pytest.raises(ConfigError, match="run_metadata"):
        imported(output)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_run_of_aim_that_was_killed(tmp_path: Path) -> None:
    """What Aim's own program writes: contexts, settings, tags, texts; without an end, and never indexed."""
    pytest.importorskip("aim", reason="Aim is in no extra of the tests: docs/decisions/dependencies.md")
    program = """
import os, sys
from aim import Repo, Run, Text
run = Run(repo=Repo(sys.argv[1], init=True), system_tracking_interval=None)
run.name, run.description = "big one", "a note"
run.add_tag("team:vision")
run["__system_params"] = {"packages": {}}
run["hparams"] = {"lr": 0.1, "layers": [8, {"width": 4}], "none": None}
for step in (1, 2):
    run.track(step / 2, name="loss", step=step, epoch=1, context={"subset": "valid", "fold": 3})
    run.track(step, name="count", step=step)
run.track(Text("words"), name="said", step=1)
os._exit(1)
"""
    subprocess.run([sys.executable, "-c", program, tmp_path], check=False)
    (one,) = imported(tmp_path / ".aim")
    found = PackageFolder.open(one.package)
    assert found.path.name == "big one"
    assert found.settings == {"hparams": {"lr": 0.1, "layers": [8, {"width": 4}], "none": None}}
    assert found.records().series["valid/fold=3/loss"] == ([1, 2], [0.5, 1.0])
    assert [(row["count"], row["epoch"]) for row in found.records().rows] == [(1, 1), (2, 1)]
    assert labels.read(found.path).tags == ["team:vision"] and labels.read(found.path).note == "a note"
    assert found.sessions()[0].state == "stopped"
    assert one.left_out == ["what is no metric or setting: __system_params, said"]


def test_without_aim_the_line_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setattr(aim_runs, "find_spec", lambda name: None)
    (tmp_path / ".aim" / "meta" / "chunks").mkdir(parents=True)
    with pytest.raises(ConfigError) as caught:
        imported(tmp_path)
    messages.check(caught.value)


def test_a_package_of_dlnest(tmp_path: Path) -> None:
    saved = tmp_path / "Saves" / "2022-01-01"
    (saved / "tensorboard").mkdir(parents=True)
    settings = {"runner_file_path": "./Runner.py", "lr": 0.1}
    (saved / "args.json").write_text(json.dumps(settings))
    (saved / "_desc: good").touch()
    (saved / "Checkpoints").mkdir()
    (saved / "Checkpoints" / "epoch_0.ckpt").write_bytes(b"\x80\x04cposix\nsystem\n.")  # a pickle that acts
    (one,) = imported(tmp_path / "Saves")
    found = PackageFolder.open(one.package)
    assert found.settings == settings and labels.read(found.path).note == "good"
    assert one.system == "dlnest" and one.rows == 0
    assert one.left_out[0] == "its code and checkpoints" and "epoch_0.ckpt cannot be read" in one.left_out[1]


def saved_by_dlnest(tmp_path: Path, **state: Any) -> Path:
    made = original(tmp_path / "Saves" / "old")
    torch.save(state, made / "Checkpoints" / "state_3.ckpt")
    return made


def test_the_log_of_dlnest(tmp_path: Path) -> None:
    """Two epochs of three steps, with a validation after each."""
    log = {
        "loss": [np.float32(0.1), np.float64(0.2), torch.tensor(0.3), 4, math.nan, 0.6],
        "valid": {"acc": [0.5, 0.75]},
        "rare": [1.0, 2.0, 3.0],
        "seen": 120,
        "said": ["words"],
        "time": [7.0],
    }
    made = saved_by_dlnest(tmp_path, log_dict=log, runner={"w": torch.ones(3)}, finished_epoch=1)
    with SummaryWriter(str(made)) as writer:
        writer.add_scalar("loss", 9.0, 0)
        writer.add_scalar("own", 8.0, 2)
    (one,) = imported(made)
    found = PackageFolder.open(one.package).records()
    values = [float(np.float32(0.1)), 0.2, float(torch.tensor(0.3)), 4.0, math.nan, 0.6]
    assert [bits(value) for value in found.series["loss"][1]] == [bits(value) for value in values]
    assert found.series["loss"][0] == [1, 2, 3, 4, 5, 6]
    assert found.series["valid/acc"] == ([3, 6], [0.5, 0.75]) and found.series["rare"][0] == [1, 2, 3]
    assert found.series["seen"] == ([6], [120.0]) and found.series["time_"] == ([1], [7.0])
    assert found.series["own"] == ([2], [8.0]), "its copy of the loss is left out"
    assert [row["epoch"] for row in found.rows if "loss" in row] == [1, 1, 1, 2, 2, 2]
    assert one.left_out == ["its code and checkpoints", "what is no number in the log: said"]
    saved_by_dlnest(
        tmp_path / "more", log_dict={"loss": [1.0, 2.0, 3.0], "acc": [1.0, 2.0]}, finished_epoch=1
    )
    found = only(tmp_path / "more" / "Saves").records()
    assert found.series["acc"][0] == [1, 2] and {row["epoch"] for row in found.rows} == {0}


class Acts:
    """Its pickle makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_a_log_of_dlnest_that_acts(tmp_path: Path) -> None:
    acts = Acts(tmp_path / "made")
    log = {
        "loss": [1.0, acts, 2.0],
        "deep": {"it": acts},
        "call": [{}.get],
        "meta": torch.ones(1, device="meta"),
    }
    log["itself"] = log
    (one,) = imported(saved_by_dlnest(tmp_path, log_dict=log, life_cycle=acts, finished_epoch=0))
    assert not (tmp_path / "made").exists()
    assert PackageFolder.open(one.package).records().series == {"loss": ([1, 3], [1.0, 2.0])}
    assert one.left_out[1] == "what is no number in the log: loss, deep/it, call, meta"
    for number, log in enumerate((acts, [1.0], "words", 3)):
        (one,) = imported(saved_by_dlnest(tmp_path / f"{number}", log_dict=log, finished_epoch=0))
        assert one.rows == 0
    assert not (tmp_path / "made").exists()


REFUSED: dict[str, tuple[type[RoostError], dict[str, str]]] = {
    "missing.csv": (NotFound, {}),
    "empty.csv": (ConfigError, {"empty.csv": ""}),
    "words.csv": (ConfigError, {"words.csv": "a,b\nx,y\nz,w\n"}),
    "torn.csv": (ConfigError, {"torn.csv": "step,loss\n1,2\n2\n"}),
    "junk.parquet": (ConfigError, {"junk.parquet": "PAR1"}),
    "damaged.parquet": (ConfigError, {"damaged.parquet": "PAR1xxxxxxxx\x08\0\0\0PAR1"}),
    "junk.wandb": (ConfigError, {"junk.wandb": "no run"}),
    "meta": (ConfigError, {"meta/mlruns/0/r1/meta.yaml": "status: [", "meta/mlruns/0/r1/metrics/a": ""}),
    "points": (ConfigError, {"points/mlruns/0/r1/meta.yaml": "", "points/mlruns/0/r1/metrics/a": "x\n"}),
    "notes": (UsageError, {"notes/readme.txt": "nothing"}),
    "own": (Refused, {"own/request.json": "{}"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_run_is_refused_with_one_line(tmp_path: Path, messages: Messages, name: str) -> None:
    kind, files = REFUSED[name]
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    with pytest.raises(kind) as caught:
        imported(tmp_path / name)
    assert "\n" not in str(caught.value)
    messages.check(caught.value)
    assert not (tmp_path / "imported").exists()


def test_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        imported(tmp_path, format="excel")
    assert caught.value.setting == "--format"


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("step,loss,loss\n1,2,3\n")
    with pytest.raises(ConfigError, match="several columns are called loss"):
        imported(tmp_path / "a.csv")


def test_a_cell_may_have_line_ends(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('step,loss,note\n1,2,"one\ntwo"\n2,3,a\x1cb\u2028c\n')
    assert only(tmp_path / "a.csv").records().series["loss"] == ([1, 2], [2, 3])


def test_an_event_file_with_a_false_length_ends_there(tmp_path: Path) -> None:
    from roost.train.mirrors.event_files import EventFile

    with SummaryWriter(str(tmp_path / "logs")) as writer:
        writer.add_scalar("loss", 1.0, 1)
    (file,) = (tmp_path / "logs").iterdir()
    with file.open("ab") as opened:
        opened.write(struct.pack("<QI", 2**64 - 1, 0))
    growing = EventFile(file)
    assert [len(list(growing.new_scalars())) for _ in range(2)] == [1, 0]
    assert only(tmp_path / "logs").records().series["loss"] == ([1], [1.0])


HOSTILE_PARAMS = {
    "deep": "[" * 3000,
    "itself": "&a [*a]",
    "laughs": "{a: &a [x, x], b: &b [*a, *a], c: [*b, *b]}",
    "empty": None,
}


def test_hostile_texts_in_a_database_of_mlflow(tmp_path: Path) -> None:
    mlflow_database(tmp_path / "mlflow.db")
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.executemany("INSERT INTO params VALUES (?, ?, 'r1')", HOSTILE_PARAMS.items())
        database.execute("UPDATE tags SET value = NULL")
    found = only(tmp_path / "mlflow.db").settings
    assert {name: found[name] for name in HOSTILE_PARAMS} == {**HOSTILE_PARAMS, "empty": ""}


@pytest.mark.parametrize("step", ["'first'", "NULL", "1e300"])
def test_a_step_that_is_none_in_a_database_of_mlflow(tmp_path: Path, step: str) -> None:
    mlflow_database(tmp_path / "mlflow.db")
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute(f"UPDATE metrics SET step = {step}")
    with pytest.raises(ConfigError):
        imported(tmp_path / "mlflow.db")


def test_a_meta_file_of_mlflow_with_values_of_other_types(tmp_path: Path) -> None:
    folder = tmp_path / "mlruns" / "0" / "r1"
    (folder / "metrics").mkdir(parents=True)
    (folder / "metrics" / "loss").write_text("6000 0.25 2\n")
    (folder / "meta.yaml").write_text("{status: {}, start_time: 1.0e+300, end_time: .nan, run_name: [1]}")
    assert only(tmp_path / "mlruns").records().series["loss"][0] == [2]
    (folder / "meta.yaml").write_text("[" * 3000)
    with pytest.raises(ConfigError, match="no YAML"):
        imported(tmp_path / "mlruns")


def test_hostile_values_in_a_run_of_wandb(tmp_path: Path) -> None:
    from wandb.proto import wandb_internal_pb2 as proto

    def framed(body: bytes) -> bytes:
        return struct.pack("<IHB", zlib.crc32(b"\1" + body), len(body), 1) + body

    def record(**values: str) -> bytes:
        made: Any = proto.Record()  # type: ignore[attr-defined]
        for name, text in values.items():
            made.history.item.add(key=name, value_json=text)
        return framed(made.SerializeToString())

    run: Any = proto.Record()  # type: ignore[attr-defined]
    run.run.run_id = "abc"
    file = tmp_path / "run-abc.wandb"
    file.write_bytes(
        b":W&B\xe1\xbe\0"
        + framed(run.SerializeToString())
        + record(loss="1", _step='"x"', _timestamp="null")
        + record(loss="2", _step="NaN", _timestamp="1e400")
        + record(loss="3", _step="9" * 30, deep="[" * 5000, large="9" * 30)
    )
    assert [row["loss"] for row in only(file).records().rows] == [1, 2, 3]
    file.write_bytes(file.read_bytes() + framed(b"\xff\xff\xff"))
    with pytest.raises(ConfigError, match="a record cannot be read"):
        imported(file)
