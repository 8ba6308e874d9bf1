"""Queries NVIDIA's driver about its cards in a process of its own, which can be killed when the driver hangs
(standard library, and NVIDIA's pynvml).

``python -I -S driver_process.py PYNVML_FILE LIMIT_SECONDS`` writes one line of JSON for each line of its
input; `roost.devices.driver_report` reads it. The process ends with its input. It also ends when one answer
takes longer than the limit: the parent, which would have killed it by then, no longer exists.
"""

# Standard library only

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any


class Driver:
    """NVIDIA's driver, opened by the first query, and again after a failure: otherwise a card that was reset
    would not be found."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._is_open = False
        self._names: dict[int, dict[str, str]] = {}

    def answer(self) -> dict[str, Any]:
        """Returns ``{"gpus": […]}``, an empty list without a driver, or ``{"error": …}``."""
        nvml = self._nvml
        try:
            if not self._is_open:
                nvml.nvmlInit()
                self._is_open = True
            answers = [self._gpu(index) for index in range(nvml.nvmlDeviceGetCount())]
        except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded):
            return {"gpus": []}
        except nvml.NVMLError as error:
            self._close()
            return {"error": str(error)}
        gpus = [gpu for gpu in answers if gpu is not None]
        if any("error" in gpu for gpu in gpus):
            self._close()
        return {"gpus": gpus}

    def _close(self) -> None:
        if self._is_open:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
            self._is_open = False

    def _gpu(self, index: int) -> dict[str, Any] | None:
        """A card, as far as it answers; None for one that this process may not use (as Slurm hides cards)."""
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            self._names[index] = self._name(handle)
            load = self._query(handle, "UtilizationRates")
            found = {
                **self._names[index],
                **self._memory(handle),
                "utilization": load.gpu if load is not None else None,
                "temperature": self._query(
                    handle, "TemperatureV", "Temperature", more=[nvml.NVML_TEMPERATURE_GPU]
                ),
                "power_mw": self._query(handle, "PowerUsage"),
                "compute_mode": self._query(handle, "ComputeMode"),
                "parts": self._parts(handle),
            }
        except nvml.NVMLError_NoPermission:
            return None
        except nvml.NVMLError as error:
            found = {**self._names.get(index, {}), "error": str(error)}
        return {"index": index, **found}

    def _name(self, handle: Any) -> dict[str, str]:
        nvml = self._nvml
        return {"uuid": nvml.nvmlDeviceGetUUID(handle), "name": nvml.nvmlDeviceGetName(handle)}

    def _memory(self, handle: Any) -> dict[str, Any]:
        """The memory, and the processes that compute; null if the driver does not report them."""
        memory = self._query(handle, "MemoryInfo")
        running = self._query(handle, "ComputeRunningProcesses_v3", "ComputeRunningProcesses_v2")
        return {
            "memory": {"total": memory.total, "free": memory.free} if memory is not None else None,
            "processes": None
            if running is None
            else [{"pid": one.pid, "used": one.usedGpuMemory} for one in running],
        }

    def _parts(self, handle: Any) -> list[dict[str, Any]] | None:
        """The MIG instances of a card; None if MIG is off."""
        nvml = self._nvml
        mode = self._query(handle, "MigMode")
        if mode is None or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return None
        parts = []
        for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            with suppress(nvml.NVMLError_NotFound):  # a number that no instance has
                parts.append(self._part(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)))
        return parts

    def _part(self, handle: Any) -> dict[str, Any]:
        found = {**self._name(handle), **self._memory(handle)}
        size = self._query(handle, "Attributes_v2", "Attributes")
        if size is not None:
            slices = {"compute": size.computeInstanceSliceCount, "gpu": size.gpuInstanceSliceCount}
            found["slices"] = {**slices, "memory_mb": size.memorySizeMB}
        return found

    def _query(self, handle: Any, *names: str, more: Sequence[Any] = ()) -> Any:
        """The answer to the first of these queries that both the driver and pynvml know; None if neither
        knows one, or the driver does not report it."""
        nvml = self._nvml
        for name in names:
            ask = getattr(nvml, f"nvmlDeviceGet{name}", None)
            if ask is not None:
                with suppress(
                    nvml.NVMLError_NotSupported, nvml.NVMLError_NoPermission, nvml.NVMLError_FunctionNotFound
                ):
                    return ask(handle, *more)
        return None


def main(file: str, limit_seconds: float) -> None:
    """Answers queries until the input ends."""
    driver = Driver(_loaded(file))
    for _ in sys.stdin:
        # The signal's default action ends the process: a Python handler would wait for the driver.
        signal.setitimer(signal.ITIMER_REAL, limit_seconds)
        answer = json.dumps(driver.answer())
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(answer, flush=True)


def _loaded(file: str) -> Any:
    spec = spec_from_file_location("pynvml", file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["pynvml"] = module  # the module looks itself up there
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
