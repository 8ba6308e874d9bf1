"""The calls of DLNest's published clients (Communicator, Simple and the full-screen client), answered by
roost's server: the same paths, fields and texts; only the header with the token is new."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_dlnest_projects import GAN, project

from tests.serve.servers import Server
from tests.waiting import wait_for

pytestmark = pytest.mark.timeout(300)

SCRIPT = """
def experience(self):
    print("epochs", len(self.log["d_loss"]) if "d_loss" in self.log else 0, self.args["epochs"])
    print("\\033[1;31mred\\033[0m plain")
"""


class Communicator:
    """Sends what DLNest's clients send: forms with every value as text, `None`s left out."""

    def __init__(self, server: Server) -> None:
        self.url, self.headers = f"http://{server.host}", {"Authorization": f"Bearer {server.token}"}

    def post(self, path: str, **data: Any) -> dict[str, Any]:
        body = urllib.parse.urlencode({key: value for key, value in data.items() if value is not None}, True)
        return self._answer(urllib.request.Request(self.url + path, body.encode(), self.headers))

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        asked = f"?{urllib.parse.urlencode(query)}" if query else ""
        return self._answer(urllib.request.Request(self.url + path + asked, headers=self.headers))

    def tasks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/get_task_info")["info"]
        return found

    @staticmethod
    def _answer(request: urllib.request.Request) -> dict[str, Any]:
        with urllib.request.urlopen(request, timeout=100) as answer:
            found: dict[str, Any] = json.load(answer)
        return found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    own = Server(tmp_path)
    own.start()
    yield own
    own.close()


def test_a_session_of_a_client(server: Server, tmp_path: Path) -> None:
    client, config = Communicator(server), project(tmp_path, GAN)
    scripts = config.parent / "AnalyzeScripts"
    scripts.mkdir(exist_ok=True)
    (scripts / "getAcc.py").write_text(SCRIPT)
    # run -c CONFIG -d TEXT -sd -CPU
    tuning = tmp_path / "freq.json"
    tuning.write_text('{"step_seconds": 0.05}')
    given = {"config_path": str(config), "freq_path": str(tuning), "description": "first"}
    flags = {"CPU": True, "DDP": False, "multi_GPU": False, "no_save": False, "use_description": True}
    assert client.post("/run_train", **given, **flags)["status"] == "success"
    (info,) = client.tasks()
    assert (info["type"], info["description"], info["devices"]) == ("Train", "first", [-1])
    package = config.parent / "Saves" / "first"
    # del TASK
    wait_for(lambda: list(package.glob("Checkpoints/*.ckpt")))
    assert client.post("/del_task", task_ID=info["ID"]) == {"status": "success"}
    wait_for(lambda: not client.tasks())
    # analyze -r PACKAGE -CPU
    found = client.post(
        "/analyze",
        record_path=str(package),
        script_path="",
        checkpoint_ID=-1,
        memory_consumption=-1,
        CPU=True,
    )
    assert found["status"] == "success", found
    (info,) = client.tasks()
    assert (info["ID"], info["type"]) == (found["task_ID"], "Analyze")
    assert (info["record_path"], info["checkpoint_ID"], info["load_ckpt"]) == (str(package), -1, True)
    # runExp TASK getAcc, by the id and by the short name
    for name in (info["ID"], info["label"]):
        assert client.post("/run_exp", task_ID=name, command="getAcc")["status"] == "success"

    def output(**more: Any) -> dict[str, Any]:
        return client.get("/get_analyze_output", task_ID=info["ID"], **more)

    wait_for(lambda: output()["text"].count("succeeded in") == 2)
    plain, styled = output(), output(styled=True)
    assert plain["text"].count("red plain\n") == 2 and "\x1b" not in plain["text"]
    assert ["ansired bold", "red"] in styled["text"] and plain["offset"] == styled["offset"] > 0
    assert output(offset=plain["offset"])["text"] == ""
    # an edit, and scripts that are not there
    (scripts / "getAcc.py").write_text("def experience(self):\n    print('edited')\n")
    assert client.post("/run_exp", task_ID=info["ID"], command="getAcc")["status"] == "success"
    wait_for(lambda: "edited\n" in output(offset=plain["offset"])["text"])
    for command in ("getAccc", "../LifeCycle", "/etc/passwd", str(config.parent / "LifeCycle.py")):
        refused = client.post("/run_exp", task_ID=info["ID"], command=command)
        assert refused["status"] == "error" and refused["code"] in ("refused", "not_found"), refused
    assert client.post("/run_exp", task_ID="T_999", command="getAcc")["status"] == "error"
    # continue -r PACKAGE, beside the analyzer
    given = {"record_path": str(package), "checkpoint_ID": -1, "CPU": True, "description": "again"}
    continued = client.post("/continue_train", **given)
    assert continued["status"] == "success", continued
    assert {one["type"] for one in client.tasks()} == {"Analyze", "Train"}
    # the other calls of a client that is open
    for one in client.tasks():
        assert client.post("/del_task", task_ID=one["ID"]) == {"status": "success"}
    wait_for(lambda: not client.tasks())
    assert client.post("/change_devices", new_devices_IDs=[0, 1, -1])["status"] == "success"
    assert [one["ID"] for one in client.get("/get_devices_info")["info"]] == [0, 1]
    assert info["ID"] in client.get("/get_DLNest_output", styled=False)["text"]
    assert client.post("/clear")["status"] == "success"
    assert client.get("/get_DLNest_output")["text"] == ""


def test_an_analyzer_without_weights(server: Server, tmp_path: Path) -> None:
    client, config = Communicator(server), project(tmp_path, GAN)
    tuning = tmp_path / "freq.json"
    tuning.write_text('{"epochs": 1}')
    run = {"config_path": str(config), "freq_path": str(tuning), "no_save": True, "CPU": True}
    assert client.post("/run_train", **run)["status"] == "success"
    wait_for(lambda: not client.tasks())
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "look.py").write_text("def experience(self): print('checkpoint', self.checkpoint)")
    package = config.parent / "Saves" / "NOSAVE"
    found = client.post(
        "/analyze", record_path=str(package), script_path=str(scripts), checkpoint_ID=-2, CPU="True"
    )
    assert found["status"] == "success", found
    (info,) = client.tasks()
    assert (info["checkpoint_ID"], info["load_ckpt"], info["script_path"]) == (-2, False, str(scripts))
    assert client.post("/run_exp", task_ID=found["label"], command="look.py")["status"] == "success"
    wait_for(
        lambda: "checkpoint None\n" in client.get("/get_analyze_output", task_ID=found["label"])["text"], 100
    )
