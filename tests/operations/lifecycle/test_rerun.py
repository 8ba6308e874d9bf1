"""A new package that begins the run of another one again."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import roost
from roost.base.errors import ConfigError, Refused, RoostError
from roost.config import layers
from roost.devices.resource_request import TaskOptions
from roost.operations.curves.export_records import export_records
from roost.operations.lifecycle.continue_ import ContinueRequest, continue_
from roost.operations.lifecycle.fork import ForkRequest, fork
from roost.operations.lifecycle.rerun import RerunRequest, rerun
from roost.operations.models.analyze import AnalyzeRequest, analyze
from roost.operations.models.export_weights import ExportWeightsRequest, export_weights
from roost.operations.plots.plot import plot
from roost.operations.queue.submit import submit_continue
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.package_draft import prepare_training
from tests.dlnest_project import dlnest_project
from tests.messages import Messages
from tests.operations.packages import package


def begun(made: PackageFolder, **asked: Any) -> PackageFolder:
    """Begins it again and ends that before it trains: what was made is what counts here."""
    started = rerun(RerunRequest(package=made.path, **asked))
    assert started.process is not None and started.is_new and started.session == 1
    started.process.send_signal(signal.SIGQUIT)
    started.process.wait()
    return PackageFolder.open(started.package)


def source_file(made: PackageFolder) -> Path:
    """The file of the Runner in the project of a package."""
    return Path(made.request["project"]) / made.args["runner"].partition(":")[0]


def test_the_code_and_the_settings_are_those_of_the_package(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="crashed")
    source_file(made).write_text("raise SystemExit('changed since then')\n")
    new = begun(made, overrides=["optimizers.main.lr=0.5"], name="again")
    assert new.path == tmp_path / "runs" / "again"
    assert new.args == {
        **made.args,
        "optimizers": {"main": {**made.args["optimizers"]["main"], "lr": 0.5}},
    }
    assert new.provenance["optimizers.main.lr"] == "command line"
    assert new.manifest["files"] == made.manifest["files"] and not new.changed_files()
    assert checkpoint.ids(new.checkpoints) == [] and "parent" not in new.request
    assert new.request["rerun_of"] == {"package": "one", "path": str(made.path), "code": "package"}
    assert new.request["description"] == "a test" and new.request["project"] == made.request["project"]


def test_overrides_of_its_sessions_count(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    file = made.path / "sessions" / "1.request.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "overrides": ["max_epochs=9"]}))
    new = begun(made, description="again")
    assert new.args["max_epochs"] == 9 and new.path.name.startswith("20")
    assert new.provenance["max_epochs"] == "command line of session 1 of one"
    assert (new.path / "_desc: again").is_file()


def test_todays_code(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    changed = source_file(made)
    changed.write_text(changed.read_text() + "\n# changed since then\n")
    new = begun(made, todays_code=True)
    name = changed.relative_to(made.request["project"])
    assert (new.path / name).read_bytes() == changed.read_bytes() != (made.path / name).read_bytes()
    assert new.args == made.args and new.request["rerun_of"]["code"] == "today"


def test_it_computes_the_same_bits(finished: PackageFolder) -> None:
    started = rerun(RerunRequest(package=finished.path))
    assert started.process is not None and started.process.wait(100) == 0
    new = PackageFolder.open(started.package)
    weights = [one.store().newest_readable(checkpoint.read_manifest)[0] for one in (finished, new)]
    assert weights[0] is not None and weights[1] is not None and weights[0].step == weights[1].step
    first, second = ({name: one for name, one in info.files.items() if "model" in name} for info in weights)
    assert first and first == second


def test_a_project_of_dlnest(tmp_path: Path) -> None:
    made = prepare_training(layers.load(dlnest_project(tmp_path))).create("first")
    new = begun(made)
    assert new.request["kind"] == "dlnest" and new.manifest["files"] == made.manifest["files"]


def test_what_cannot_be_run_again(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs")
    before = sorted(path.name for path in made.path.parent.iterdir())

    def refused(error: type[RoostError], **asked: Any) -> None:
        with pytest.raises(error) as caught:
            rerun(RerunRequest(package=made.path, **asked))
        messages.check(caught.value)
        assert sorted(path.name for path in made.path.parent.iterdir()) == before

    refused(Refused, name="one")
    refused(ConfigError, overrides=["max_epochs=many"])
    source_file(made).unlink()
    refused(ConfigError, todays_code=True)
    (made.path / source_file(made).relative_to(made.request["project"])).unlink()
    refused(ConfigError)
    (made.path / "config.yaml").unlink()
    refused(ConfigError)


@pytest.mark.parametrize(
    "what", ["rerun", "continue", "fork", "submit", "analyze", "weights", "records", "plot", "with"]
)
def test_a_package_of_a_newer_roost_is_not_misread_or_changed(tmp_path: Path, what: str) -> None:
    made = package(tmp_path / "runs", state="crashed")
    script = tmp_path / "script.py"
    script.write_text("def experience(run): ...\n")
    request = made.path / "request.json"
    request.write_text(request.read_text().replace('"format": 1', '"format": 2'))
    begin: dict[str, Callable[[], object]] = {
        "rerun": lambda: rerun(RerunRequest(package=made.path)),
        "continue": lambda: continue_(ContinueRequest(package=made.path)),
        "fork": lambda: fork(ForkRequest(package=made.path)),
        "submit": lambda: submit_continue(ContinueRequest(package=made.path), TaskOptions()),
        "analyze": lambda: analyze(AnalyzeRequest(package=made.path, script=str(script))),
        "weights": lambda: export_weights(
            ExportWeightsRequest(package=made.path, output=Path("safetensors"))
        ).__enter__(),
        "records": lambda: export_records(made.path, kind="csv"),
        "plot": lambda: plot([made.path]),
        "with": lambda: roost.open_package(made.path).__enter__(),
    }
    before = sorted(made.path.rglob("*"))
    with pytest.raises(Refused, match="a newer roost has written it, in format 2"):
        begin[what]()
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["one"] and len(made.sessions()) == 1
    assert sorted(made.path.rglob("*")) == before
    export_records(made.path, kind="csv", output=tmp_path / "records.csv")  # reading stays possible
