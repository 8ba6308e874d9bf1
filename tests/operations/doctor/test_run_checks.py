"""Where runs compute, mirrors that lack rows, a package and a config."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from roost.base import durable
from roost.operations.doctor.diagnosis import DoctorSubject
from roost.operations.doctor.driver_facts import ask_driver
from roost.operations.doctor.run_checks import (
    PlacementFacts,
    RunningRun,
    judge_config,
    judge_mirrors,
    judge_package,
    judge_placement,
    read_config,
    read_mirrors,
    read_package,
    read_placement,
)
from roost.operations.listing.list_packages import list_packages
from tests.operations.doctor.lines import levels, only
from tests.operations.packages import package, project

RUN = RunningRun(package=Path("/runs/a"), device="auto", is_program=False, uses_card=False)
FREE = PlacementFacts(runs=[RUN], free_cards=["GPU 1"], num_cards=2)


@pytest.fixture
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DoctorSubject:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "state"))
    return DoctorSubject(save_root=tmp_path / "runs", lab_folder=tmp_path / "state" / "lab")


def test_a_run_on_the_cpu_while_a_gpu_is_free() -> None:
    only(judge_placement(FREE), "warning", "a computes on the CPU", "GPU 1 is free")
    only(judge_placement(replace(FREE, runs=[replace(RUN, device="cpu")])), "warning", "was requested")
    only(judge_placement(replace(FREE, runs=[replace(RUN, is_program=True)])), "warning", 'model.to("cuda")')
    only(judge_placement(replace(FREE, runs=[replace(RUN, uses_card=True)])), "ok", "free: GPU 1")
    only(judge_placement(replace(FREE, free_cards=())), "ok")
    only(judge_placement(PlacementFacts()), "ok", "no GPU")


def test_the_processes_of_a_run_are_compared_with_those_on_the_cards(
    subject: DoctorSubject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path / "runs", state="running")  # this process is its supervisor
    list_packages(tmp_path / "runs")
    scenario = tmp_path / "scenario.json"

    def judged(pid: int, user: str | None) -> list[str]:
        process = {"card": "SIM-0", "pid": pid, "user": user, "memory": "1GB"}
        scenario.write_text(json.dumps({"cards": "2x24GB", "processes": [process]}))
        return levels(judge_placement(read_placement(replace(subject, driver=ask_driver()))))

    monkeypatch.setenv("ROOST_DEVICES", f"sim:{scenario}")
    assert judged(2**22 - 1, "ann") == ["warning"]
    assert judged(os.getpid(), "ann") == ["ok"]
    assert judged(2**22 - 1, None) == ["ok"]  # of another container, where pids are others: perhaps the run
    monkeypatch.setenv("ROOST_DEVICES", "cpu")
    assert read_placement(replace(subject, driver=ask_driver())) == PlacementFacts()


def test_mirrors_that_lack_rows(subject: DoctorSubject, tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    only(judge_mirrors(read_mirrors(replace(subject, package=made.path))), "ok")
    durable.make_folder(made.path / "mirrors")
    for kind, step in (("csv", 30), ("wandb", 20), ("mlflow", -1)):
        durable.write(made.path / "mirrors" / f"{kind}.json", json.dumps({"last_step": step}).encode())
    list_packages(tmp_path / "runs")
    lines = list(judge_mirrors(read_mirrors(subject)))
    assert levels(lines) == ["warning", "warning"]
    assert "wandb of one ends at step 20" in lines[0].found and "has no row" in lines[1].found
    assert f"`roost mirror --flush {made.path}`" in lines[0].fix


def test_a_package(subject: DoctorSubject, tmp_path: Path) -> None:
    assert not list(judge_package(read_package(subject)))

    def judged(name: str) -> list[str]:
        return levels(judge_package(read_package(replace(subject, package=tmp_path / "runs" / name))))

    package(tmp_path / "runs", "good")
    package(tmp_path / "runs", "bad", state="failed", error="CUDA out of memory")
    assert judged("good") == ["ok"] and judged("bad") == ["problem"]
    (tmp_path / "runs" / "good" / "args.json").write_text("{")
    assert judged("good") == ["problem"]


def test_a_config(subject: DoctorSubject, tmp_path: Path) -> None:
    assert not list(judge_config(read_config(subject)))
    config = project(tmp_path / "project")
    only(judge_config(read_config(replace(subject, config=config))), "ok", "roost check")
    config.write_text(config.read_text() + "\nmax_epoch: 3\nseed: many\n")
    only(judge_config(read_config(replace(subject, config=config))), "problem", "seed")
