"""What the lab will start, made from a request."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError, UsageError
from roost.config.settings import Settings, typed
from roost.lab.task import Need
from roost.operations import planning
from roost.operations.wanted import Wanted
from tests.operations.packages import VALUES


def settings(**values: Any) -> Settings:
    return typed({**VALUES, **values})


def computing(
    devices: Any = "auto", *, cards: int = 0, simulated: bool = True, **given: Any
) -> dict[str, Any]:
    wanted = Wanted(need=Need(cards=cards), simulated=simulated, strategy=given.pop("asked", None))
    return planning.computing(wanted, settings(**given), devices=devices, where=lambda key: None)


def test_a_training_has_the_callers_environment_and_above_it_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "1")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("ROOST_DEADLINE", "1795271400")
    monkeypatch.setenv("PYTHONHASHSEED", "9")
    body = {**computing(cards=1), "kind": "train"}
    made = planning.of_training(body, settings(seed=2**32 + 7, limits={"wall_time": "90s", "grace": "5s"}))
    assert made.env["MINE"] == "1" and not {"RANK", "ROOST_DEADLINE"} & made.env.keys()
    assert made.own_env == {
        "PYTHONHASHSEED": "7",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    assert made.limits["wall_seconds"] == 90.0 and made.limits["grace_seconds"] == 5.0
    assert made.request == body and made.argv[0] == sys.executable and not made.is_command
    on_gpu = {**computing(cards=1, simulated=False), "kind": "train"}
    assert "CUDA_VISIBLE_DEVICES" not in planning.of_training(on_gpu, settings()).own_env


def test_a_training_of_several_ranks_shares_the_cores() -> None:
    body = {**computing(cards=2), "kind": "train"}
    made = planning.of_training(body, settings(threads=3))
    assert [rank["OMP_NUM_THREADS"] for rank in made.ranks] == ["3", "3"]


def test_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINE", "1")
    monkeypatch.setenv("ROOST_DEADLINE", "1795271400")
    made = planning.of_command(["sh", "-c", "true"], time_limit=5.0)
    assert (made.argv, made.cwd, made.is_command) == (["sh", "-c", "true"], str(tmp_path), True)
    assert made.env["MINE"] == "1" and "ROOST_DEADLINE" not in made.env and made.own_env == {}
    assert made.limits["wall_seconds"] == 5.0


@pytest.mark.parametrize(
    ("given", "device", "strategy", "ranks"),
    [
        ({}, "cpu", "single", 1),
        ({"cards": 1}, "cpu", "single", 1),
        ({"cards": 1, "simulated": False}, "cuda", "single", 1),
        ({"cards": 3, "simulated": False}, "cuda", "ddp", 3),
        ({"cards": 3, "asked": "single"}, "cpu", "single", 1),
        ({"cards": 2, "strategy": "fsdp"}, "cpu", "fsdp", 2),
        ({"devices": 2}, "cpu", "ddp", 2),
        ({"devices": [0, 1], "cards": 0}, "cpu", "single", 1),
        ({"devices": 4, "cards": 1}, "cpu", "single", 1),
    ],
)
def test_what_it_computes_with(given: dict[str, Any], device: str, strategy: str, ranks: int) -> None:
    found = computing(**given)
    assert (found["device"], found["strategy"], found["ranks"], found["cards"]) == (
        device,
        strategy,
        ranks,
        None,
    )


def test_what_contradicts_itself() -> None:
    with pytest.raises(UsageError, match="strategy single is one process"):
        computing(2, asked="single")
    with pytest.raises(ConfigError):
        computing(cards=2, step_mode="cudagraph")
