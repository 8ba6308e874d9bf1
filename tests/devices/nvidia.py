"""A driver for the real process that asks one: NVIDIA's own pynvml, but for what the driver itself would
answer, which a file says. No driver is here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GB = 2**30
TWO = {"uuid": "GPU-aa1"}, {"uuid": "GPU-bb2", "free": 3 * GB}

PYNVML = """
import importlib.util, json, os, sys, time
from types import SimpleNamespace as Found

_spec = importlib.util.spec_from_file_location("real_pynvml", os.environ["TEST_PYNVML"])
_real = importlib.util.module_from_spec(_spec)
sys.modules["real_pynvml"] = _real
_spec.loader.exec_module(_real)
globals().update({name: value for name, value in vars(_real).items() if name.startswith("NVML")})


def _driver(call):
    with open(os.environ["TEST_DRIVER"]) as file:
        driver = json.load(file)
    with open(os.environ["TEST_DRIVER"] + ".calls", "a") as file:
        file.write(call + "\\n")
    _check(driver, call)
    return driver


def _check(of, call):
    while os.path.exists(of.get("hangs", {}).get(call, "")):
        time.sleep(0.005)
    if call in of.get("ends", {}):
        os.write(1, of["ends"][call].encode())
        os._exit(9)
    if call in of.get("fails", {}):
        raise globals()["NVMLError_" + of["fails"][call]]()


def nvmlInit():
    _driver("Init")


def nvmlShutdown():
    _driver("Shutdown")


def nvmlDeviceGetCount():
    return len(_driver("Count")["gpus"])


def nvmlDeviceGetHandleByIndex(index):
    gpu = _driver("HandleByIndex")["gpus"][index]
    _check(gpu, "HandleByIndex")
    return gpu


def nvmlDeviceGetMigDeviceHandleByIndex(gpu, number):
    if gpu["mig"][number] is None:
        raise NVMLError_NotFound()
    return gpu["mig"][number]


def _answers(name, of):
    def ask(gpu, *more):
        _check(gpu, name)
        return of(gpu)
    globals()["nvmlDeviceGet" + name] = ask


def nvmlSystemGetDriverVersion():
    return _driver("DriverVersion").get("version", "550.54.15")


def nvmlSystemGetCudaDriverVersion_v2():
    return _driver("CudaDriverVersion").get("cuda", 12040)


def _running(gpu):
    return [Found(pid=pid, usedGpuMemory=used) for pid, used in gpu.get("running", [])]


_answers("UUID", lambda gpu: gpu["uuid"])
_answers("Name", lambda gpu: gpu.get("name", "NVIDIA H100"))
_answers("MemoryInfo", lambda gpu: Found(total=gpu.get("total", 80 << 30), free=gpu.get("free", 79 << 30)))
_answers("ComputeRunningProcesses_v3", _running)
_answers("ComputeRunningProcesses_v2", _running)
_answers("UtilizationRates", lambda gpu: Found(gpu=97, memory=40))
_answers("Temperature", lambda gpu: 61)
_answers("PowerUsage", lambda gpu: 305500)
_answers("TotalEnergyConsumption", lambda gpu: int(time.monotonic() * 1000 * gpu.get("watts", 250)))
_answers("ClockInfo", lambda gpu: 1755)
_answers("CurrentClocksEventReasons", lambda gpu: gpu.get("reasons", 0))
_answers("TemperatureThreshold", lambda gpu: 87)
_answers("TotalEccErrors", lambda gpu: gpu.get("ecc", 0))
_answers("RemappedRows", lambda gpu: [0, 0, *gpu.get("remapped", [0, 0])])
_answers("PersistenceMode", lambda gpu: gpu.get("persistence", 1))
_answers("CurrPcieLinkWidth", lambda gpu: gpu.get("lanes", 16))
_answers("MaxPcieLinkWidth", lambda gpu: 16)
_answers("ComputeMode", lambda gpu: gpu.get("compute_mode", 0))
_answers("MigMode", lambda gpu: [int("mig" in gpu), 0])
_answers("MaxMigDeviceCount", lambda gpu: len(gpu["mig"]))
_answers("Attributes_v2", lambda gpu: Found(**gpu["slices"]))
"""


class Driver:
    """What it answers from now on. ``fails``, ``hangs`` and ``ends`` name calls of the library by what comes
    after ``nvml`` or ``nvmlDeviceGet``: an error, as long as a file is there, and it prints and ends."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "driver.json"
        self._calls = folder / "driver.json.calls"

    def says(self, *gpus: dict[str, Any], **how: Any) -> None:
        staging = self.file.with_suffix(".new")
        staging.write_text(json.dumps({"gpus": gpus, **how}))
        staging.rename(self.file)

    def calls(self, name: str) -> int:
        """How many times one was called."""
        return self._calls.read_text().split().count(name)
