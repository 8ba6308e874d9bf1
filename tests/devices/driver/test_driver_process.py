"""The program that asks the driver, started as it is, with NVIDIA's library but for the driver's answers."""

from __future__ import annotations

import inspect
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pynvml
import pytest

from roost.devices.driver import driver_process as program
from tests.devices.nvidia import GB, TWO, Driver

NO_WORD = dict.fromkeys(
    ["memory", "processes", "utilization", "temperature", "power_mw", "compute_mode"], None
)
REPORTED = {"utilization": 97, "temperature": 61, "power_mw": 305_500}


@contextmanager
def started(driver: Driver, longest_seconds: float = 60.0) -> Iterator[subprocess.Popen[str]]:
    pynvml_file = driver.file.with_name("pynvml.py")
    command = [sys.executable, "-I", "-S", program.__file__, pynvml_file, str(longest_seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def asked(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    assert isinstance(answer, dict)
    return answer


def answer_of(driver: Driver, *gpus: dict[str, Any]) -> list[dict[str, Any]]:
    driver.says(*gpus)
    with started(driver) as process:
        found = asked(process)["gpus"]
        assert isinstance(found, list)
        return found


def test_it_answers_each_line_and_ends_with_its_input(driver: Driver) -> None:
    with started(driver) as process:
        first = asked(process)
        driver.says(*TWO, {"uuid": "GPU-cc3"})
        second = asked(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait() == 0
    assert [gpu["uuid"] for gpu in first["gpus"]] == ["GPU-aa1", "GPU-bb2"]
    assert [gpu["index"] for gpu in second["gpus"]] == [0, 1, 2]
    assert driver.calls("Init") == 1


def test_what_it_asks_of_a_card(driver: Driver) -> None:
    (gpu,) = answer_of(driver, {"uuid": "GPU-a", "running": [[17, GB], [18, None]], "compute_mode": 3})
    assert gpu == {
        "index": 0,
        "uuid": "GPU-a",
        "name": "NVIDIA H100",
        "memory": {"total": 80 * GB, "free": 79 * GB},
        "processes": [{"pid": 17, "used": GB}, {"pid": 18, "used": None}],
        **REPORTED,
        "compute_mode": 3,
        "parts": None,
    }


def test_what_a_driver_does_not_tell_is_null(driver: Driver) -> None:
    """And an older driver is asked in the older way."""
    silent = ["MemoryInfo", "ComputeRunningProcesses_v3", "UtilizationRates", "Temperature", "PowerUsage"]
    silent.append("ComputeMode")
    fails = dict.fromkeys(silent, "NotSupported")
    lacks = {"ComputeRunningProcesses_v2": "NoPermission", "MigMode": "FunctionNotFound"}
    old = {"ComputeRunningProcesses_v3": "FunctionNotFound"}
    one, two = answer_of(
        driver,
        {"uuid": "GPU-a", "fails": {**fails, **lacks}},
        {"uuid": "GPU-b", "fails": old, "running": [[17, GB]]},
    )
    assert one == {"index": 0, "uuid": "GPU-a", "name": "NVIDIA H100", **NO_WORD, "parts": None}
    assert two["processes"] == [{"pid": 17, "used": GB}]


def test_the_instances_of_a_card(driver: Driver) -> None:
    slices = {"computeInstanceSliceCount": 1, "gpuInstanceSliceCount": 1, "memorySizeMB": 9728}
    part = {"uuid": "MIG-1", "slices": slices, "free": 9 * GB, "total": 10 * GB, "running": [[17, GB]]}
    fails = {"Attributes_v2": "NotSupported"}
    (gpu,) = answer_of(driver, {"uuid": "GPU-a", "mig": [part, None, {"uuid": "MIG-2", "fails": fails}]})
    first, second = gpu["parts"]
    assert first == {
        "uuid": "MIG-1",
        "name": "NVIDIA H100",
        "memory": {"total": 10 * GB, "free": 9 * GB},
        "processes": [{"pid": 17, "used": GB}],
        "slices": {"compute": 1, "gpu": 1, "memory_mb": 9728},
    }
    assert second["uuid"] == "MIG-2" and "slices" not in second


def test_a_card_that_may_not_be_used_is_left_out(driver: Driver) -> None:
    found = answer_of(driver, {"uuid": "GPU-a", "fails": {"HandleByIndex": "NoPermission"}}, *TWO)
    assert [(gpu["index"], gpu["uuid"]) for gpu in found] == [(1, "GPU-aa1"), (2, "GPU-bb2")]


@pytest.mark.parametrize("call", ["HandleByIndex", "UUID", "MemoryInfo"])
def test_a_card_that_fails_alone(call: str, driver: Driver) -> None:
    """The others answer; it keeps its name; and the driver is opened anew, for a card that was reset."""
    with started(driver) as process:
        asked(process)
        driver.says({"uuid": "GPU-aa1", "fails": {call: "GpuIsLost"}}, TWO[1])
        lost, well = asked(process)["gpus"]
        assert lost == {"index": 0, "uuid": "GPU-aa1", "name": "NVIDIA H100", "error": "GPU is lost"}
        assert well["uuid"] == "GPU-bb2" and "error" not in well
        driver.says(*TWO)
        assert "error" not in asked(process)["gpus"][0]
    assert (driver.calls("Init"), driver.calls("Shutdown")) == (2, 1)


@pytest.mark.parametrize("fails", ["LibraryNotFound", "DriverNotLoaded"])
def test_without_a_driver_there_is_no_card(fails: str, driver: Driver) -> None:
    """And it is looked for again each time."""
    driver.says(*TWO, fails={"Init": fails})
    with started(driver) as process:
        assert asked(process) == {"gpus": []}
        driver.says(*TWO)
        assert len(asked(process)["gpus"]) == 2


def test_a_driver_that_fails_as_a_whole(driver: Driver) -> None:
    """Closed too, if it can be."""
    driver.says(fails={"Count": "Unknown", "Shutdown": "Unknown"})
    with started(driver) as process:
        assert asked(process) == {"error": "Unknown Error"}
        driver.says(*TWO)
        assert len(asked(process)["gpus"]) == 2
    assert driver.calls("Init") == 2


def test_it_ends_when_its_parent_has_ended(driver: Driver, tmp_path: Path) -> None:
    """The driver holds the process for ever, and its parent no longer exists to kill it."""
    held = tmp_path / "held"
    held.touch()
    driver.says(*TWO, hangs={"Count": str(held)})
    with started(driver, longest_seconds=0.1) as process:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait() == -signal.SIGALRM


def test_the_library_knows_all_that_it_is_asked() -> None:
    """What tests put in its place must not hide a name that is written wrong."""
    text = inspect.getsource(program)
    names = set(re.findall(r"\bnvml\.(\w+)", text))
    for query in re.findall(r"_query\(\s*handle,([^=\)]*)", text):
        names |= {f"nvmlDeviceGet{name}" for name in re.findall(r'"(\w+)"', query)}
    optional = {"nvmlDeviceGetTemperatureV"}  # asked where it is there
    assert len(names) > 15 and {name for name in names - optional if not hasattr(pynvml, name)} == set()
