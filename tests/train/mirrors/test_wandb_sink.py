from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost.config.sections.mirrors import WandbSettings
from roost.train.mirrors.record_feed import RecordFeed
from roost.train.mirrors.sink import RunIdentity
from tests.train.mirrors.recorded import (
    by_step,
    folded,
    keep_exit,
    logged_values,
    of_wandb,
    session,
    show,
    show_all,
)

SUBJECT = RunIdentity(name="a-run", project="a-project", settings={"lr": 0.1, "model": {"width": 8}})


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_NAME", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    keep_exit(monkeypatch)
    yield


def feed_of(package: Path, settings: WandbSettings | None = None) -> RecordFeed:
    from roost.train.mirrors.wandb_sink import WandbSink

    sink = WandbSink(settings or WandbSettings(), SUBJECT, package / "mirrors")
    feed = RecordFeed(package, sink, package / "mirrors" / "wandb.json")
    feed.open()
    return feed


def files(package: Path) -> list[Path]:
    return sorted((package / "mirrors").glob("wandb/offline-run-*/run-*.wandb"))


def test_its_files_hold_every_value(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    writer = session(tmp_path, 1, 0, [10, 20])
    writer.row(20, 2, {"test/loss": 0.25})
    writer.row(30, 3, {"train/loss": float("inf"), "valid/loss": float("nan")})
    feed_of(tmp_path).close("finished")
    found = logged_values(of_wandb(tmp_path / "mirrors"))
    assert _text(found) == _text(by_step(folded(tmp_path))) and list(found) == [10, 20, 30]
    assert capfd.readouterr().out.count("\n") == 1, "only where the files are"


def test_what_a_session_of_the_same_second_wrote_is_not_sent_again(tmp_path: Path) -> None:
    session(tmp_path, 1, 0, [10])
    feed_of(tmp_path).close("finished")
    (first,) = files(tmp_path)
    session(tmp_path, 2, 10, [20])
    feed_of(tmp_path).close("finished")
    (second,) = {*files(tmp_path)} - {first}
    second.parent.rename(first.parent.with_name(f"{first.parent.name}-1"))  # as W&B calls the second one
    session(tmp_path, 3, 10, [20, 30])
    feed_of(tmp_path).close("finished")
    assert [one["_step"] for one in of_wandb(tmp_path / "mirrors")] == [10, 20, 30]


def test_a_session_says_that_it_is_written_offline(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    session(tmp_path, 1, 0, [10])
    feed_of(tmp_path).close("finished")
    (line,) = (one for one in capfd.readouterr().out.splitlines() if "written offline" in one)
    advised, online = line.split("`")[1], line.rpartition("; ")[2]
    assert sorted(tmp_path.parent.glob(str(Path(advised.split()[2]).relative_to(tmp_path.parent))))
    assert online == "mirrors.wandb.mode=online sends during the run"


def test_wandb_sync_takes_its_files_for_one_run(tmp_path: Path) -> None:
    """As far as it goes without a server: it looks into the files, and names what it would send."""
    session(tmp_path, 1, 0, [10])
    feed_of(tmp_path).close("stopped")
    session(tmp_path, 2, 10, [20])
    feed_of(tmp_path).close("finished")
    folders = [str(path.parent) for path in files(tmp_path)]
    command = [str(Path(sys.executable).with_name("wandb")), "sync", "--dry-run", *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    (run_id,) = {path.stem.removeprefix("run-") for path in files(tmp_path)}
    assert "Would sync 2 run(s)" in done.stderr and done.stderr.count(f"run-{run_id}.wandb") == 2


def _text(rows: dict[int, dict[str, float]]) -> str:
    """In which NaN is equal to itself."""
    return str({step: sorted(values.items()) for step, values in rows.items()})


def test_the_run_is_described_and_nothing_else_is_captured(tmp_path: Path) -> None:
    from wandb.proto import wandb_internal_pb2 as proto

    from roost.train.mirrors import wandb_offline_log

    session(tmp_path, 1, 0, [10])
    settings = WandbSettings(group="g", tags=["t"], entity="someone")
    feed_of(tmp_path, settings).close("finished")
    (path,) = files(tmp_path)
    given: Any = [proto.Record.FromString(data) for data in wandb_offline_log.records(path.read_bytes())]  # type: ignore[attr-defined]
    (run,) = [one.run for one in given if one.HasField("run")]
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert (run.project, run.display_name, run.run_group, list(run.tags)) == (
        "a-project",
        "a-run",
        "g",
        ["t"],
    )
    assert run.entity == "someone" and run.run_id == json.loads(_note(tmp_path))["run_id"]
    assert {key: config[key] for key in ("lr", "model")} == {"lr": 0.1, "model": {"width": 8}}
    assert not run.git.commit and not run.git.remote_url
    assert not [one for one in given if one.HasField("environment") or one.HasField("stats")]
    own = {".wandb", ".log"}
    assert {file.suffix for file in (tmp_path / "mirrors" / "wandb").rglob("*") if file.is_file()} <= own


def _note(package: Path) -> bytes:
    return (package / "mirrors" / "wandb.json").read_bytes()


def test_the_next_session_goes_on_with_the_same_run_and_no_step_twice(tmp_path: Path) -> None:
    session(tmp_path, 1, 0, [10, 20, 30])
    feed_of(tmp_path).close("stopped")
    session(tmp_path, 2, 20, [30, 40])
    feed_of(tmp_path).close("finished")
    (id,) = {path.stem for path in files(tmp_path)}
    assert len(files(tmp_path)) == 2 and id == f"run-{json.loads(_note(tmp_path))['run_id']}"
    assert logged_values(of_wandb(tmp_path / "mirrors")) == by_step(folded(tmp_path))


def test_what_comes_late_for_a_step_is_in_the_summary(tmp_path: Path) -> None:
    from wandb.proto import wandb_internal_pb2 as proto

    from roost.train.mirrors import wandb_offline_log

    session(tmp_path, 1, 0, [10])
    feed_of(tmp_path).close("stopped")
    session(tmp_path, 2, 10, []).row(10, 1, {"test/loss": 0.5})
    feed_of(tmp_path).close("finished")
    data = files(tmp_path)[-1].read_bytes()
    given: Any = [proto.Record.FromString(one) for one in wandb_offline_log.records(data)]  # type: ignore[attr-defined]
    items = [item for one in given if one.HasField("summary") for item in one.summary.update]
    keys = {item.key or "/".join(item.nested_key): item.value_json for item in items}
    assert keys["test/loss"] == "0.5"


def test_files_that_were_uploaded_and_removed_are_not_sent_again(tmp_path: Path) -> None:
    session(tmp_path, 1, 0, [10, 20])
    feed_of(tmp_path).close("stopped")
    for path in files(tmp_path):
        path.unlink()
    session(tmp_path, 2, 20, [30])
    feed_of(tmp_path).close("finished")
    assert list(logged_values(of_wandb(tmp_path / "mirrors"))) == [30]


def test_media(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session(tmp_path, 1, 0, [10])
    show_all(tmp_path, 10)
    (tmp_path / "media" / "10" / "s.wav").unlink()  # it needs a library for sound
    show(tmp_path, 10, "broken.json", b"{}")
    feed_of(tmp_path).close("finished")
    (logged,) = of_wandb(tmp_path / "mirrors")
    kinds = {name: logged[f"{name}/_type"] for name in ("p", "m", "h", "t")}
    assert kinds == {"p": "image-file", "m": "image-file", "h": "histogram", "t": "html-file"}
    assert {Path(logged[f"{name}/path"]).name.split("_")[:2][-1] for name in "pmt"} == {"10"}, "their step"
    assert "mirror wandb: broken.json " in capsys.readouterr().out


def test_the_environment_may_ask_for_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session(tmp_path, 1, 0, [10])
    monkeypatch.setenv("WANDB_MODE", "disabled")
    feed_of(tmp_path).close("finished")
    assert files(tmp_path) == []
    out = capsys.readouterr().out
    assert out.startswith("mirror wandb: ") and "WANDB_MODE=disabled" in out and out.count("\n") == 1


def test_online_without_a_key_is_one_error_and_no_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    session(tmp_path, 1, 0, [10])
    with pytest.raises(wandb.Error, match=r"(?i)api key|login"):
        feed_of(tmp_path, WandbSettings(mode="online"))
    wandb.teardown()


@pytest.mark.needs_program("strace")
def test_offline_connects_to_no_server(tmp_path: Path) -> None:
    """No name is looked up, and no process is called but wandb's own process."""
    session(tmp_path, 1, 0, [10])
    task = {"package": str(tmp_path), "kind": "wandb", "settings": {}, "identity": {"name": "x"}}
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-qq", "-e", "trace=connect,sendto,sendmmsg", "-o", str(trace)]
    with tempfile.TemporaryFile() as file:
        file.write(msgspec.json.encode(task))
        file.seek(0)
        fd = file.fileno()
        command += [sys.executable, "-P", "-m", "roost.train.mirrors", str(fd)]
        subprocess.run(command, input=b"finished\n", pass_fds=[fd], check=True, timeout=100)
    assert list(logged_values(of_wandb(tmp_path / "mirrors"))) == [10]
    called = [line for line in trace.read_text().splitlines() if "AF_INET" in line]
    assert [line for line in called if "127.0.0.1" not in line and '"::1"' not in line] == []
