from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.config.sections.mirrors import MlflowSettings
from roost.train.mirrors.record_feed import RecordFeed
from roost.train.mirrors.sink import RunIdentity
from roost.train.mirrors.sink_retry import RetryingFeed
from tests.operations import packages
from tests.train.mirrors.recorded import by_step, folded, session, show_all
from tests.train.mirrors.servers import MlflowServer, silent_server
from tests.waiting import wait_for

pytestmark = pytest.mark.timeout(300)  # a server that starts beside other tests

SUBJECT = RunIdentity(name="a-run", project="a-project", settings={"lr": 0.1, "model": {"width": 8}})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    started = MlflowServer(tmp_path_factory.mktemp("mlflow"))
    started.start()
    yield started
    started.kill()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)


def feed_of(package: Path, uri: str | None, experiment: str | None = None) -> RecordFeed:
    from roost.train.mirrors.mlflow_sink import MlflowSink

    settings = MlflowSettings(tracking_uri=uri, experiment=experiment)
    sink = MlflowSink(settings, SUBJECT, package / "mirrors" / "mlflow")
    return RecordFeed(package, sink, package / "mirrors" / "mlflow.json")


def note(package: Path) -> dict[str, Any]:
    return dict(json.loads((package / "mirrors" / "mlflow.json").read_bytes()))


def client_of(uri: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(uri)


def held(uri: str, run_id: str) -> dict[int, dict[str, float]]:
    """All values by step; none may be there twice."""
    client = client_of(uri)
    keys = client.get_run(run_id).data.metrics
    return by_step(
        [(m.step, {m.key: m.value}) for key in keys for m in client.get_metric_history(run_id, key)]
    )


def test_the_server_gives_every_value_back(server: MlflowServer, tmp_path: Path) -> None:
    writer = session(tmp_path, 1, 0, [10, 20])
    writer.row(20, 2, {"test/loss": 0.25})
    writer.row(30, 3, {"valid/loss": float("nan")})
    feed = feed_of(tmp_path, server.uri)
    feed.open()
    feed.close("finished")
    found = held(server.uri, note(tmp_path)["run_id"])
    assert _text(found) == _text(by_step(folded(tmp_path)))
    run = client_of(server.uri).get_run(note(tmp_path)["run_id"])
    assert run.info.run_name == "a-run" and run.info.status == "FINISHED"
    assert run.data.params == {"lr": "0.1", "model.width": "8"}
    history = client_of(server.uri).get_metric_history(run.info.run_id, "train/loss")
    from roost.package import records

    rows = [row for row in records.fold(tmp_path / "records").rows if "train/loss" in records.values(row)]
    assert [one.timestamp for one in history] == [int(row["time"] * 1000) for row in rows]


def _text(rows: dict[int, dict[str, float]]) -> str:
    return str({step: dict(sorted(values.items())) for step, values in sorted(rows.items())})


def test_sessions_share_a_run_and_nothing_is_doubled(server: MlflowServer, tmp_path: Path) -> None:
    session(tmp_path, 1, 0, [10, 20, 30])
    first = feed_of(tmp_path, server.uri)
    first.open()
    run_id = note(tmp_path)["run_id"]
    first.close("stopped")
    assert client_of(server.uri).get_run(run_id).info.status == "KILLED"
    writer = session(tmp_path, 2, 20, [30, 40])
    second = feed_of(tmp_path, server.uri)
    second.open()
    assert client_of(server.uri).get_run(run_id).info.status == "RUNNING"
    writer.row(40, 4, {"test/loss": 1.0})
    second.send_new()
    # Killed here: nothing was noted since the run's id. The server is asked what it has.
    session(tmp_path, 3, 40, [50])
    feed_of(tmp_path, server.uri).open()
    assert note(tmp_path)["run_id"] == run_id
    assert held(server.uri, run_id) == by_step(folded(tmp_path))


def test_a_kill_before_the_id_was_noted_makes_no_second_run(server: MlflowServer, tmp_path: Path) -> None:
    session(tmp_path, 1, 0, [10])
    for _ in range(2):
        feed_of(tmp_path, server.uri, "once").open()
        file = tmp_path / "mirrors" / "mlflow.json"
        file.write_text(json.dumps({"token": note(tmp_path)["token"]}))
    client = client_of(server.uri)
    runs = client.search_runs([client.get_experiment_by_name("once").experiment_id])
    assert len(runs) == 1


def test_more_than_a_request_may_hold(server: MlflowServer, tmp_path: Path) -> None:
    many = {f"m{number}": float(number) for number in range(1500)}
    writer = session(tmp_path, 1, 0, [])
    for step in (1, 2):
        writer.row(step, 0, many)
    feed_of(tmp_path, server.uri).open()
    client = client_of(server.uri)
    run = client.get_run(note(tmp_path)["run_id"])
    assert run.data.metrics == many
    assert [m.step for m in client.get_metric_history(run.info.run_id, "m1499")] == [1, 2]


def test_a_name_that_mlflow_does_not_allow(
    server: MlflowServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session(tmp_path, 1, 0, [1, 2], **{"train/f1@5": 0.5})
    feed_of(tmp_path, server.uri).open()
    assert held(server.uri, note(tmp_path)["run_id"])[2]["train/f1_5"] == 1.0
    out = capsys.readouterr().out
    assert out.count("train/f1@5") == out.count("train/f1_5") == 1


def test_media_are_artifacts(server: MlflowServer, tmp_path: Path) -> None:
    session(tmp_path, 1, 0, [10])
    show_all(tmp_path, 10)
    feed_of(tmp_path, server.uri).open()
    found = client_of(server.uri).list_artifacts(note(tmp_path)["run_id"], "media/10")
    assert [Path(one.path).name for one in found] == ["h.json", "m.npy", "m.png", "p.png", "s.wav", "t.txt"]


def test_a_killed_server_that_comes_back_has_all_and_nothing_twice(
    server: MlflowServer, tmp_path: Path
) -> None:
    """It is killed between rows, rows come meanwhile, and it starts again."""
    from roost.train.mirrors.mlflow_sink import MlflowSink

    now = [0.0]
    writer = session(tmp_path, 1, 0, [10, 20])
    settings = MlflowSettings(tracking_uri=server.uri)
    retrying = RetryingFeed(
        tmp_path,
        "mlflow",
        lambda: MlflowSink(settings, SUBJECT, tmp_path / "mirrors" / "mlflow"),
        tmp_path / "mirrors" / "mlflow.json",
        lambda: now[0],
    )
    retrying.send_new()
    server.kill()
    for step in (30, 40):
        writer.row(step, 3, {"train/loss": 0.5})
        now[0] += 100.0
        retrying.send_new()
    server.start()
    writer.row(50, 5, {"train/loss": 0.25})
    now[0] += 100.0
    retrying.finish("finished")
    assert held(server.uri, note(tmp_path)["run_id"]) == by_step(folded(tmp_path))


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # of MLflow's own tables
def test_without_a_server_it_is_a_file_of_the_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "here"
    package.mkdir()
    session(package, 1, 0, [10])
    show_all(package, 10)
    feed = feed_of(package, None)
    feed.open()
    feed.close("stopped")
    assert len(list((package / "mirrors" / "mlflow" / "artifacts").rglob("media/10/*"))) == 6
    moved = package.rename(tmp_path / "there")
    session(moved, 2, 10, [20])
    show_all(moved, 20)
    again = feed_of(moved, None)
    again.open()
    again.close("finished")
    uri = f"sqlite:///{moved}/mirrors/mlflow/mlflow.db"
    assert held(uri, note(moved)["run_id"]) == by_step(folded(moved))
    assert not package.exists(), "MLflow keeps the old place, and would make it again"
    out = capsys.readouterr().out
    assert "media" in out and str(package / "mirrors" / "mlflow" / "artifacts") in out


def test_a_server_that_never_answers_is_an_error_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    session(tmp_path, 1, 0, [10])
    with silent_server() as port, pytest.raises(Exception, match=r"(?i)time"):
        feed_of(tmp_path, f"http://127.0.0.1:{port}").open()


CONNECT = """
import sys
from pathlib import Path
from tests.system.test_mlflow import feed_of
feed_of(Path(sys.argv[1]), None).open()
"""


@pytest.mark.filterwarnings("ignore")  # of its database library, in the process of the test
def test_a_kill_while_the_database_is_made(tmp_path: Path) -> None:
    """MLflow cannot complete a database of which it has made some tables."""
    session(tmp_path, 1, 0, [10])
    folder = tmp_path / "mirrors" / "mlflow"

    def is_being_made() -> bool:
        return any(file.stat().st_size > 0 for file in folder.glob(".mlflow.db.tmp-*/mlflow.db"))

    process = subprocess.Popen([sys.executable, "-c", CONNECT, str(tmp_path)], cwd=Path(__file__).parents[2])
    try:
        wait_for(lambda: is_being_made() or process.poll() is not None, 120)
        assert process.poll() is None and not (folder / "mlflow.db").exists()
    finally:
        process.kill()
        process.wait()
    with sqlite3.connect(folder / "mlflow.db") as half:  # what an older version has left
        half.execute("CREATE TABLE secrets (secret_id TEXT)")
    half.close()
    feed = feed_of(tmp_path, None)
    feed.open()
    feed.close("finished")
    assert held(f"sqlite:///{folder}/mlflow.db", note(tmp_path)["run_id"]) == by_step(folded(tmp_path))
    assert [file.name for file in folder.glob("*mlflow.db*")] == ["mlflow.db"]
    run_id = note(tmp_path)["run_id"]
    feed_of(tmp_path, None).open()
    assert note(tmp_path)["run_id"] == run_id, "a database with a run is kept"


def test_a_finished_run_gets_to_a_server_that_answered_too_late(server: MlflowServer, tmp_path: Path) -> None:
    values = {**packages.VALUES, "mirrors": {"mlflow": {"tracking_uri": server.uri, "experiment": "late"}}}
    package = packages.package(tmp_path / "runs", values=values, checkpoints=False).path
    command = [str(Path(sys.executable).parent / "roost"), "mirror", "--flush", str(package)]
    server.kill()
    silent = subprocess.run(command, capture_output=True, text=True)
    assert silent.returncode == 1 and "incomplete" in silent.stdout and "Traceback" not in silent.stderr
    server.start()
    for _ in range(2):
        flushed = subprocess.run(command, capture_output=True, text=True)
        assert flushed.returncode == 0 and "complete" in flushed.stdout, flushed.stderr
    run_id = note(package)["run_id"]
    assert held(server.uri, run_id) == by_step(folded(package))
    assert client_of(server.uri).get_run(run_id).info.status == "FINISHED"
