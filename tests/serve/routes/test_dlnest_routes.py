"""DLNest's routes on a real server: their parameters, defaults and answers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from roost.devices.resource_request import TaskOptions
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import ENDED
from roost.lab.scheduling import max_sleep
from roost.operations import lab
from roost.operations.analyzers.start_analyzer import AnalyzerRequest, start_analyzer
from roost.operations.programs.program_package import TypedProgram
from roost.operations.programs.submit_program import submit_program
from roost.serve import request_journal
from roost.serve.http.listening_sockets import SOCKET_NAME
from roost.serve.routes import served_packages
from roost.serve.routes.dlnest_routes import FORM_PATHS, ROUTES
from tests.dlnest_project import dlnest_project
from tests.messages import Messages
from tests.operations.packages import project
from tests.project import projects
from tests.serve.servers import Server
from tests.waiting import wait_for

PAGE = Path(__file__).parents[3] / "docs" / "server.md"

DEFAULTS: dict[str, dict[str, Any]] = {
    "run_train": {
        "freq_path": "", "description": "", "memory_consumption": -1, "CPU": False, "DDP": False,
        "multi_GPU": False, "no_save": False, "use_description": False,
    },
    "continue_train": {
        "checkpoint_ID": -1, "memory_consumption": -1, "CPU": False, "DDP": False, "multi_GPU": False,
        "description": "", "overrides": (),
    },
    "analyze": {"script_path": "", "checkpoint_ID": -1, "memory_consumption": -1, "CPU": False},
    "run_exp": {},
    "del_task": {},
    "new_proj": {"MNIST": False, "plugins": ""},
    "add_plugins": {"full": False},
    "change_delay": {},
    "change_devices": {},
    "change_max_task_per_device": {},
    "clear": {},
    "get_task_info": {},
    "get_devices_info": {},
    "get_DLNest_output": {"styled": False, "offset": None},
    "get_analyze_output": {"styled": False, "offset": None},
}  # fmt: skip
REQUIRED = {
    "run_train": {"config_path"},
    "continue_train": {"record_path"},
    "analyze": {"record_path"},
    "run_exp": {"task_ID", "command"},
    "del_task": {"task_ID"},
    "new_proj": {"target_dir"},
    "add_plugins": {"target_dir", "plugins"},
    "change_delay": {"new_delay"},
    "change_devices": {"new_devices_IDs"},
    "change_max_task_per_device": {"new_max"},
    "get_analyze_output": {"task_ID"},
}
VALUES = {"new_delay": "5", "new_devices_IDs": "0", "new_max": "3"}
BAD = {"memory_consumption": "-2", "checkpoint_ID": "x", "new_delay": "1.5", "new_max": "0", "CPU": "perhaps"}
BAD |= {"styled": "2", "DDP": "", "MNIST": "None", "new_devices_IDs": "-2", "offset": "-1"}


class Client:
    """Sends parameters as DLNest's clients do."""

    def __init__(self, server: Server) -> None:
        self.server, self.folder = server, server.folder
        self.blocker = ""
        transport = httpx.HTTPTransport(uds=str(server.lab.state / SOCKET_NAME))
        self.http = httpx.Client(transport=transport, base_url="http://roost", trust_env=False)

    def ask(self, name: str, **given: Any) -> dict[str, Any]:
        """In the query of a GET, else as a form."""
        if name.startswith("get_"):
            answer = self.http.get(f"/{name}", params=given)
        else:
            answer = self.http.post(f"/{name}", data=given)
        return self.found(answer)

    def json(self, name: str, **given: Any) -> dict[str, Any]:
        return self.found(self.http.post(f"/{name}", json=given))

    @staticmethod
    def found(answer: httpx.Response) -> dict[str, Any]:
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        assert found["status"] == ("error" if "error" in found else "success")
        return found


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    """Of a lab with one core, which a command has: what is submitted waits, and nothing is trained."""
    with server.lab.here():
        with lab.open_queue() as store:
            store.set_setting("rules", {"cores": 1})
        sleep = TypedProgram(command=["sleep", "1000"], folder=Path.cwd(), in_place=True)
        (blocker,) = submit_program(sleep, TaskOptions(gpus=0)).tasks
        client = Client(server)
        with client.http:
            wait_for(lambda: lab.status().tasks.get("running") == 1)
            client.blocker = blocker.id
            yield client


@pytest.fixture(scope="module")
def config(client: Client) -> Path:
    return project(client.folder / "project", max_epochs="1")


def waiting(client: Client) -> list[dict[str, Any]]:
    """The entries of the waiting tasks."""
    running, *found = client.ask("get_task_info")["info"]
    assert (running["ID"], running["type"], running["status"]) == (client.blocker, "Command", "Running")
    return found


def test_every_route_has_its_parameters_and_their_defaults() -> None:
    for route in ROUTES:
        fields = msgspec.structs.fields(route.parameters)
        assert {one.name for one in fields if one.required} == REQUIRED.get(route.name, set())
        assert {one.name: one.default for one in fields if not one.required} == DEFAULTS[route.name]
    assert {path[1:] for path in FORM_PATHS} == {route.name for route in ROUTES} == set(DEFAULTS)
    assert all((route.method == "GET") == route.path.startswith("/get_") for route in ROUTES)


def test_the_page_has_every_route_and_parameter() -> None:
    rows = [line.split("|") for line in PAGE.read_text().splitlines()]
    shown = {cells[2].strip(" `"): cells for cells in rows if len(cells) == 6 and cells[2].startswith(" `/")}
    for route in ROUTES:
        required, _, optional = shown[route.path][3].partition("[")
        assert shown[route.path][1].strip() == route.method
        assert set(re.findall("`(.*?)`", required)) == REQUIRED.get(route.name, set())
        assert set(re.findall("`(.*?)`", optional)) == set(DEFAULTS[route.name])


@pytest.mark.parametrize("name", DEFAULTS)
def test_what_is_unknown_missing_or_wrong_is_named_and_changes_nothing(client: Client, name: str) -> None:
    given = {key: VALUES.get(key, "x") for key in REQUIRED.get(name, ())}
    for unknown in ("speed", "allowed"):  # which is what roost calls one of theirs
        assert client.ask(name, **given, **{unknown: "1"})["error"].startswith(f"{unknown}: ")
    for key in given:
        left = {other: value for other, value in given.items() if other != key}
        refused = client.ask(name, **left)
        assert refused["code"] == "invalid" and refused["error"].startswith(f"{key}: ")
    for key in DEFAULTS[name].keys() | given.keys():
        if key in BAD:
            refused = client.ask(name, **{**given, key: BAD[key]})
            assert refused["code"] == "invalid" and refused["error"].startswith(key), refused
    wrong = client.http.request("GET" if not name.startswith("get_") else "DELETE", f"/{name}")
    assert wrong.status_code == 405


def test_a_project_of_dlnest_waits_as_a_training(client: Client, tmp_path: Path) -> None:
    config = dlnest_project(tmp_path / "p")
    found = client.ask("run_train", config_path=str(config), CPU="True")
    (info,) = waiting(client)
    assert (info["ID"], info["type"], info["status"]) == (found["task_ID"], "Train", "Pending")
    assert info["args"]["epochs"] == 5 and info["args"]["root_file_path"] == found["package"]
    assert client.ask("del_task", task_ID=found["task_ID"]) == {"status": "success"}


def test_a_training_waits_with_its_task_and_its_package(client: Client, config: Path) -> None:
    given = {"config_path": str(config), "CPU": "True", "description": "first one"}
    found = client.ask("run_train", **given, use_description="True", DDP="False")
    path = Path(found["package"])
    assert (path.name, path.parent) == ("first one", config.parent / "runs")
    assert found["run"] == served_packages.run_id(path)
    again = client.ask("run_train", **given, use_description="True")
    assert again["code"] == "refused" and again["error"].startswith("description: ")
    (info,) = waiting(client)
    expected = {
        "ID": found["task_ID"], "type": "Train", "status": "Pending", "description": "first one",
        "record_path": str(path), "devices": [-1], "memory_consumption": -1, "DDP": False, "multi_GPU": False,
        "load_ckpt": False, "checkpoint_ID": -1,
    }  # fmt: skip
    assert {key: info[key] for key in expected} == expected and info["args"]["max_epochs"] == 1
    assert client.ask("del_task", task_ID=found["task_ID"]) == {"status": "success"}
    assert waiting(client) == []
    with lab.open_queue() as store:
        assert store.task(found["task_ID"]).state in ENDED
    for text in (found["task_ID"], found["package"]):
        assert client.ask("del_task", task_ID=text)["code"] == "refused"
    alone, _ = client.server.package("alone")
    (alone / "args.json").write_text("{}")
    assert client.ask("del_task", task_ID=str(alone))["code"] == "not_found"
    assert client.ask("del_task", task_ID="none")["code"] == "not_found"


def test_settings_with_secret_names_are_masked(client: Client, config: Path) -> None:
    mail = "{password: s3cret, url: 'https://ada:s3cret@there.org', max_tokens: few}"
    secrets = f"api_token: s3cret\nmail: {mail}"
    config.write_text(f"{config.read_text()}\n{secrets}\nhosts: [{{secret: s3cret}}]\n")
    found = client.ask("run_train", config_path=str(config), CPU="True")
    (info,) = waiting(client)
    client.ask("del_task", task_ID=found["task_ID"])
    shown = info["args"]
    assert shown["api_token"] == shown["mail"]["password"] == shown["hosts"][0]["secret"] == "***"
    assert shown["mail"]["max_tokens"] == "few" and shown["max_epochs"] == 1
    assert "s3cret" not in repr(info) and "s3cret" in (Path(found["package"]) / "args.json").read_text()


def test_a_task_whose_package_is_damaged_is_listed_all_the_same(client: Client, config: Path) -> None:
    made = client.ask("run_train", config_path=str(config), CPU="True")
    request = Path(made["package"]) / "request.json"
    whole = request.read_bytes()
    request.write_bytes(b"[")
    (info,) = waiting(client)
    assert (info["ID"], info["args"], info["record_path"]) == (made["task_ID"], {}, made["package"])
    request.write_bytes(whole)
    (info,) = waiting(client)
    assert info["args"]["max_epochs"] == 1
    client.ask("del_task", task_ID=made["task_ID"])


def test_names_and_tuning(client: Client, config: Path) -> None:
    tuning = config.with_name("tuning.json")
    tuning.write_text('{"max_epochs": 7}')
    found = client.json("run_train", config_path=str(config), freq_path=str(tuning), no_save=True, CPU="True")
    assert Path(found["package"]).name == "NOSAVE"
    (info,) = waiting(client)
    assert info["args"]["max_epochs"] == 7 and info["args"]["root_file_path"] == found["package"]
    second = client.ask("run_train", config_path=str(config), no_save="True", CPU="True")
    assert Path(second["package"]).name == "NOSAVE-2", "as by the command line"
    for made in (found, second):
        client.ask("del_task", task_ID=made["task_ID"])
    assert "description" in client.ask("run_train", config_path=str(config), use_description="True")["error"]
    relative = client.ask("run_train", config_path="config.yaml")
    assert relative["code"] == "usage" and relative["error"].startswith("config_path: ")
    assert client.ask("run_train", config_path=str(config) + "x")["code"] == "config"
    both = client.ask("run_train", config_path=str(config), CPU="True", DDP="True")
    assert both["code"] == "usage" and "CPU" in both["error"] and "DDP" in both["error"]


def test_another_session_of_a_package_waits(client: Client, config: Path) -> None:
    made = client.ask("run_train", config_path=str(config), CPU="True")
    client.ask("del_task", task_ID=made["task_ID"])
    found = client.ask("continue_train", record_path=made["package"], CPU="True", description="again")
    assert (found["package"], found["run"]) == (made["package"], made["run"])
    assert found["task_ID"] != made["task_ID"]
    assert client.ask("continue_train", record_path=made["package"])["code"] == "refused"  # it waits already
    client.ask("del_task", task_ID=found["task_ID"])
    missing = client.ask("continue_train", record_path=made["package"], checkpoint_ID="5")
    assert missing["code"] == "not_found"
    assert client.ask("continue_train", record_path=str(client.folder / "none"))["code"] == "not_found"


def test_a_project_is_made(client: Client) -> None:
    for name, extra in (("one", {}), ("two", {"MNIST": "True"})):
        folder = client.folder / name
        assert client.ask("new_proj", target_dir=str(folder), **extra)["path"] == str(folder)
        text = (folder / "root_config.json").read_text() + (folder / "README.md").read_text()
        assert ("MNIST" in text) == (name == "two") and str(folder) in text
    assert client.ask("new_proj", target_dir=str(client.folder / "one"))["code"] == "refused"


def test_plugins_are_not_added_to_a_project(client: Client, messages: Messages) -> None:
    folder = client.folder / "with plugins"
    for name, extra in (("new_proj", {}), ("add_plugins", {"full": "True"})):
        refused = client.ask(name, target_dir=str(folder), plugins="LogInit MailsNote", **extra)
        assert refused["code"] == "refused" and not folder.exists()
        messages.check(refused["error"])


def test_the_cards_are_listed_and_changed(client: Client) -> None:
    def numbers() -> list[int]:
        return [card["ID"] for card in client.ask("get_devices_info")["info"]]

    one, _ = client.ask("get_devices_info")["info"]
    assert one == {
        "ID": 0, "type": "GPU", "is_break": False, "num_tasks": 0, "running_tasks": [],
        "total_memory": 24576, "free_memory": 24576, "last_use_time": 0.0,
    }  # fmt: skip
    assert client.ask("change_devices", new_devices_IDs=["1", "-1"])["status"] == "success"
    assert numbers() == [1]
    refused = client.ask("change_devices", new_devices_IDs=["7"])
    assert refused["code"] == "usage" and refused["error"].startswith("new_devices_IDs: ")
    assert "GPU 7" in refused["error"]
    assert client.ask("change_devices", new_devices_IDs=["-1"])["code"] == "usage"
    assert numbers() == [1]
    assert client.json("change_devices", new_devices_IDs=[0, 1])["status"] == "success"
    assert numbers() == [0, 1]
    assert client.ask("change_max_task_per_device", new_max="2")["status"] == "success"
    with QueueStore.open() as store:
        assert store.settings()["rules"]["most_per_card"] == 2


def test_the_delay_is_the_daemons_longest_sleep(client: Client) -> None:
    assert client.ask("change_delay", new_delay="5")["status"] == "success"
    with lab.open_queue() as store:
        assert max_sleep.longest_sleep(store) == 5.0
        for value in ("0", "-5", "3601", str(2**62)):
            assert client.ask("change_delay", new_delay=value)["code"] == "usage"
        assert max_sleep.longest_sleep(store) == 5.0


def test_what_was_carried_out_is_read_from_an_offset_on(client: Client) -> None:
    assert client.ask("clear") == {"status": "success"}
    begun = client.ask("get_DLNest_output")
    assert begun["text"] == ""
    client.ask("change_delay", new_delay="6")
    client.ask("change_delay", new_delay="0")  # it fails
    native = client.http.post("/api/v1/devices", json={"most_per_card": 4})
    assert native.status_code == 200
    found = client.ask("get_DLNest_output", offset=begun["offset"])
    lines = [line.split(" ", 2)[2] for line in found["text"].splitlines()]
    first, failed, last = lines
    assert (first, last) == ("change_delay new_delay=6", "change_devices most_per_card=4")
    assert failed.startswith("change_delay new_delay=0 failed: new_delay: ")
    styled = client.ask("get_DLNest_output", styled="True")["text"]
    assert {style for style, _ in styled} == {""} and "".join(text for _, text in styled) == found["text"]
    assert client.ask("get_DLNest_output", offset=found["offset"])["text"] == ""
    client.http.post("/clear")
    assert client.ask("get_DLNest_output", offset=begun["offset"])["text"] == ""


def test_the_log_outlives_the_server_and_no_description_is_in_it(client: Client, config: Path) -> None:
    client.ask("clear")
    before = client.ask("run_train", config_path=str(config), CPU="True", description="se-cr-et")
    client.ask("del_task", task_ID=before["task_ID"])
    text = "".join(request_journal.read(None).lines)
    assert before["task_ID"] in text and str(config) in text and "se-cr-et" not in text
    client.server.stop()
    client.server.start()
    assert before["task_ID"] in client.ask("get_DLNest_output")["text"]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("analyze", {"record_path": "/x", "script_path": "/y", "checkpoint_ID": "3", "CPU": "True"}),
        ("run_exp", {"task_ID": "A_999", "command": "showModel"}),
        ("get_analyze_output", {"task_ID": "A_999", "styled": "True"}),
    ],
)
def test_analyzers_that_do_not_exist(client: Client, name: str, given: dict[str, str]) -> None:
    assert client.ask(name, **given)["code"] == "not_found"
    if "task_ID" in given:
        found = client.ask(name, **{**given, "task_ID": client.blocker})
        assert found["code"] == "usage" and "not an analyzer" in found["error"]


def test_scripts_outside_of_the_folders_are_refused(client: Client, tmp_path: Path) -> None:
    made = projects.project(tmp_path)
    scripts, outside = tmp_path / "AnalyzeScripts", tmp_path / "outside.py"
    (scripts / "folder.py").mkdir(parents=True)
    for path in (scripts / "inside.py", outside, tmp_path / "AnalyzeScripts.py"):
        path.write_text("def experience(self): ...\n")
    (scripts / "link.py").symlink_to(outside)
    (scripts / "up").symlink_to(tmp_path)
    (scripts / "loop.py").symlink_to("loop.py")
    (scripts / "device.py").symlink_to("/dev/zero")
    (scripts / "proc.py").symlink_to("/proc/self/environ")
    os.mkfifo(scripts / "fifo.py")
    with (scripts / "huge.py").open("wb") as file:
        file.truncate(1 << 40)
    options = TaskOptions(gpus=0, begin="+2h")
    request = AnalyzerRequest(package=made.path, project=tmp_path, untrained=True, options=options)
    (task,) = start_analyzer(request).tasks
    names = [
        "../outside", "../outside.py", "inside/../../outside", "../AnalyzeScripts", "../AnalyzeScripts.py",
        str(outside), f"/{outside}", "link", "link.py", "up/outside", "loop", "device", "proc", "fifo",
        "fifo.py", "folder", "folder.py", "huge", ".", "..", "/", "//", "", "~", "~root", "inside\0",
        "\0inside", "x" * 4096, "x" * 4097, "x" * 100_000, "a/" * 2000, "in*",
        "file:///etc/hostname", "inside\n", " inside", "INSIDE", "..\\outside", "%2e%2e/outside",
    ]  # fmt: skip
    for name in names:
        found = client.json("run_exp", task_ID=task.id, command=name)
        assert found["status"] == "error" and found["code"] != "internal", name
        assert client.ask("run_exp", task_ID=task.label, command=name)["status"] == "error", name
        assert len(found["error"]) < 10_000
    assert not (made.path / "analysis").exists(), "nothing is left"
    for name in ("inside", "inside.py", str(scripts / "inside.py"), "../AnalyzeScripts/inside"):
        assert client.ask("run_exp", task_ID=task.label, command=name)["status"] == "success", name
    client.ask("del_task", task_ID=task.label)


def test_the_middleware_keeps_its_status_and_a_query_is_accepted(client: Client) -> None:
    plain = client.http.post("/change_delay", content=b"new_delay=5", headers={"content-type": "text/plain"})
    assert plain.status_code == 415
    foreign = client.http.post("/clear", headers={"origin": "http://elsewhere"})
    assert foreign.status_code == 403
    native = client.http.post("/api/v1/devices/drain", data={"cards": "0"})
    assert native.status_code == 415
    for path in ("/run_trian", "/api/v1/device"):
        unknown = client.http.post(path, data={"config_path": "x"})
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "not_found"), path
    assert client.found(client.http.post("/change_delay?new_delay=9"))["status"] == "success"
    twice = client.found(client.http.post("/change_delay?new_delay=9", data={"new_delay": "9"}))
    assert twice["code"] == "malformed"


def test_the_daemon_takes_over_another_delay_at_once(client: Client, config: Path) -> None:
    client.ask("change_delay", new_delay="3600")
    made = client.ask("run_train", config_path=str(config), CPU="True")
    client.ask("change_delay", new_delay="1")
    with lab.open_queue() as store:
        store.set_setting("rules", {"cores": 2})  # this wakes no process
        wait_for(lambda: store.task(made["task_ID"]).state != "pending")
        store.set_setting("rules", {"cores": 1})
    client.ask("del_task", task_ID=made["task_ID"])
