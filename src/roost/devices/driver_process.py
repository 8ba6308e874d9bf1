"""What NVIDIA's driver says about its cards, asked in a process of its own: a driver that hangs holds whoever
asks it, and this one can be killed (standard library, and NVIDIA's pynvml).

``python -I -S driver.py PYNVML_FILE LONGEST_SECONDS``: for each line of its input one line of JSON, which
`roost.devices.driver_report` reads. It ends with its input; and where one answer takes so long that whoever
asked
would have killed it, and so is gone.
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
    """The driver, opened when it is asked first, and anew after something has failed: a card that was reset
    is found again only so."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._is_open = False
        self._names: dict[int, dict[str, str]] = {}

    def answer(self) -> dict[str, Any]:
        """``{"gpus": […]}``, none without a driver, or ``{"error": …}``."""
        nvml = self._nvml
        try:
            if not self._is_open:
                nvml.nvmlInit()
                self._is_open = True
            asked = [self._gpu(index) for index in range(nvml.nvmlDeviceGetCount())]
        except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded):
            return {"gpus": []}
        except nvml.NVMLError as error:
            self._close()
            return {"error": str(error)}
        gpus = [gpu for gpu in asked if gpu is not None]
        if any("error" in gpu for gpu in gpus):
            self._close()
        return {"gpus": gpus}

    def _close(self) -> None:
        if self._is_open:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
            self._is_open = False

    def _gpu(self, index: int) -> dict[str, Any] | None:
        """A card, as far as it answers; None for one that this process may not use, as Slurm hides them."""
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            self._names[index] = self._name(handle)
            load = self._told(handle, "UtilizationRates")
            found = {
                **self._names[index],
                **self._memory(handle),
                "utilization": load.gpu if load is not None else None,
                "temperature": self._told(
                    handle, "TemperatureV", "Temperature", more=[nvml.NVML_TEMPERATURE_GPU]
                ),
                "power_mw": self._told(handle, "PowerUsage"),
                "compute_mode": self._told(handle, "ComputeMode"),
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
        """The memory, and the processes that compute; null where the driver does not tell."""
        room = self._told(handle, "MemoryInfo")
        running = self._told(handle, "ComputeRunningProcesses_v3", "ComputeRunningProcesses_v2")
        return {
            "memory": {"total": room.total, "free": room.free} if room is not None else None,
            "processes": None
            if running is None
            else [{"pid": one.pid, "used": one.usedGpuMemory} for one in running],
        }

    def _parts(self, handle: Any) -> list[dict[str, Any]] | None:
        """The MIG instances of a card; null where it has none because MIG is off."""
        nvml = self._nvml
        mode = self._told(handle, "MigMode")
        if mode is None or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return None
        parts = []
        for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            with suppress(nvml.NVMLError_NotFound):  # a number that no instance has
                parts.append(self._part(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)))
        return parts

    def _part(self, handle: Any) -> dict[str, Any]:
        found = {**self._name(handle), **self._memory(handle)}
        size = self._told(handle, "Attributes_v2", "Attributes")
        if size is not None:
            slices = {"compute": size.computeInstanceSliceCount, "gpu": size.gpuInstanceSliceCount}
            found["slices"] = {**slices, "memory_mb": size.memorySizeMB}
        return found

    def _told(self, handle: Any, *names: str, more: Sequence[Any] = ()) -> Any:
        """What the driver answers to the first of these questions that it, and pynvml, know; None where it
        does not tell."""
        nvml = self._nvml
        for name in names:
            ask = getattr(nvml, f"nvmlDeviceGet{name}", None)
            if ask is not None:
                with suppress(
                    nvml.NVMLError_NotSupported, nvml.NVMLError_NoPermission, nvml.NVMLError_FunctionNotFound
                ):
                    return ask(handle, *more)
        return None


def main(file: str, longest_seconds: float) -> None:
    """Answers until the input ends."""
    driver = Driver(_loaded(file))
    for _ in sys.stdin:
        # The signal itself ends the process: a handler of Python would wait for the driver.
        signal.setitimer(signal.ITIMER_REAL, longest_seconds)
        answer = json.dumps(driver.answer())
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(answer, flush=True)


def _loaded(file: str) -> Any:
    spec = spec_from_file_location("pynvml", file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["pynvml"] = module  # it looks itself up there
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
