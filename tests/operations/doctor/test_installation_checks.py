"""Python, optional libraries, proxies, locale and terminal."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from roost.operations.doctor.diagnosis import DoctorSubject
from roost.operations.doctor.installation_checks import (
    EXTRAS,
    EnvironmentFacts,
    judge_environment,
    judge_installation,
    read_environment,
    read_installation,
)
from tests.operations.doctor.lines import levels, only

SUBJECT = DoctorSubject(save_root=Path("/runs"), lab_folder=Path("/state"))


def test_python_and_what_is_missing() -> None:
    found = read_installation(SUBJECT)
    only(judge_installation(replace(found, missing={})), "ok", found.version)
    assert levels(judge_installation(replace(found, python=(3, 10, 1), missing={}))) == ["problem"]
    lines = list(judge_installation(replace(found, missing={"loggers": ["wandb", "mlflow"]})))
    assert "wandb, mlflow not installed" in lines[1].found and "roost[loggers]" in lines[1].fix


def test_every_extra_of_the_project_is_known() -> None:
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    declared = tomllib.loads(text)["project"]["optional-dependencies"]
    assert EXTRAS.keys() == declared.keys() - {"dev"}
    for extra, (_, libraries) in EXTRAS.items():
        for name in libraries:
            assert any(one.startswith(name) for one in declared[extra]), name


def test_the_environment() -> None:
    only(judge_environment(EnvironmentFacts()), "ok", "no proxy")
    proxied = EnvironmentFacts(proxies={"http": "http://proxy:3128"})
    only(judge_environment(proxied), "ok", "spare this machine")
    only(judge_environment(replace(proxied, bypasses_loopback=False)), "warning", "http_proxy", "no_proxy")
    only(judge_environment(EnvironmentFacts(encoding="ANSI_X3.4-1968")), "warning", "C.UTF-8")
    only(judge_environment(EnvironmentFacts(terminal="dumb")), "warning", "TERM")
    only(judge_environment(EnvironmentFacts(terminal="xterm")), "ok")


def test_the_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert not read_environment(SUBJECT).proxies
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    found = read_environment(SUBJECT)
    assert found.proxies == {"http": "http://proxy:3128"} and not found.bypasses_loopback
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")
    assert read_environment(SUBJECT).bypasses_loopback
