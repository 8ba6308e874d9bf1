"""Queries NVIDIA's driver about its cards in a process of its own, which can be killed when the driver hangs
(standard library, and NVIDIA's pynvml).

``python -I -S driver_process.py PYNVML_FILE LIMIT_SECONDS`` writes one line of JSON for each line of its
input: for the line ``health`` the state of the driver, for any other the cards.
`roost.devices.driver.driver_report` reads both. The process ends with its input. It also ends when one answer
takes longer than the limit: the parent, which would have killed it by then, no longer exists.
"""

# Standard library only

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from time import monotonic
from typing import Any

_MB = 2**20
_POWER_REASONS, _HEAT_REASONS, _OTHER_REASONS = 0x04 | 0x80, 0x20 | 0x40, 0x08
"""Bits of nvmlClocksEventReasons: the software's power limit and the power brake; the temperature, by
software and hardware; a slowdown of the hardware, set together with its cause where the driver knows it."""


class Driver:
    """NVIDIA's driver, opened by the first query, and again after a failure: otherwise a card that was reset
    would not be found."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._is_open = False
        self._names: dict[int, dict[str, str]] = {}
        self._energy: dict[str, tuple[float, int]] = {}
        """Of each card, when its counter of energy was read, and what it said in mJ."""

    def answer(self) -> dict[str, Any]:
        """Returns ``{"gpus": […]}``, an empty list without a driver, or ``{"error": …}``."""
        return self._answer(self._gpu)

    def sample(self) -> dict[str, Any]:
        """Returns the same for `roost.devices.sampling`: of each card ``id``, ``name``, ``total_mb``, and
        ``values`` by the names of `machine_columns.CARD_COLUMNS`; of one that does not answer, ``error``."""
        found = self._answer(self._gpu_sample)
        if "gpus" in found:
            found["gpus"] = [card for gpu in found["gpus"] for card in gpu.pop("parts", None) or [gpu]]
        return found

    def health(self) -> dict[str, Any]:
        """Returns the versions of the driver and, of each card, what may slow it down or falsify its results,
        or ``{"error": …}``."""
        return {**self._answer(self._gpu_health), **self._versions()}

    def _answer(self, ask: Callable[[int], dict[str, Any] | None]) -> dict[str, Any]:
        nvml = self._nvml
        try:
            if not self._is_open:
                nvml.nvmlInit()
                self._is_open = True
            answers = [ask(index) for index in range(nvml.nvmlDeviceGetCount())]
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

    def _gpu_sample(self, index: int) -> dict[str, Any] | None:
        """A card, or its MIG instances (``parts``), whose memory is their own, and whose temperature, power
        and clocks are the card's."""
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            self._names[index] = self._name(handle)
            values, mode = self._values(handle), self._query(handle, "MigMode")
            found = self._sampled(handle, self._names[index], values)
            if mode is not None and mode[0] == nvml.NVML_DEVICE_MIG_ENABLE:
                del values["power"]  # of all instances together
                found["parts"] = [
                    self._sampled(part, self._name(part), values) for part in self._part_handles(handle)
                ]
        except nvml.NVMLError_NoPermission:
            return None
        except nvml.NVMLError as error:
            name = self._names.get(index, {})
            return {"id": name.get("uuid", str(index)), "name": name.get("name", ""), "error": str(error)}
        return found

    def _gpu_health(self, index: int) -> dict[str, Any] | None:
        """The health of a card; None for one that this process may not use."""
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            remapped = self._query(handle, "RemappedRows")
            reasons = self._query(handle, "CurrentClocksEventReasons", "CurrentClocksThrottleReasons")
            return {
                **self._name(handle),
                "temperature": self._query(
                    handle, "TemperatureV", "Temperature", more=[nvml.NVML_TEMPERATURE_GPU]
                ),
                "slowdown_temperature": self._query(
                    handle, "TemperatureThreshold", more=[nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN]
                ),
                "ecc_errors": self._query(
                    handle,
                    "TotalEccErrors",
                    more=[nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC],
                ),
                "remap_pending": bool(remapped[2]) if remapped is not None else None,
                "remap_failed": bool(remapped[3]) if remapped is not None else None,
                "persistence": self._query(handle, "PersistenceMode"),
                "link_width": self._query(handle, "CurrPcieLinkWidth"),
                "max_link_width": self._query(handle, "MaxPcieLinkWidth"),
                "slowed_by_power": None if reasons is None else bool(reasons & _POWER_REASONS),
                "slowed_by_heat": None if reasons is None else bool(reasons & _HEAT_REASONS),
            }
        except nvml.NVMLError_NoPermission:
            return None
        except nvml.NVMLError as error:
            return {**self._names.get(index, {"uuid": str(index), "name": ""}), "error": str(error)}

    def _versions(self) -> dict[str, Any]:
        nvml = self._nvml
        if not self._is_open:
            return {}
        with suppress(nvml.NVMLError, AttributeError):  # an older pynvml
            return {
                "driver": nvml.nvmlSystemGetDriverVersion(),
                "cuda": nvml.nvmlSystemGetCudaDriverVersion_v2(),
            }
        return {}

    def _sampled(self, handle: Any, name: dict[str, str], values: dict[str, float]) -> dict[str, Any]:
        memory = self._query(handle, "MemoryInfo")
        own = {} if memory is None else {"memory_mb": (memory.total - memory.free) / _MB}
        total_mb = 0 if memory is None else memory.total // _MB
        return {"id": name["uuid"], "name": name["name"], "total_mb": total_mb, "values": {**values, **own}}

    def _values(self, handle: Any) -> dict[str, float]:
        nvml = self._nvml
        load = self._query(handle, "UtilizationRates")
        reasons = self._query(handle, "CurrentClocksEventReasons", "CurrentClocksThrottleReasons")
        found = {
            "utilization": None if load is None else load.gpu,
            "memory_busy": None if load is None else load.memory,
            "power": self._mean_watts(handle),
            "temperature": self._query(
                handle, "TemperatureV", "Temperature", more=[nvml.NVML_TEMPERATURE_GPU]
            ),
            "clock": self._query(handle, "ClockInfo", more=[nvml.NVML_CLOCK_SM]),
            "memory_clock": self._query(handle, "ClockInfo", more=[nvml.NVML_CLOCK_MEM]),
        }
        if reasons is not None:
            is_explained = reasons & (_POWER_REASONS | _HEAT_REASONS)
            found["throttled_power"] = 100 * bool(reasons & _POWER_REASONS)
            found["throttled_heat"] = 100 * bool(reasons & _HEAT_REASONS)
            found["throttled_other"] = 100 * bool(reasons & _OTHER_REASONS and not is_explained)
        return {name: float(value) for name, value in found.items() if value is not None}

    def _mean_watts(self, handle: Any) -> float | None:
        """The mean since the sample before, by the card's counter of energy, which misses no peak between two
        samples; without one, the power now."""
        energy = self._query(handle, "TotalEnergyConsumption")
        if energy is not None:
            uuid, now = self._nvml.nvmlDeviceGetUUID(handle), monotonic()
            before, self._energy[uuid] = self._energy.get(uuid), (now, energy)
            if before is not None and energy >= before[1] and now > before[0]:
                return float(energy - before[1]) / 1000 / (now - before[0])
        milliwatts = self._query(handle, "PowerUsage")
        return None if milliwatts is None else milliwatts / 1000

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
        return [self._part(part) for part in self._part_handles(handle)]

    def _part_handles(self, handle: Any) -> list[Any]:
        nvml = self._nvml
        found = []
        for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            with suppress(nvml.NVMLError_NotFound):  # a number that no instance has
                found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number))
        return found

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
    for line in sys.stdin:
        # The signal's default action ends the process: a Python handler would wait for the driver.
        signal.setitimer(signal.ITIMER_REAL, limit_seconds)
        answer = json.dumps(driver.health() if line.strip() == "health" else driver.answer())
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
