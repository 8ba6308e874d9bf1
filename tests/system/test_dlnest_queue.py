"""A project of DLNest, queued by DLNest's routes: a real server, a real daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import exact
import pytest
from test_dlnest_projects import GAN, OLDER, project, trained

from roost.devices.resource_request import TaskOptions
from roost.operations import lab
from roost.package import live_progress
from roost.package.package import PackageFolder
from tests.lab.labs import submit_command
from tests.project.dlnest import loops
from tests.serve.servers import Server
from tests.waiting import wait_for

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    own = Server(tmp_path)
    own.start()
    yield own
    own.close()


def ask(server: Server, name: str, **given: Any) -> dict[str, Any]:
    """The answer of a route, whose parameters are sent as text."""
    body = {key: str(value) for key, value in given.items()}
    method = "GET" if name.startswith("get_") else "POST"
    found: dict[str, Any] = server.ask(method, f"/{name}", body or None, prefix="").json
    return found


def test_killed_server_and_daemon_find_the_training_again(server: Server, tmp_path: Path) -> None:
    config = project(tmp_path, GAN)
    tuning = tmp_path / "tuning.json"
    tuning.write_text('{"step_seconds": 0.5, "epochs": 4}')
    found = ask(server, "run_train", config_path=config, freq_path=tuning, CPU=True, description="one")
    assert found["status"] == "success", found
    package = PackageFolder.open(Path(found["package"]))
    assert package.path.parent == config.parent / "Saves"

    def look() -> Any:
        return live_progress.read(package.path / "progress")

    wait_for(lambda: (now := look()) is not None and now.step >= 2)
    server.kill()
    with server.lab.here():
        server.lab.kill_daemon()
    server.start()
    server.lab.start()
    (info,) = ask(server, "get_task_info")["info"]
    expected = {
        "ID": found["task_ID"],
        "type": "Train",
        "status": "Running",
        "devices": [-1],
        "description": "one",
    }
    assert {key: info[key] for key in expected} == expected
    assert info["args"]["epochs"] == 4 and info["args"]["devices"] == "the user's own key"
    assert ask(server, "del_task", task_ID=found["task_ID"]) == {"status": "success"}
    server.lab.wait_for(found["task_ID"])
    assert package.state == "stopped" and 2 <= look().step < 24
    again = ask(server, "continue_train", record_path=package.path, CPU=True)
    assert again["status"] == "success" and again["package"] == str(package.path)
    assert server.lab.wait_for(again["task_ID"], timeout_seconds=150).state == "succeeded"
    whole = trained(config, "epochs=4", "step_seconds=0.15", name="whole")
    loops.compare(loops.fingerprint(package), loops.fingerprint(whole))
    assert "epoch 3" in package.output.read_text()


def test_a_task_of_the_cpu_does_not_wait_for_one_of_a_card(server: Server, tmp_path: Path) -> None:
    config = project(tmp_path, OLDER)
    with server.lab.here():
        submit_command(["sleep", "1000"], TaskOptions(gpus=2))
        wait_for(lambda: lab.status().tasks.get("running") == 1)
    first = ask(server, "run_train", config_path=config)
    second = ask(server, "run_train", config_path=config, CPU=True)
    assert server.lab.wait_for(second["task_ID"], timeout_seconds=150).state == "succeeded"
    states = {one["ID"]: one["status"] for one in ask(server, "get_task_info")["info"]}
    assert states[first["task_ID"]] == "Pending"


def test_what_is_wrong_is_answered_at_once(server: Server, tmp_path: Path) -> None:
    config = project(tmp_path, OLDER)
    missing = ask(server, "run_train", config_path=tmp_path / "none.json", CPU=True)
    assert missing["status"] == "error" and "none.json" in missing["error"]
    both = ask(server, "run_train", config_path=config, CPU=True, DDP=True)
    assert both["status"] == "error" and "DDP" in both["error"]
    stranger = server.ask("POST", "/run_train", {"config_path": str(config)}, local=False, prefix="")
    assert stranger.status == 401
    (config.parent / "net" / "parts.py").unlink()
    file = ask(server, "run_train", config_path=config, CPU=True)
    assert file["status"] == "error" and "other_file_paths" in file["error"]
    assert ask(server, "get_task_info")["info"] == []
    assert not (config.parent / "Saves").exists()


def test_a_failed_training_is_one(server: Server, tmp_path: Path) -> None:
    config = project(tmp_path, OLDER)
    (tmp_path / "tuning.json").write_text('{"epochs": null}')
    found = ask(server, "run_train", config_path=config, freq_path=tmp_path / "tuning.json", CPU=True)
    assert server.lab.wait_for(found["task_ID"]).state == "failed"
    assert PackageFolder.open(Path(found["package"])).state == "failed"


def test_the_projects_of_the_routes_train(server: Server, tmp_path: Path) -> None:
    """The walk of DLNest's README: a new project, a training, its continuation."""
    folder = tmp_path / "mine"
    assert ask(server, "new_proj", target_dir=folder)["status"] == "success"
    found = ask(server, "run_train", config_path=folder / "root_config.json", CPU=True, no_save=True)
    assert Path(found["package"]) == folder / "Saves" / "NOSAVE"
    assert server.lab.wait_for(found["task_ID"], timeout_seconds=150).state == "succeeded"
    package = PackageFolder.open(Path(found["package"]))
    assert package.records().last()["valid/accuracy"] > 0.8
    assert exact.wait(exact.go_on(package.path, [])) == 0
    assert package.store().lineage()[-1].epoch == 11
