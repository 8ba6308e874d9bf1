from __future__ import annotations

from pathlib import Path

import pytest

from roost.operations.lifecycle.new_project import new_project
from roost.package import sessions
from roost.serve.routes.served_packages import run_id
from tests.operations.packages import ROWS, package, publish
from tests.serve.servers import RUN, Server


@pytest.fixture(scope="module")
def folder(server: Server) -> Path:
    path = server.folder / "work"
    path.mkdir()
    return path


def submitted(server: Server, folder: Path, *command: str) -> str:
    """Queues a command over HTTP; gives its run."""
    found = server.ask("POST", "/commands", {"command": command, "folder": str(folder)})
    assert found.status == 201, found.body
    (queued,) = found.json["queued"]
    assert queued["run"] == run_id(queued["path"])
    return str(queued["run"])


def test_a_command_from_the_queue_to_its_log(server: Server, folder: Path) -> None:
    run = submitted(server, folder, "/bin/echo", "a b", "$(id); `id` && ls")
    (task,) = [task for task in server.lab.tasks() if run_id(task.package) == run]
    assert server.lab.wait_for(task.id).state == "succeeded"
    assert server.get(f"/runs/{run}/log")["text"] == "a b $(id); `id` && ls\n", "one argument, and no shell"
    assert server.get(f"/runs/{run}")["path"] == task.package
    assert server.get(f"/runs/{run}/checkpoints") == []
    found = server.get("/runs?limit=1")
    assert found["total"] == 1 and found["runs"][0]["id"] == run


def test_a_run_is_stopped_once(server: Server, folder: Path) -> None:
    run = submitted(server, folder, "/bin/sleep", "600")
    (task,) = [task for task in server.lab.tasks() if run_id(task.package) == run]
    server.lab.wait_for(task.id, "running")
    assert server.ask("POST", f"/runs/{run}/stop", {"now": True}).json == {"run": run}
    assert server.lab.wait_for(task.id).state == "stopped"
    found = server.ask("POST", f"/runs/{run}/stop", {})
    assert (found.status, found.code) == (409, "refused")


def test_a_prediction_is_queued_beside_the_run(server: Server) -> None:
    made = package(server.root, "predicts")
    run = run_id(str(made.path))
    asked = {"source": "test", "gpus": 0, "begin": "+2h", "limit": 3}
    found = server.ask("POST", f"/runs/{run}/predict", asked)
    assert found.status == 201, found.body
    (queued,) = found.json["queued"]
    task = server.lab.one(queued["task"])
    assert (queued["run"], queued["label"]) == (run, task.label) and task.label.startswith("P_")
    assert (task.folder, task.state) == (made.path / "predictions" / "1", "pending")
    request = sessions.load_json(task.folder / "request.json")
    assert request is not None and (request["source"], request["limit"], request["device"]) == (
        "test",
        3,
        "cpu",
    )
    for wrong in ({}, {"source": ""}, {**asked, "checkpoint": "lst"}, {**asked, "limit": 0}):
        assert server.ask("POST", f"/runs/{run}/predict", wrong).status == 422, wrong
    assert server.ask("POST", f"/runs/{run}/predict", {**asked, "checkpoint": 99}).status == 404
    assert [path.name for path in (made.path / "predictions").iterdir()] == ["1"]
    assert server.ask("POST", f"/tasks/{task.label}/kill", {}).status == 202


def test_a_project_is_made_where_nothing_is(server: Server, folder: Path) -> None:
    asked = {"folder": str(folder / "new")}
    made = server.ask("POST", "/projects", asked)
    assert made.status == 201 and (folder / "new" / made.json["files"][0]).exists()
    assert server.ask("POST", "/projects", asked).status == 409
    assert server.ask("POST", "/projects", {"folder": "relative"}).json["error"]["field"] == "folder"


def test_a_config_below_its_project(server: Server, folder: Path) -> None:
    new_project(folder / "deep", template="clean")
    config = folder / "deep" / "configs" / "small.yaml"
    config.parent.mkdir()
    (folder / "deep" / "config.yaml").rename(config)
    found = server.ask("POST", "/runs", {"config": str(config), "gpus": 0, "begin": "+2h"})
    assert found.status == 201, found.body
    assert any(note.startswith(f"project: {folder / 'deep'}, ") for note in found.json["notes"])
    (queued,) = found.json["queued"]
    assert Path(queued["path"]).parent == folder / "deep" / "runs"
    away = config.rename(folder / "away.yaml")
    asked = {"config": str(away), "project": str(folder / "deep"), "gpus": 0, "begin": "+2h"}
    found = server.ask("POST", "/runs", asked)
    assert found.status == 201, found.body
    (other,) = found.json["queued"]
    assert Path(other["path"]).parent == folder / "deep" / "runs"
    for word, status in (("deep", 400), (str(folder / "none"), 404)):
        assert server.ask("POST", "/runs", {**asked, "project": word}).status == status
    for one in (queued, other):
        assert server.ask("POST", f"/runs/{one['run']}/stop", {"now": True}).status == 202


def test_an_invalid_submit_is_reported_and_changes_nothing(server: Server, folder: Path) -> None:
    before = (server.get("/tasks?all=true")["total"], sorted(folder.iterdir()))
    for path, asked, status in [
        ("/runs", {"config": "relative.yaml"}, 400),
        ("/runs", {"config": str(folder / "none.yaml")}, None),
        ("/commands", {"command": ["x"], "folder": "/nowhere"}, 400),
        ("/commands", {"command": [], "folder": str(folder)}, 422),
        ("/commands", {"command": ["true"], "folder": str(folder), "after": ["nobody"]}, 404),
        ("/commands", {"command": ["true"], "folder": str(folder), "begin": "never"}, 400),
        ("/commands", {"command": ["true"], "folder": str(folder), "gpus": -1}, 422),
        (f"/runs/{RUN}/continue", {}, 404),
        (f"/runs/{RUN}/stop", {}, 404),
    ]:
        found = server.ask("POST", path, asked)
        assert found.status == status or (status is None and 400 <= found.status < 500), found.body
    assert (server.get("/tasks?all=true")["total"], sorted(folder.iterdir())) == before


def test_a_run_whose_progress_is_torn_or_garbage_is_answered_with_what_is_known(server: Server) -> None:
    made = package(server.root, "torn")
    publish(made, step=30, total_steps=30)
    run, whole = run_id(str(made.path)), made.progress.read_bytes()
    torn = [b"", whole[:40], b"\xff" * 256, whole[:100] + bytes(28) + whole[128:200] + b"?" * 56, None]
    for content in torn:
        made.progress.unlink()
        made.progress.mkdir() if content is None else made.progress.write_bytes(content)
        for route in ("/checkpoints", "/log", "/records"):
            assert server.ask("GET", f"/runs/{run}{route}").status == 200, (route, content)
        found = server.get(f"/runs/{run}")
        (session,) = found["sessions"]
        assert session["state"] == "succeeded" and found["checkpoints"], content


def test_a_run_is_labelled_and_found_by_it(server: Server, folder: Path) -> None:
    made = package(folder / "runs", "labelled")
    run = run_id(made.path)
    path = f"/runs/{run}/labels"
    given = {"add_tags": ["baseline", "lr"], "note": "two\nlines", "starred": True}
    assert server.ask("POST", path, given).json == {
        "tags": ["baseline", "lr"],
        "note": "two\nlines",
        "starred": True,
    }
    changed = server.ask("POST", path, {"remove_tags": ["lr"], "note": ""}).json
    assert changed == {"tags": ["baseline"], "note": None, "starred": True}
    found = server.get("/runs?query=tag:baseline%20starred:true")
    assert [one["id"] for one in found["runs"]] == [run]
    for wrong in ({"add_tags": ["a b"]}, {"note": "x" * 70_000}, {"add_tags": [f"t{n}" for n in range(101)]}):
        assert server.ask("POST", path, wrong).status in (400, 422)
    assert server.ask("POST", path, {}).json == changed


def test_runs_are_compared(server: Server) -> None:
    first = package(server.root, "first", checkpoints=False)
    rows = [*ROWS[:2], {**ROWS[2], "valid/loss": 0.25}]
    second = package(server.root, "second", checkpoints=False, rows=rows)
    runs = [run_id(first.path), run_id(second.path)]
    path = f"/comparison?run={runs[0]}&run={runs[1]}"
    found = server.get(f"{path}&metric=valid/*&step=20&diff=true")
    assert [one["summary"]["name"] for one in found["runs"]] == ["first", "second"]
    (metric,) = found["metrics"]
    assert (metric["name"], metric["last"], metric["at"]) == ("valid/loss", [0.75, 0.25], [0.5, 0.5])
    assert (found["curves"]["step"], found["code"]["files"]) == (30, [])
    for query, status in (
        (f"/comparison?run={runs[0]}", 422),  # its parent may be anywhere on this machine
        (f"/comparison?run={runs[0]}&run={runs[0]}", 400),
        (f"/comparison?run={runs[0]}&run={RUN}", 404),
        (f"{path}&metric=none", 404),
        (f"{path}&file=none.py", 404),
        (f"{path}&step=-1", 422),
    ):
        assert server.ask("GET", query).status == status, query


def test_a_package_elsewhere_is_opened_by_its_path(server: Server, tmp_path: Path) -> None:
    path = package(tmp_path / "moved").path
    assert server.ask("GET", f"/runs/{run_id(path)}").code == "not_found"
    opened = server.ask("POST", "/runs/open", {"package": str(path)})
    assert opened.status == 200 and opened.json["path"] == str(path)
    assert server.get(f"/runs/{opened.json['id']}")["path"] == str(path)
    relative = server.ask("POST", "/runs/open", {"package": "moved/one"})
    assert (relative.status, relative.json["error"]["field"]) == (400, "package")
    assert server.ask("POST", "/runs/open", {"package": str(tmp_path)}).status == 404
    assert server.ask("POST", "/runs/open", {"package": "no-such-task"}).status == 404
    lines = [line for line in server.get("/journal")["lines"] if "open_run" in line]
    assert lines and all("failed: " in line for line in lines)


def test_the_name_of_a_package_is_nosave_or_the_description(server: Server, folder: Path) -> None:
    new_project(folder / "named", template="clean")
    asked = {"config": str(folder / "named" / "config.yaml"), "gpus": 0, "description": "lower rate"}

    def named(**more: object) -> str:
        found = server.ask("POST", "/runs", {**asked, **more})
        assert found.status == 201, found.body
        (queued,) = found.json["queued"]
        return str(queued["name"])

    assert named(no_save=True, use_description=True) == "NOSAVE"
    assert named(no_save=True) == "NOSAVE-2"
    first, second = named(use_description=True), named(use_description=True)
    assert first != second and second.startswith(first)
    assert server.ask("POST", "/runs", {**asked, "description": None, "use_description": True}).status == 400
