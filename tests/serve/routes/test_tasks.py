from __future__ import annotations

from urllib.parse import quote

import msgspec
import pytest

from roost.lab.queue import task_file
from roost.lab.queue.task import Task
from tests.serve.servers import Server


@pytest.fixture(scope="module")
def running(server: Server) -> str:
    """The id of a task that runs."""
    id = server.lab.submit("exec sleep 600")
    server.lab.wait_for(id, "running")
    return id


def test_tasks_are_listed_by_pages_and_states(server: Server, running: str) -> None:
    found = server.get("/tasks")
    assert (found["total"], len(found["tasks"])) == (1, 1)
    assert server.get("/tasks?offset=1")["tasks"] == []
    assert server.get("/tasks?state=running&state=pending")["total"] == 1
    assert server.get("/tasks?state=failed")["total"] == 0
    assert server.ask("GET", "/tasks?state=done").json["error"]["field"] == "state[0]"


def test_a_list_says_how_many_ended_tasks_it_leaves_out(server: Server) -> None:
    for number in range(8):
        task = waiting(server, name=f"w{number}")
        server.lab.ask(task.id, "stop")
    found, whole = server.get("/tasks"), server.get("/tasks?all=true")
    assert whole["left_out"] == 0 and found["total"] + found["left_out"] == whole["total"] >= 8
    assert found["left_out"] >= 3


def test_priority_hold_and_release_then_stop_and_kill(server: Server, running: str) -> None:
    waiting = server.lab.submit("exec sleep 600", begin=4_000_000_000.0)
    path = f"/tasks/{waiting}"
    assert server.ask("POST", f"{path}/priority", {"priority": 7}).json == {"tasks": [waiting]}
    assert server.lab.one(waiting).priority == 7
    assert server.ask("POST", f"{path}/hold").json == {"tasks": [waiting]}
    assert server.lab.one(waiting).held
    assert server.ask("POST", f"{path}/release").status == 200
    assert not server.lab.one(waiting).held
    assert server.ask("POST", f"{path}/stop").status == 202
    assert server.lab.wait_for(waiting).state == "stopped"
    assert server.ask("POST", f"/tasks/{running}/kill").status == 202
    assert server.lab.wait_for(running).state == "stopped"
    why = server.get(f"/tasks/{running}/why")
    assert len(why) == 1


def test_ended_and_unknown_tasks(server: Server, running: str) -> None:
    for how in ("stop", "kill", "hold", "release", "why"):
        method = "GET" if how == "why" else "POST"
        found = server.ask(method, f"/tasks/nobody/{how}")
        assert (found.status, found.code) == (404, "not_found")
    assert server.ask("POST", "/tasks/nobody/priority", {}).json["error"]["field"] == "priority"


def waiting(server: Server, **changes: str) -> Task:
    """One that does not begin."""
    task = msgspec.structs.replace(server.lab.task("exec sleep 600", begin=4_000_000_000.0), **changes)
    task_file.write(task, server.lab.state)
    with server.lab.store() as store:
        store.submit([task])
    return task


@pytest.mark.parametrize("name", ["a/b c", "a/why", "/x/stop", "ü%2F?#", "a\nb"])
def test_a_task_of_any_name_is_reached(server: Server, name: str) -> None:
    task = waiting(server, name=name)
    for path in (f"/tasks/{quote(name, safe='')}", f"/tasks/{quote(name)}"):
        assert [one["id"] for one in server.get(f"{path}/why")] == [task.id]
        assert server.ask("POST", f"{path}/hold").json == {"tasks": [task.id]}
    assert server.ask("POST", f"{path}/stop").json == {"tasks": [task.id]}
    assert server.lab.one(task.id).state == "stopped"


def test_a_request_to_a_sweep_names_its_tasks(server: Server) -> None:
    one, other = (waiting(server, name=name, sweep="7sweep") for name in ("s1", "s2"))
    assert server.ask("POST", "/tasks/s1/kill").json == {"tasks": [one.id]}
    assert server.ask("POST", "/tasks/7sweep/stop").json == {"tasks": [other.id]}
    assert server.ask("POST", "/tasks/7sweep/stop").code == "refused"


def test_a_package_without_a_task_is_not_found(server: Server) -> None:
    path, _ = server.package("alone")
    (path / "args.json").write_text("{}")
    for text in (str(path), quote(str(path), safe="")):
        assert server.ask("POST", f"/tasks/{text}/stop").code == "not_found"
