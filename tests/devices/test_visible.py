"""The GPUs of a machine, as NVIDIA's library tells of them. It is the real one but for what the driver would
answer: no driver is here."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
import torch

from roost.base.errors import Refused
from roost.devices import visible
from roost.devices.visible import Card, cards, freest

GB = 2**30


@dataclass
class Gpu:
    """What a driver answers about one card."""

    uuid: str
    name: str = "NVIDIA H100"
    free: int = 79
    running: list[Any] = field(default_factory=list)
    lacks: tuple[str, ...] = ()


def driver(monkeypatch: pytest.MonkeyPatch, gpus: list[Gpu]) -> list[str]:
    """Lets the library find these; gives the list of its opens and closes."""
    calls: list[str] = []

    def answer(what: str, of: Callable[[Gpu], Any]) -> None:
        def ask(gpu: Gpu) -> Any:
            if what in gpu.lacks:
                raise pynvml.NVMLError_NotSupported()
            return of(gpu)

        monkeypatch.setattr(pynvml, f"nvmlDeviceGet{what}", ask)

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: calls.append("open"))
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: calls.append("close"))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: len(gpus))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda at: gpus[at])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: Gpu(uuid, "MIG 1g.10gb", 9))
    answer("UUID", lambda gpu: gpu.uuid)
    answer("Name", lambda gpu: gpu.name)
    answer("MemoryInfo", lambda gpu: SimpleNamespace(total=80 * GB, free=gpu.free * GB))
    answer("ComputeRunningProcesses", lambda gpu: gpu.running)
    return calls


TWO = [Gpu("GPU-aa1"), Gpu("GPU-bb2", free=3)]


def test_a_machine_without_a_driver_has_none() -> None:
    """As it is, where no driver is loaded: the library itself says so."""
    if not torch.cuda.is_available():
        assert cards() == []


def test_all_are_visible_by_their_uuids(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = driver(monkeypatch, TWO)
    assert cards({}) == [
        Card(0, "GPU-aa1", "NVIDIA H100", 80 * 1024, 79 * 1024),
        Card(1, "GPU-bb2", "NVIDIA H100", 80 * 1024, 3 * 1024),
    ]
    assert calls == ["open", "close"]


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        ("1", ["1"]),
        ("1, 0", ["1", "0"]),
        ("GPU-bb2,0", ["GPU-bb2", "0"]),
        ("GPU-b", ["GPU-b"]),
        ("MIG-1234", ["MIG-1234"]),
        ("0,7,1", ["0"]),
        ("0,GPU-,1", ["0"]),
        ("-1", []),
        ("", []),
    ],
    ids=repr,
)
def test_the_variable_says_which_are_visible(
    asked: str, ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(monkeypatch, TWO)
    found = cards({"CUDA_VISIBLE_DEVICES": asked})
    assert [card.id for card in found] == ids and [card.number for card in found] == [*range(len(ids))]


def test_who_uses_a_card_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    running = [
        SimpleNamespace(pid=os.getpid(), usedGpuMemory=70 * GB),
        SimpleNamespace(pid=2**22 + 1, usedGpuMemory=None),
    ]
    driver(monkeypatch, [Gpu("GPU-a", free=2, running=running)])
    (card,) = cards({})
    mine = f"pid {os.getpid()} of {getpass.getuser()}, 70.0 GB"
    assert str(card) == f"0: NVIDIA H100, 2.0 GB of 80.0 GB free (used by {mine}; pid {2**22 + 1})"


def test_what_a_driver_does_not_tell_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, [Gpu("GPU-a", "NVIDIA GB10", lacks=("MemoryInfo", "ComputeRunningProcesses"))])
    (card,) = cards({})
    assert str(card) == "0: NVIDIA GB10"


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount"])
def test_a_driver_that_fails(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, TWO)

    def fail() -> None:
        raise pynvml.NVMLError_GpuIsLost()

    monkeypatch.setattr(pynvml, call, fail)
    with pytest.raises(Refused, match=r"does not tell what GPUs there are: GPU is lost.*nvidia-smi"):
        cards({})


def test_the_freest_are_taken_and_the_first_of_equals() -> None:
    free = [500, 69_700, 70_000, 200, 79_000]
    found = [Card(at, f"GPU-{at}", "H100", 80_000, mb) for at, mb in enumerate(free)]
    assert [[card.number for card in freest(found, count)] for count in (1, 2, 3)] == [[4], [1, 4], [1, 2, 4]]


def test_torch_is_asked_without_importing_it() -> None:
    assert visible.torch_has_cuda() == (torch.version.cuda is not None)


def test_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visible, "torch_has_cuda", lambda: False)
    assert visible.why_none({}) == "torch here was built without CUDA"
    monkeypatch.setattr(visible, "torch_has_cuda", lambda: True)
    assert visible.why_none({"CUDA_VISIBLE_DEVICES": "-1"}) == "CUDA_VISIBLE_DEVICES is '-1'"
    assert "nvidia-smi" in visible.why_none({})
