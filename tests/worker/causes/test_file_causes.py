from __future__ import annotations

import http.server
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from roost.package.package import PackageFolder
from tests.messages import Messages
from tests.project.dlnest.projects import package as dlnest_package
from tests.project.projects import project
from tests.worker.causes.scenes import known, of, unknown


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackageFolder:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.csv").touch()
    made = project(tmp_path)
    monkeypatch.chdir(made.path)
    return made


def test_a_path_as_it_was_in_the_project(package: PackageFolder, messages: Messages) -> None:
    for read in (
        lambda: Path("data/x.csv").read_text(),
        lambda: torch.load("data/x.csv"),
        lambda: np.load("data/x.csv"),
    ):
        cause = known(of(read), package.path)
        assert "data/x.csv" in cause.description
        messages.check(cause.description)
        assert "`x: ${project}/data/x.csv`" in cause.fix and "self.args" in cause.fix


def test_a_path_of_dlnests_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its config is not interpolated, so `${project}` would reach the project as it is written."""
    made = dlnest_package(tmp_path)
    monkeypatch.chdir(made.path)
    cause = known(of(lambda: Path("data/x.csv").read_text()), made.path)
    assert "other_file_paths" in cause.fix and "$" not in cause.fix


def test_why_it_was_not_copied(package: PackageFolder) -> None:
    file = package.path / "manifest.json"
    body = json.loads(file.read_bytes())
    file.write_text(json.dumps({**body, "left_out": [{"path": "data/x.csv", "reason": "too large"}]}))
    assert known(of(lambda: Path("data/x.csv").read_text()), package.path).description.endswith("(too large)")


def test_one_that_is_nowhere(package: PackageFolder, messages: Messages) -> None:
    cause = known(of(lambda: Path("data/y.csv").read_text()), package.path)
    assert "data/y.csv" in cause.description
    messages.check(cause.description)


def test_what_the_package_has_nothing_to_do_with(
    package: PackageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert unknown(of(lambda: Path("/nowhere/at/all").read_text()), package.path), (
        "an absolute path says it all"
    )
    assert unknown(FileNotFoundError("no checkpoint yet"), package.path)
    assert unknown(FileNotFoundError(2, "No such file or directory", "Dataset.py"), package.path), (
        "it is there"
    )
    assert unknown(of(lambda: Path("data/x.csv").read_text())), "no package"
    monkeypatch.chdir("/")
    assert unknown(of(lambda: Path("data/x.csv").read_text()), package.path), "the code went elsewhere"


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_port_in_use(taken: int) -> None:
    cause = known(of(lambda: socket.create_server(("127.0.0.1", taken))))
    assert f"port {taken} " in cause.description and "`ss " in cause.description
    cause = known(of(lambda: torch.distributed.TCPStore("127.0.0.1", taken, is_master=True)))
    assert f"port {taken} " in cause.description


def test_a_port_that_is_not_named(taken: int, messages: Messages) -> None:
    cause = known(
        of(lambda: http.server.HTTPServer(("127.0.0.1", taken), http.server.BaseHTTPRequestHandler))
    )
    assert str(taken) not in cause.description
    messages.check(cause.description)


def test_what_only_sounds_like_it(taken: int) -> None:
    assert unknown(ConnectionRefusedError(111, "Connection refused"))
    assert unknown(RuntimeError("Address already in use"))
