"""The driver, torch's build, cards and who uses them: each outcome."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from roost.devices import inventory
from roost.devices.card import Card, CardProcess
from roost.devices.driver.driver_report import CardHealth, DriverHealth
from roost.operations.doctor import driver_facts
from roost.operations.doctor.diagnosis import DoctorSubject
from roost.operations.doctor.driver_facts import DriverFacts, ask_driver
from roost.operations.doctor.gpu_checks import (
    SharingFacts,
    TorchFacts,
    judge_cards,
    judge_driver,
    judge_sharing,
    judge_torch,
    read_sharing,
)
from roost.operations.doctor.torch_check import TorchBuild, TorchGpu, probe_torch
from tests.devices.leasing import take
from tests.operations.doctor.lines import levels, only

CARD = Card(0, "GPU-a", "H100", 81920, 70000, temperature=50)
HEALTH = CardHealth(uuid="GPU-a", name="H100", slowdown_temperature=87, ecc_errors=0, persistence=1)
DRIVER = DriverFacts(cards=[CARD], health=DriverHealth(gpus=[HEALTH], driver="550.54", cuda=12040))
BUILD = TorchBuild(
    version="2.9.1+cu126",
    cuda="12.6",
    available=True,
    gpus=[TorchGpu("H100", (9, 0))],
    architectures=["sm_90"],
)
NOTHING = DriverFacts()


@pytest.fixture
def subject(tmp_path: Path) -> DoctorSubject:
    return DoctorSubject(save_root=tmp_path, lab_folder=tmp_path / "lab")


def health(**given: Any) -> DriverFacts:
    return replace(DRIVER, health=DriverHealth(gpus=[CardHealth(uuid="GPU-a", name="H100", **given)]))


def test_the_driver() -> None:
    only(judge_driver(NOTHING), "ok", "no GPU")
    only(judge_driver(DRIVER), "ok", "550.54", "CUDA 12.4", "1 GPU")
    only(judge_driver(replace(NOTHING, bus_gpus=2)), "problem", "2 of NVIDIA's GPUs", "--gpus all")
    only(judge_driver(replace(NOTHING, error="it hangs")), "problem", "it hangs", "nvidia-smi")
    only(judge_driver(replace(DRIVER, source="sim:1x24GB")), "warning", "sim:1x24GB")
    assert levels(judge_driver(replace(DRIVER, visible=""))) == ["ok", "warning"]
    assert levels(judge_driver(replace(DRIVER, visible="0,1"))) == ["ok", "ok"]


def test_the_gpus_of_the_bus(tmp_path: Path) -> None:
    for number, (vendor, kind) in enumerate(
        [("0x10de", "0x030200"), ("0x10de", "0x0c0330"), ("0x1af4", "0x03")]
    ):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "vendor").write_text(f"{vendor}\n")
        (tmp_path / str(number) / "class").write_text(f"{kind}\n")
    (tmp_path / "broken").mkdir()
    assert driver_facts._count_bus_gpus(tmp_path) == 1


def test_torch_and_the_driver() -> None:
    def judged(driver: DriverFacts = DRIVER, **changed: Any) -> Any:
        fields = {name: getattr(BUILD, name) for name in BUILD.__struct_fields__}
        return judge_torch(TorchFacts(build=TorchBuild(**{**fields, **changed}), driver=driver))

    only(judged(), "ok", "has computed on 1 GPU")
    only(judged(NOTHING, cuda=None, threads=8), "ok", "8 threads")
    only(judged(failure="ImportError: libcudart"), "problem", "libcudart")
    only(judged(cuda=None), "problem", "without CUDA", "--index-url")
    only(judged(cuda="13.0"), "problem", "CUDA 13.0", "CUDA 12.4", "update the driver")
    only(judged(cuda=None, hip="6.2"), "problem", "ROCm")
    only(judged(available=False, error="error 802"), "problem", "error 802")
    only(judged(error="CUDA error: out of memory"), "problem", "out of memory")
    only(judged(architectures=["sm_70", "sm_80"]), "problem", "sm_90")
    only(judged(architectures=["sm_70", "compute_80"]), "ok")
    only(judged(gpus=[TorchGpu("A10", (8, 6))], architectures=["sm_80"]), "ok")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise ImportError('libtorch.so: no such file')", "ImportError: libtorch.so: no such file"),
        ("import os; os.abort()", "its process ended with -6"),
    ],
)
def test_a_torch_that_fails_is_named_with_its_error(code: str, reason: str) -> None:
    assert probe_torch(command=(sys.executable, "-c", code)).failure == reason


def test_a_torch_that_hangs_is_killed() -> None:
    hangs = (sys.executable, "-c", "import signal; signal.pause()")
    assert "within 0.2 s" in probe_torch(0.2, hangs).failure
    assert probe_torch(command=("/no/such/python",)).failure


def test_a_card() -> None:
    only(judge_cards(DRIVER), "ok", "68.4 GB of 80.0 GB free", "50 °C")
    assert not list(judge_cards(NOTHING))
    user = CardProcess(7, "ann", 79000)
    full = replace(CARD, free_mb=100, users=(user,))
    only(judge_cards(replace(DRIVER, cards=[full])), "warning", "pid 7 of ann")
    only(judge_cards(replace(DRIVER, cards=[replace(CARD, trouble="is lost")])), "problem", "is lost")
    only(judge_cards(replace(DRIVER, cards=[replace(CARD, temperature=83)])), "warning", "83 °C")
    only(judge_cards(replace(DRIVER, cards=[replace(CARD, temperature=88)])), "problem", "88 °C")
    without_limit = replace(DRIVER, cards=[replace(CARD, temperature=85)], health=DriverHealth())
    only(judge_cards(without_limit), "warning", "85 °C")


def test_the_health_of_a_card() -> None:
    only(judge_cards(health()), "ok")
    only(judge_cards(health(ecc_errors=3)), "problem", "3 uncorrected")
    only(judge_cards(health(remap_failed=True, remap_pending=True)), "problem", "replace")
    only(judge_cards(health(remap_pending=True)), "warning", "next reset")
    only(judge_cards(health(slowed_by_power=True)), "warning", "power limit")
    only(judge_cards(health(slowed_by_heat=True)), "warning", "temperature lowers")
    only(judge_cards(health(link_width=4, max_link_width=16)), "warning", "4 of 16 lanes")
    only(judge_cards(health(persistence=0)), "warning", "nvidia-smi -pm 1")
    only(judge_cards(health(error="GPU is lost")), "problem", "GPU is lost")
    part = replace(CARD, id="MIG-1", part_of="GPU-a")
    only(judge_cards(replace(health(ecc_errors=1), cards=[part])), "problem")


def test_simulated_cards_and_who_is_on_them(
    subject: DoctorSubject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = tmp_path / "scenario.json"
    processes = [{"card": "SIM-1", "pid": pid, "user": "ann", "memory": "10GB"} for pid in (11, 12)]
    loads = [{"card": "SIM-2", "temperature": 95}]
    scenario.write_text(json.dumps({"cards": "4x24GB", "processes": processes, "loads": loads}))
    monkeypatch.setenv("ROOST_DEVICES", f"sim:{scenario}")
    driver = ask_driver()
    assert levels(judge_driver(driver)) == ["warning"]
    assert levels(judge_cards(driver)) == ["ok", "ok", "problem", "ok"]
    cards = inventory.read_cards()
    shared, whole = take(cards[0], mb=4000), take(cards[3])
    lines = list(judge_sharing(read_sharing(replace(subject, driver=ask_driver()))))
    shared.close()
    whole.close()
    assert [line.level for line in lines] == ["ok", "warning", "ok", "ok"]
    assert "2 processes share it" in lines[1].found and "free" in lines[2].found
    monkeypatch.setenv("ROOST_DEVICES", "nonsense")
    assert ask_driver().error and not read_sharing(replace(subject, driver=ask_driver())).cards


def test_two_on_one_card(subject: DoctorSubject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_DEVICES", "sim:1x24GB")
    held = take(*inventory.read_cards())
    found = read_sharing(replace(subject, driver=ask_driver()))
    held.close()
    (lease,) = found.leases["SIM-0"]
    two = SharingFacts(cards=found.cards, leases={"SIM-0": [lease, lease]})
    only(judge_sharing(two), "problem", "several runs")
    with_foreign = SharingFacts(
        cards=found.cards, leases={"SIM-0": [lease]}, foreign={"SIM-0": ["pid 9 of bob"]}
    )
    only(judge_sharing(with_foreign), "warning", "pid 9 of bob", "roost lease")
    only(judge_sharing(found), "ok", "the whole card")
