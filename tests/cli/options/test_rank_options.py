"""`--devices`, `-DDP` and the others."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import UsageError
from roost.cli.options.rank_options import parse_time_limit, take_ranks, take_time_limit
from roost.operations.sessions.rank_layout import RankRequest
from tests.cli.programs import roost
from tests.messages import Messages
from tests.operations.packages import package, project

NOTHING: dict[str, Any] = {
    **dict.fromkeys(("devices", "strategy", "rendezvous", "time_limit", "cpus", "host_memory", "memory")),
    **dict.fromkeys(("ddp", "fsdp", "several_cards"), False),
    "num_nodes": 1,
    "restart": 0,
}


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({}, RankRequest()),
        ({"devices": "2"}, RankRequest(devices=2)),
        ({"devices": "0,2"}, RankRequest(devices=[0, 2])),
        ({"cpus": 3, "host_memory": "8GB"}, RankRequest(cores=3, host_memory_mb=8192)),
        ({"memory": "8GB"}, RankRequest(memory_mb=8192)),
        ({"devices": "0,"}, RankRequest(devices=[0])),
        ({"devices": "auto", "ddp": True}, RankRequest(devices="auto", strategy="ddp")),
        ({"fsdp": True, "strategy": "fsdp"}, RankRequest(strategy="fsdp")),
        ({"several_cards": True}, RankRequest(strategy="single")),
        (
            {"num_nodes": 2, "rendezvous": "a:1", "restart": 3},
            RankRequest(num_nodes=2, rendezvous="a:1", restart=3),
        ),
    ],
    ids=str,
)
def test_what_was_asked(given: dict[str, Any], asked: RankRequest) -> None:
    options = {**NOTHING, **given}
    assert take_ranks(options, device=None) == asked and options == {"time_limit": None}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"ddp": True, "several_cards": True}, "-DDP and -mc"),
        ({"ddp": True, "strategy": "fsdp"}, "-DDP and --strategy"),
        ({"several_cards": True}, "-CPU"),
        ({"devices": "0"}, "'0'"),
        ({"devices": "x"}, "'x'"),
        ({"devices": "0,x"}, "'0,x'"),
        ({"devices": "-1"}, "'-1'"),
        ({"devices": ","}, "','"),
        ({"devices": "1025"}, "1025"),
    ],
    ids=str,
)
def test_a_contradiction(given: dict[str, Any], says: str, messages: Messages) -> None:
    with pytest.raises(UsageError) as caught:
        take_ranks({**NOTHING, **given}, device="cpu")
    assert says in str(caught.value)
    assert caught.value.setting == ("--devices" if "devices" in given else None)
    messages.check(caught.value)


def test_a_time_limit_is_an_override() -> None:
    options = {"time_limit": "11h30m", "name": "a"}
    assert take_time_limit(options) == ("roost.limits.wall_time=11h30m",) and options == {"name": "a"}
    assert take_time_limit({"time_limit": None}) == ()


def test_nothing_is_made_where_it_cannot_be(tmp_path: Path, messages: Messages) -> None:
    """The real program: each answers before there is a package."""
    config, made = project(tmp_path / "p"), package(tmp_path / "runs", state="stopped")
    sessions = sorted(path.name for path in (made.path / "sessions").iterdir())
    for arguments in (["run", config], ["continue", made.path], ["fork", made.path, "--name", "f"]):
        said = roost(*arguments, "-CPU", "-DDP")
        assert said.returncode == 2 and "-CPU --devices 2" in said.stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        meeting = ["--num-nodes", "2", "--rendezvous", f"127.0.0.1:{taken.getsockname()[1]}"]
        for arguments in (["run", config], ["continue", made.path, "-d", "x"], ["fork", made.path]):
            said = roost(*arguments, "-CPU", "--devices", "1", *meeting)
            assert said.returncode == 5 and "Address already in use" in said.stderr
    assert not (made.path / "_desc: x").exists() and list(made.path.parent.iterdir()) == [made.path]
    said = roost("run", config, "-CPU", "--devices", "2", "+backend=nccl")
    assert said.returncode == 4 and "gloo" in said.stderr and "NCCL" in said.stderr
    said = roost("run", config, "--device", "2")
    assert said.returncode == 2 and re.search("--device: .*'2'", said.stderr)
    assert "--devices 2" in said.stderr
    messages.check(said.stderr)
    said = roost("run", config, "--time-limit", "soon", "-CPU")
    assert said.returncode == 4 and re.search("limits.wall_time: .*'soon'", said.stderr)
    assert not (tmp_path / "p" / "runs").exists() and not (made.path.parent / "f").exists()
    assert sessions == sorted(path.name for path in (made.path / "sessions").iterdir())


def test_a_time_limit_in_seconds(messages: Messages) -> None:
    assert parse_time_limit("1h30m") == 5400.0
    with pytest.raises(UsageError, match="'soon'") as refused:
        parse_time_limit("soon")
    assert refused.value.setting == "--time-limit"
    messages.check(refused.value)


def test_memory_of_a_card_that_is_none(messages: Messages) -> None:
    for device, memory in ((None, "lr=1e-3,1e-4"), ("cpu", "8GB"), (None, "5"), (None, "much")):
        with pytest.raises(UsageError) as refused:
            take_ranks({**NOTHING, "memory": memory}, device=device)
        messages.check(str(refused.value))
